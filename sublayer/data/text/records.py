"""Files of many documents: JSON, CSV, Parquet, blank-line text, articles, rows of the hub."""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from sublayer.config.texts import HUB
from sublayer.data.text.files import FileDocument, RawDocument, Text, body_range
from sublayer.errors import DataError
from sublayer.files.file_text import count_line_ends
from sublayer.files.lines import decoded, parquet_file, python_value, read_lines, unpacked
from sublayer.files.parsing import parse_json
from sublayer.system.extras import extra_module
from sublayer.tasks.records import is_json_list, read_records, suffix_of

ROWS_PER_DOCUMENT = 1000
"""Sentences per document, of a corpus published as sentences without document boundaries."""

_SHOWN_FIELDS = 8
_BLOCK_BYTES = 1 << 20
_LONGEST_DOCUMENT = 256 << 20
_PARQUET_ROWS = 64
"""Rows that are read at a time: a book each are no more than a few dozen megabytes."""
_START = re.compile(rb'<doc id="[^"]*"[^>]*?(?: title="([^"]*)")?>\s*')


def json_lines(path: Path, field: str) -> Iterator[RawDocument]:
    """Read one document per line of JSON, or per member of a list: the text in ``field``.

    It may be null; a member of a list may be the text itself. Blank lines are skipped. Raises
    DataError with file and line, or member from 1, where one is broken or has no such text.
    """
    if is_json_list(path):
        members: Iterable[tuple[int, Any]] = enumerate(_json_list(path), 1)
    else:
        members = json_objects(path)
    for line, record in members:
        text = record if isinstance(record, str) else _field(record, field, path, line)
        yield line, encoded(text, path, line)


def _json_list(path: Path) -> Iterator[Any]:
    members = parse_json(unpacked(path), str(path), DataError)
    for number, member in enumerate(members, 1):
        if not isinstance(member, str | dict):
            kind = type(member).__name__
            raise DataError(f"{path}, member {number} is {kind}, not an object with a text")
        yield member


def csv_rows(path: Path, field: str) -> Iterator[RawDocument]:
    """Read one document per row of CSV, or of TSV by its suffix: the text in a column.

    Raises DataError where there is no such column, and at a row of too many or few fields.
    """
    for record in read_records(path, ".tsv" if suffix_of(path) == ".tsv" else ".csv"):
        if record.problem:
            raise DataError(f"{record.place} has {record.problem}: mend the row, or remove it")
        text = _field(dict(record.values), field, path, record.line)
        yield record.line, encoded(text, path, record.line)


def json_objects(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read one JSON object per line; raise DataError with file and line where one is broken.

    Blank lines are skipped.
    """
    for line, data in read_lines(path):
        text = decoded(path, line, data)
        if text.strip():
            yield line, _object(text, path, line)


def parquet_rows(path: Path, field: str) -> Iterator[RawDocument]:
    """Read one document per row: the text in a column, which may be null or categorical.

    Raises DataError where the file is damaged, with the row where its text is, or has no such
    column of text.
    """

    def choose(schema: Any) -> list[str]:
        _check_column(schema, field, path)
        return [field]

    for row, record in parquet_records(path, choose):
        yield row, encoded(record[field], path, row)


def parquet_records(
    path: Path, choose: Callable[[Any], list[str]]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Read the rows of a Parquet file, by the columns that ``choose`` names of its schema.

    Raises DataError where the file is damaged, with the row.
    """
    with parquet_file(path) as file:
        names = choose(file.schema_arrow)
        row = 0
        for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=names):
            columns = [batch.column(batch.schema.get_field_index(name)) for name in names]
            for values in zip(*columns, strict=True):
                row += 1
                record = {}
                for name, value in zip(names, values, strict=True):
                    record[name] = python_value(value, path, row)
                yield row, record


def blank_line_texts(file: FileDocument, *, is_clean: bool) -> Iterator[RawDocument]:
    """Read documents separated by blank lines, as bytes; of ``is_clean`` files the body alone.

    A document begins at its first line that is not blank, and has the ends of its lines.
    """
    text = file.read()
    start = 0
    stop = len(text)
    if is_clean:
        start, stop = body_range(text)
    number = count_line_ends(text, start) + 1
    lines: list[bytes] = []
    n_bytes = 0
    for line in _lines(text, start, stop):
        n_bytes = n_bytes + len(line) if line.strip() else 0
        if n_bytes > _LONGEST_DOCUMENT:
            raise DataError(
                f"{file.name}, document at line {number - len(lines)}: longer than "
                f"{_LONGEST_DOCUMENT >> 20} MiB without a blank line: unset data.documents, which "
                "reads the file as one document"
            )
        if line.strip():
            lines.append(line)
        elif lines:
            yield number - len(lines), b"".join(lines)
            lines = []
        number += 1
    if lines:
        yield number - len(lines), b"".join(lines)


