"""Files of lines with tabs between their fields, in which a quote is text."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from sublayer.errors import DataError

_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class TsvRow:
    """A line's fields, and its number in the file, from 1."""

    line: int
    cells: Sequence[str]


def read_tsv(path: Path) -> Iterator[TsvRow]:
    """Read the lines of a file, without their ends: LF or CRLF, the last with or without one.

    A mark of the byte order is left out. Raises DataError where the file cannot be read, or is not
    UTF-8.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        number = data.count(b"\n", 0, error.start) + 1
        raise DataError(f"{path}:{number}: byte 0x{data[error.start]:02x} is not UTF-8") from None
    # str.splitlines would cut at line separators inside a text, too.
    lines = text.removeprefix(_BOM).split("\n")
    if lines[-1] == "":
        lines.pop()
    for number, line in enumerate(lines, start=1):
        yield TsvRow(number, line.removesuffix("\r").split("\t"))
