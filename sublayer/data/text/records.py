"""Files of many documents: JSON, CSV, Parquet, blank-line text, articles, rows of the hub."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sublayer.config.data import HUB
from sublayer.data.text.files import FileDocument, RawDocument, Text, body_range
from sublayer.errors import DataError
from sublayer.files.lines import count_line_ends, decoded, read_lines, unpacked
from sublayer.files.parsing import parse_json
from sublayer.system.extras import extra_module
from sublayer.tasks.records import (
    Record,
    is_json_list,
    read_parquet,
    read_records,
    suffix_of,
    whole_rows,
)

ROWS_PER_DOCUMENT = 1000
"""Sentences per document, of a corpus published as sentences without document boundaries."""

_SHOWN_FIELDS = 8
_BLOCK_BYTES = 1 << 20
_LONGEST_DOCUMENT = 256 << 20
_START = re.compile(rb'<doc id="[^"]*"[^>]*?(?: title="([^"]*)")?>\s*')


def json_records(path: Path, field: str = "text") -> Iterator[Record]:
    """Read the objects of JSON lines, or the objects and texts of a list; blank lines are none.

    A text of a list is an object of one ``field``. Raises DataError with file and line, or member
    from 1, where one is broken or anything else.
    """
    if is_json_list(path):
        for number, member in enumerate(parse_json(unpacked(path), str(path), DataError), 1):
            if not isinstance(member, str | dict):
                kind = type(member).__name__
                raise DataError(f"{path}, member {number} is {kind}, not an object with a text")
            yield Record(path, number, {field: member} if isinstance(member, str) else member)
        return
    for line, data in read_lines(path):
        text = decoded(path, line, data)
        if not text.strip():
            continue
        try:
            values = json.loads(text)
        except (RecursionError, ValueError) as error:
            reason = getattr(error, "msg", str(error)).removesuffix(" at")
            raise DataError(
                f"{path}:{line} is not JSON ({reason}); one JSON object a line is read"
            ) from error
        if not isinstance(values, dict):
            raise DataError(f"{path}:{line} is not a JSON object, of which one a line is read")
        yield Record(path, line, values)


def texts_of(records: Iterable[Record], field: str) -> Iterator[RawDocument]:
    """Read the text in a field of each record, empty for null.

    Raises DataError, with its place, at a record without such a text, and at a lone surrogate.
    """
    for record in records:
        values = record.values
        text = values.get(field)
        problem = ""
        if field not in values:
            problem = f"no field {field!r}"
        elif text is not None and not isinstance(text, str):
            problem = f"field {field!r} is {type(text).__name__}, not text"
        if problem:
            texts = [name for name, value in values.items() if isinstance(value, str)]
            remedy = f"set data.text_field (--text-field) to {shown_fields(texts)}"
            if not texts:
                # Where the field alone was read, nothing is known of others.
                remedy = "" if set(values) == {field} else "none of it is a text"
            raise DataError(": ".join(filter(None, (record.place, problem, remedy))))
        yield record.line, encoded(text, record.place)


def encoded(text: str | None, where: str) -> bytes:
    """Encode a text, empty for null; raise DataError, with its place, at a lone surrogate."""
    try:
        return (text or "").encode()
    except UnicodeEncodeError as error:
        half = f"{error.object[error.start]!a}"
        raise DataError(
            f"{where}: {half} is half a surrogate pair, which is no character"
        ) from error


def shown_fields(names: Iterable[str]) -> str:
    """List field names for a message, the first few of them."""
    fields = list(names)
    if not fields:
        return "a field; there are none"
    rest = ", ..." if len(fields) > _SHOWN_FIELDS else ""
    return ", ".join(fields[:_SHOWN_FIELDS]) + rest


def blank_line_texts(file: FileDocument, *, is_clean: bool) -> Iterator[RawDocument]:
    """Read documents separated by blank lines, as bytes; of ``is_clean`` files the body alone.

    A document begins at its first line that is not blank, and has the ends of its lines.
    """
    text = file.read()
    start, stop = body_range(text) if is_clean else (0, len(text))
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
        if n_bytes:
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

    Other published forms of Wikipedia have no title line. Raises DataError with file and line for
    text between articles, or one without an end.
    """
    first = 0  # the line where the article begins; 0 between articles
    title = b""
    lines: list[bytes] = []
    for number, line in read_lines(path):
        if not first:
            if start := _START.fullmatch(line):
                first, title, lines = number, start[1] or b"", []
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

    A document's position is its first row; empty rows count, and have no line.
    """
    run: list[tuple[int, bytes]] = []
    for number, text in rows:
        run.append((number, b" ".join(text[:].split())))
        if len(run) == ROWS_PER_DOCUMENT:
            yield _joined(run)
            run = []
    if run:
        yield _joined(run)


def _joined(run: list[tuple[int, bytes]]) -> RawDocument:
    return run[0][0], b"\n".join(text for _, text in run if text) + b"\n"


def read_kind(
    kind: str, file: FileDocument, field: str, *, is_clean: bool = False
) -> Iterator[RawDocument]:
    """Read the documents of a file of a kind; records have their text in ``field``.

    A kind is file, blank-line, articles, json, csv, parquet or line; of the last four " runs" joins
    rows that are sentences. ``is_clean`` leaves out what Project Gutenberg puts around a text.
    """
    path = file.path
    rows_of, _, runs = kind.partition(" ")
    if kind == "file":
        return iter([(1, file.read())])
    if kind == "blank-line":
        return blank_line_texts(file, is_clean=is_clean)
    if kind == "articles":
        return extracted_articles(path)
    if rows_of == "line":
        rows: Iterator[RawDocument] = ((n, line) for n, line in read_lines(path) if line.strip())
    elif rows_of == "parquet":
        rows = texts_of(read_parquet(path, (field,)), field)
    elif rows_of == "csv":
        suffix = ".tsv" if suffix_of(path) == ".tsv" else ".csv"
        rows = texts_of(whole_rows(read_records(path, suffix)), field)
    else:
        rows = texts_of(json_records(path, field), field)
    return row_runs(rows) if runs else rows


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

    def records(self, field: str = "") -> Iterator[Record]:
        """Read the rows, of one field where there is such; raise DataError as ``load`` does."""
        data_set = self.load()
        if field in data_set.column_names:
            data_set = data_set.select_columns([field])
        return (Record(str(self), row, values) for row, values in enumerate(data_set, 1))


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
