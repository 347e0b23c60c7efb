"""Files that hold many documents: JSON lines, Parquet, text with blank lines between, WikiExtractor's output."""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from sublayer.data.gutenberg import body_range
from sublayer.data.lines import decoded, read_lines
from sublayer.data.pack import Found
from sublayer.data.text import FileDocument
from sublayer.errors import DataError

ROWS_PER_DOCUMENT = 1000
"""Sentences a document, of a corpus published as one sentence a row without the bounds of its documents."""

_SHOWN_FIELDS = 8
_SHOWN_REASON = 200
PARQUET_ROWS = 1024
"""Rows that are read at a time."""
_START = re.compile(rb'<doc id="[^"]*"[^>]*?(?: title="([^"]*)")?>\s*')


def json_lines(path: Path, field: str) -> Iterator[Found]:
    """Read one document a line, the text in a field of a JSON object, null where it has none; blank lines are none.

    Raises DataError with file and line where a line is broken or has no such text.
    """
    for line, found in json_objects(path):
        yield line, encoded(_field(found, field, path, line), path, line)


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read one JSON object a line; blank lines are none. Raises DataError with file and line where one is broken."""
    for line, data in read_lines(path):
        text = decoded(path, line, data)
        if text.strip():
            yield line, _object(text, path, line)


def parquet_rows(path: Path, field: str) -> Iterator[Found]:
    """Read one document a row, the text in a column, null where it has none; categories of texts are texts.

    Raises DataError where the file is damaged, with the row where its text is, or has no such column of text.
    """
    with parquet_file(path) as file:
        _check_column(file.schema_arrow, field, path, import_module("pyarrow").types)
        rows = count(1)
        for batch in file.iter_batches(batch_size=PARQUET_ROWS, columns=[field]):
            for value in batch.column(batch.schema.get_field_index(field)):
                row = next(rows)
                yield row, encoded(python_value(value, path, row), path, row)


@contextmanager
def parquet_file(path: Path) -> Iterator[Any]:
    """Open a Parquet file. Raises DataError where it is damaged, then or while it is read."""
    parquet = extra_module("pyarrow.parquet", "Parquet files")
    arrow = import_module("pyarrow")
    try:
        with parquet.ParquetFile(path) as file:
            yield file
    except (arrow.ArrowException, OSError, MemoryError, ValueError) as error:
        # One of its own for each kind of damage; sizes that are damaged ask for more memory than there is.
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise DataError(f"{path} is not a whole Parquet file ({reason[:_SHOWN_REASON]}): fetch it again") from error


def python_value(value: Any, path: Path, row: int) -> Any:
    """Give a value of a Parquet file as Python's. Raises DataError, with the row, where its text is not UTF-8."""
    try:
        return value.as_py()
    except UnicodeDecodeError as error:
        byte = error.object[error.start]
        raise DataError(f"{path}, row {row}: byte 0x{byte:02x} is not UTF-8: mend or convert it") from None


def blank_line_texts(file: FileDocument, *, is_clean: bool) -> Iterator[Found]:
    """Read documents with blank lines between them, as bytes; of ``is_clean`` files the body alone."""
    text = file.read()
    start, stop = body_range(text) if is_clean else (0, len(text))
    line = text[:start].count(b"\n") + 1
    held: list[bytes] = []
    for each in text[start:stop].splitlines(keepends=True):
        if each.strip():
            held.append(each)
        elif held:
            yield line - len(held), b"".join(held)
            held = []
        line += 1
    if held:
        yield line - len(held), b"".join(held)


def extracted_articles(path: Path) -> Iterator[Found]:
    """Read the articles of WikiExtractor's output, ``<doc ...>`` to ``</doc>``, without their title lines.

    The other forms in which Wikipedia is published have no title line. Raises DataError with file and line where
    anything stands between the articles, or one does not end.
    """
    begun, title, held = 0, b"", list[bytes]()
    for line, data in read_lines(path):
        start = None if begun else _START.fullmatch(data)
        if start:
            begun, title, held = line, start[1] or b"", []
        elif not begun and data.strip():
            raise DataError(f"{path}, line {line}: not within <doc ...> and </doc>, which WikiExtractor writes")
        elif begun and data.strip() == b"</doc>":
            decoded(path, begun, b"".join(held))
            yield begun, b"".join(held).strip() + b"\n" if any(map(bytes.strip, held)) else b""
            begun = 0
        elif begun and not (not held and data.strip() in (title, b"")):
            held.append(data)
    if begun:
        raise DataError(f"{path}, line {begun}: an article begins that does not end: fetch or extract the file again")