def _lines(text: Text, start: int, stop: int) -> Iterator[bytes]:
    """Yield the lines of a range, their ends included, as ``bytes.splitlines`` divides them."""
    rest = b""
    while start < stop:
        block = text[start : min(start + _BLOCK_BYTES, stop)]
        start += len(block)
        lines = (rest + block).splitlines(keepends=True)
        # The last may go on: a newline belongs to the carriage return before it.
        is_open = start < stop and not lines[-1].endswith(b"\n") and len(rest) < _LONGEST_DOCUMENT
        rest = lines.pop() if is_open else b""
        yield from lines
    if rest:
        yield rest


def extracted_articles(path: Path) -> Iterator[RawDocument]:
    """Read WikiExtractor's articles, ``<doc ...>`` to ``</doc>``, without their title lines.

    The other forms in which Wikipedia is published have no title line. Raises DataError with file
    and line where anything stands between the articles, or one does not end.
    """
    first = 0  # the line where the article begins; 0 between articles
    title = b""
    lines: list[bytes] = []
    for number, line in read_lines(path):
        if not first:
            start = _START.fullmatch(line)
            if start:
                first = number
                title = start[1] or b""
                lines = []
            elif line.strip():
                raise DataError(
                    f"{path}, line {number}: not within <doc ...> and </doc>, "
                    "which WikiExtractor writes"
                )
        elif line.strip() == b"</doc>":
            text = b"".join(lines)
            decoded(path, first, text)
            body = text.strip()
            yield first, body + b"\n" if body else b""
            first = 0
        elif lines or line.strip() not in (title, b""):
            lines.append(line)
    if first:
        raise DataError(
            f"{path}, line {first}: an article begins that does not end: "
            "fetch or extract the file again"
        )


def row_runs(rows: Iterable[RawDocument]) -> Iterator[RawDocument]:
    """Join runs of 1,000 rows to documents of one row a line, of single spaces; the last is less.

    A document is said to begin at its first row; empty rows count, and have no line.
    """
    first = 0
    texts: list[bytes] = []
    for number, text in rows:
        if not texts:
            first = number
        on_one_line = b" ".join(text[:].split())
        texts.append(on_one_line)
        if len(texts) == ROWS_PER_DOCUMENT:
            yield first, _joined(texts)
            texts = []
    if texts:
        yield first, _joined(texts)


def _joined(texts: list[bytes]) -> bytes:
    return b"\n".join(filter(None, texts)) + b"\n"


def whole_file(file: FileDocument) -> Iterator[RawDocument]:
    """Read a file as one document."""
    yield 1, file.read()


def plain_lines(path: Path) -> Iterator[RawDocument]:
    """Read each line that is not blank as a row, by its number."""
    return ((number, line) for number, line in read_lines(path) if line.strip())


def _object(text: str, path: Path, line: int) -> dict[str, Any]:
    try:
        record = json.loads(text)
    except RecursionError as error:
        raise DataError(
            f"{path}, line {line}: JSON that is nested too deeply to be read"
        ) from error
    except ValueError as error:
        reason = getattr(error, "msg", str(error)).removesuffix(" at")
        message = f"{path}, line {line}: not JSON ({reason}); one JSON object a line is read"
        raise DataError(message) from error
    if not isinstance(record, dict):
        raise DataError(f"{path}, line {line}: not a JSON object, of which one a line is read")
    return record


def _field(record: dict[str, Any], field: str, path: Path, line: int) -> str | None:
    text = record.get(field)
    problem = "" if field in record else f"no field {field!r}"
    if text is not None and not isinstance(text, str):
        problem = f"field {field!r} is {type(text).__name__}, not text"
    if problem:
        texts = [name for name, value in record.items() if isinstance(value, str)]
        raise DataError(f"{path}, line {line}: {problem}: {_field_remedy(texts)}")
    return text


def _field_remedy(texts: Sequence[str]) -> str:
    """Say how a field of text is named, by a recipe's field and by the option of commands."""
    if not texts:
        return "no field of it holds a text"
    return f"set data.text_field (--text-field) to {shown_fields(texts)}"


def encoded(text: str | None, name: Path | str, line: int) -> bytes:
    """Encode a text, empty for null; raise DataError, with file and line, at a lone surrogate."""
    if text is None:
        return b""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        half = f"{text[error.start]!a}"
        raise DataError(
            f"{name}, line {line}: {half} is half a surrogate pair, which is no character"
        ) from error


