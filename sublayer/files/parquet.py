"""Parquet files, opened and their values converted."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from sublayer.errors import DataError
from sublayer.files.lines import check_no_pointer
from sublayer.system.extras import extra_module

_SHOWN_REASON = 200
_BUFFER_BYTES = 1 << 20
"""Bytes of a column that are read at a time: without it, all of a row group's."""


@contextmanager
def parquet_file(path: Path) -> Iterator[Any]:
    """Open a Parquet file.

    Raises DataError where pyarrow is not installed, or the file is damaged, then or while it is
    read.
    """
    parquet = extra_module("pyarrow.parquet", "Parquet files")
    arrow = import_module("pyarrow")
    with suppress(OSError), path.open("rb") as raw:
        check_no_pointer(path, raw.read(64))
    try:
        with parquet.ParquetFile(path, buffer_size=_BUFFER_BYTES) as file:
            yield file
    except (arrow.ArrowException, OSError, MemoryError, ValueError) as error:
        # One of its own for each kind of damage; sizes that are damaged ask for more memory than
        # there is.
        text = str(error) or type(error).__name__
        reason = text.splitlines()[0][:_SHOWN_REASON]
        raise DataError(f"{path} is not a whole Parquet file ({reason}): fetch it again") from error


def python_value(value: Any, path: Path, row: int) -> Any:
    """Convert a Parquet value to Python's; raise DataError, with the row, if it is not UTF-8."""
    try:
        return value.as_py()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(
            f"{path}, row {row}: byte 0x{byte:02x} is not UTF-8: write the file again with texts "
            "in UTF-8"
        ) from None