def row_runs(rows: Iterable[Found]) -> Iterator[Found]:
    """Join runs of rows to documents of one row a line."""
    first, held = 0, list[bytes]()
    for line, text in rows:
        first = first if held else line
        held.append(b" ".join(text.split()))
        if len(held) == ROWS_PER_DOCUMENT:
            yield first, b"\n".join(filter(None, held)) + b"\n"
            held = []
    if held:
        yield first, b"\n".join(filter(None, held)) + b"\n"


def plain_lines(path: Path) -> Iterator[Found]:
    """Read each line as a row."""
    return ((line, data) for line, data in read_lines(path) if data.strip())


def extra_module(name: str, what: str, extra: str = "data") -> Any:
    """Import a library that is not always installed. Raises DataError where it is missing."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise DataError(f"{what} need {error.name}: pip install 'sublayer[{extra}]'") from error


def _object(text: str, path: Path, line: int) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise DataError(f"{path}, line {line}: JSON that is nested too deeply to be read") from error
    except ValueError as error:
        reason = getattr(error, "msg", str(error)).removesuffix(" at")
        raise DataError(f"{path}, line {line}: not JSON ({reason}); one JSON object a line is read") from error
    if not isinstance(found, dict):
        raise DataError(f"{path}, line {line}: not a JSON object, of which one a line is read")
    return found


def _field(found: dict[str, Any], field: str, path: Path, line: int) -> str | None:
    if field not in found:
        raise DataError(f"{path}, line {line}: no field {field!r}: set data.text_field to {shown_fields(found)}")
    text = found[field]
    if text is not None and not isinstance(text, str):
        raise DataError(f"{path}, line {line}: field {field!r} is {type(text).__name__}, not text")
    return text


def encoded(text: str | None, name: Path | str, line: int) -> bytes:
    """Encode a text that was found; null is none. Raises DataError, with file and line, at half a surrogate pair."""
    if text is None:
        return b""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        half = f"{text[error.start]!a}"
        raise DataError(f"{name}, line {line}: {half} is half a surrogate pair, which is no character") from error


def _check_column(schema: Any, field: str, path: Path, types: Any) -> None:
    if field not in schema.names:
        raise DataError(f"{path} has no column {field!r}: set data.text_field to {shown_fields(schema.names)}")
    check_single(schema, field, path)
    kind = schema.field(field).type
    text = kind.value_type if types.is_dictionary(kind) else kind
    # A column that is null from end to end has no other type.
    if not any(of(text) for of in (types.is_string, types.is_large_string, types.is_string_view, types.is_null)):
        raise DataError(f"{path}: column {field!r} is {kind}, not text")


def check_single(schema: Any, name: str, path: Path) -> None:
    """Raise DataError where a Parquet file has several columns of one name."""
    n_columns = len(schema.get_all_field_indices(name))
    if n_columns > 1:
        raise DataError(f"{path} has {n_columns} columns {name!r}: rename all but one, or leave them out")


def shown_fields(names: Iterable[str]) -> str:
    """List the fields that there are, for a message."""
    found = list(names)
    rest = ", ..." if len(found) > _SHOWN_FIELDS else ""
    return (", ".join(found[:_SHOWN_FIELDS]) + rest) if found else "a field; there are none"


READERS: dict[str, Callable[[FileDocument, str, bool], Iterator[Found]]] = {
    "file": lambda file, field, is_clean: iter([(1, bytes(file.read()[:]))]),
    "blank-line": lambda file, field, is_clean: blank_line_texts(file, is_clean=is_clean),
    "json": lambda file, field, is_clean: json_lines(file.path, field),
    "parquet": lambda file, field, is_clean: parquet_rows(file.path, field),
    "articles": lambda file, field, is_clean: extracted_articles(file.path),
    "json runs": lambda file, field, is_clean: row_runs(json_lines(file.path, field)),
    "parquet runs": lambda file, field, is_clean: row_runs(parquet_rows(file.path, field)),
    "line runs": lambda file, field, is_clean: row_runs(plain_lines(file.path)),
}
"""How each kind of file is read: from the file, the field of its text, and whether it is cleaned."""