def _check_column(schema: Any, field: str, path: Path) -> None:
    types = import_module("pyarrow").types
    if field not in schema.names:
        texts = [column.name for column in schema if _holds_text(column.type, types)]
        raise DataError(f"{path} has no column {field!r}: {_field_remedy(texts)}")
    check_single(schema, field, path)
    kind = schema.field(field).type
    if not _holds_text(kind, types):
        raise DataError(f"{path}: column {field!r} is {kind}, not text")


def _holds_text(kind: Any, types: Any) -> bool:
    text = kind.value_type if types.is_dictionary(kind) else kind
    # A column that is null from end to end has no other type.
    checks = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    return any(is_text(text) for is_text in checks)


def check_single(schema: Any, name: str, path: Path) -> None:
    """Raise DataError where a Parquet file has several columns of one name."""
    n_columns = len(schema.get_all_field_indices(name))
    if n_columns > 1:
        raise DataError(
            f"{path} has {n_columns} columns {name!r}: rename all but one, or leave them out"
        )


def shown_fields(names: Iterable[str]) -> str:
    """List field names for a message, the first few of them."""
    fields = list(names)
    if not fields:
        return "a field; there are none"
    rest = ", ..." if len(fields) > _SHOWN_FIELDS else ""
    return ", ".join(fields[:_SHOWN_FIELDS]) + rest


READERS: dict[str, Callable[[FileDocument, str, bool], Iterator[RawDocument]]] = {
    "file": lambda file, field, is_clean: whole_file(file),
    "blank-line": lambda file, field, is_clean: blank_line_texts(file, is_clean=is_clean),
    "json": lambda file, field, is_clean: json_lines(file.path, field),
    "csv": lambda file, field, is_clean: csv_rows(file.path, field),
    "parquet": lambda file, field, is_clean: parquet_rows(file.path, field),
    "articles": lambda file, field, is_clean: extracted_articles(file.path),
    "json runs": lambda file, field, is_clean: row_runs(json_lines(file.path, field)),
    "parquet runs": lambda file, field, is_clean: row_runs(parquet_rows(file.path, field)),
    "line runs": lambda file, field, is_clean: row_runs(plain_lines(file.path)),
}
"""The reader of each kind of file: from the file, its text's field, and whether to clean it."""


_NAME = re.compile(r"hub:(?P<name>[\w.-]+/[\w.-]+)(?::(?P<config>[^:@]+))?(?:@(?P<split>[^@]+))?")


@dataclass(frozen=True)
class HubSet:
    """A split of a data set."""

    name: str
    """``owner/name`` on the hub."""
    config: str | None = None
    """One of the data set's parts, such as a language; None: its default."""
    split: str = "train"
    """By the data set's own names."""
    revision: str | None = None
    """A branch of its repository; None: its main one."""

    def __str__(self) -> str:
        config = f":{self.config}" if self.config else ""
        return f"{HUB}{self.name}{config}@{self.split}"

    def load(self) -> Any:
        """Fetch it, once, and return the rows as ``datasets`` gives them.

        Raises DataError where that is not possible, or datasets is not installed.
        """
        datasets = extra_module("datasets", "data sets of the hub")
        known = (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError)
        try:
            return datasets.load_dataset(
                self.name, self.config, split=self.split, revision=self.revision
            )
        except known as error:
            on_one_line = " ".join(str(error).split())
            reason = on_one_line[:200] or type(error).__name__
            raise DataError(
                f"{self} cannot be fetched from the hub ({reason}): "
                "fetch it where there is a network, or name its files in data.path"
            ) from error

    def rows(self, field: str) -> Iterator[RawDocument]:
        """Read the rows: each one's number, from 1, and its text in ``field``, empty for null.

        Raises DataError where the set cannot be fetched, or has no such field of text.
        """
        data_set = self.load()
        if field not in data_set.column_names:
            raise DataError(
                f"{self} has no field {field!r}: "
                f"set data.text_field (--text-field) to {shown_fields(data_set.column_names)}"
            )
        for row, values in enumerate(data_set.select_columns([field]), 1):
            text = values[field]
            if not isinstance(text, str | None):
                raise DataError(
                    f"{self}, row {row}: field {field!r} is {type(text).__name__}, not text"
                )
            yield row, encoded(text, str(self), row)


def parse_hub(entry: str) -> HubSet:
    """Parse ``hub:owner/name`` or ``hub:owner/name:config@split``; raise DataError otherwise.

    Either of config and split may be left out; the split is then ``train``.
    """
    match = _NAME.fullmatch(entry)
    if match is None:
        raise DataError(
            f"{entry} does not name a data set: "
            "write hub:owner/name, with :config and @split if needed"
        )
    return HubSet(match["name"], match["config"], match["split"] or "train")
