"""Rows with answers written as CSV, TSV, JSON, Parquet or Excel."""

import csv
import json
from codecs import getwriter
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import IO, Any

from sublayer.counts import count
from sublayer.errors import ConfigError, DataError
from sublayer.files.lines import PACKED_TABLES, parquet_file
from sublayer.system.extras import extra_module
from sublayer.system.stages import note
from sublayer.tasks.predicting import (
    AnswerColumns,
    AskedFile,
    AskedRow,
    FileKind,
    NamedPrediction,
    free_name,
)

_NOT_IN_TSV = str.maketrans("\t\r\n", "   ")
Answered = Iterable[tuple[AskedRow, NamedPrediction]]
"""Rows, and the answer to each."""


def _texts(asked: AskedFile, columns: AnswerColumns, rows: Answered) -> Iterator[list[str]]:
    """Yield the header, and the cells of each row as texts."""
    yield [*asked.names, *columns.added]
    for row, named in rows:
        cells = chain(map(row.values.get, asked.names), columns.cells(named).values())
        yield list(map(_plain, cells))


def _write_csv(stream: IO[bytes], asked: AskedFile, columns: AnswerColumns, rows: Answered) -> None:
    """Write CSV, with the rows' delimiter."""
    delimiter = asked.delimiter if asked.kind == "csv" else ","
    text = getwriter("utf-8")(stream, "surrogatepass")
    writer = csv.writer(text, delimiter=delimiter, lineterminator="\n")
    writer.writerows(_texts(asked, columns, rows))


def _write_tsv(stream: IO[bytes], asked: AskedFile, columns: AnswerColumns, rows: Answered) -> None:
    """Write TSV whose quotes are text; tabs and line breaks in texts become spaces, as noted."""
    n_changed = 0
    for cells in _texts(asked, columns, rows):
        written = [cell.translate(_NOT_IN_TSV) for cell in cells]
        n_changed += written != cells
        stream.write(("\t".join(written) + "\n").encode("utf-8", "surrogatepass"))
    if n_changed:
        note(
            f"tabs and line breaks in texts of {count(n_changed, 'row')} are written as spaces, "
            "for TSV has neither: --out with .csv or .jsonl, or --json, keeps them"
        )


def _objects(columns: AnswerColumns, rows: Answered) -> Iterator[bytes]:
    """Yield each row and its answer as one object, whose probabilities are an object in it."""
    for row, named in rows:
        names = {**columns.names, "probabilities": free_name("probabilities", row.values)}
        added = {names.get(name, name): value for name, value in named.to_json().items()}
        text = json.dumps({**row.values, **added}, ensure_ascii=False, default=str)
        yield text.encode("utf-8", "surrogatepass")


def _write_json_lines(
    stream: IO[bytes], asked: AskedFile, columns: AnswerColumns, rows: Answered
) -> None:
    for line in _objects(columns, rows):
        stream.write(line + b"\n")


def _write_json_list(
    stream: IO[bytes], asked: AskedFile, columns: AnswerColumns, rows: Answered
) -> None:
    n_rows = 0
    for n_rows, line in enumerate(_objects(columns, rows), 1):
        stream.write((b"[\n" if n_rows == 1 else b",\n") + line)
    stream.write(b"\n]\n" if n_rows else b"[]\n")


def _write_parquet(
    stream: IO[bytes], asked: AskedFile, columns: AnswerColumns, rows: Answered
) -> None:
    """Write Parquet, with the types of the rows' columns."""
    parquet = extra_module("pyarrow.parquet", "Parquet files")
    arrow = import_module("pyarrow")
    values: list[Mapping[str, Any]] = []
    answers: list[dict[str, Any]] = []
    for row, named in rows:
        values.append(row.values)
        answers.append(columns.cells(named))
    if asked.kind == "parquet":
        with parquet_file(asked.path) as file:
            table = file.read()
    else:
        try:
            table = arrow.table({name: [row.get(name) for row in values] for name in asked.names})
        except arrow.ArrowException as error:
            raise DataError(
                f"{asked.path} has a column of several types, which Parquet has not ({error}): "
                "write .jsonl"
            ) from None
    for name in columns.added:
        table = table.append_column(name, arrow.array([answer[name] for answer in answers]))
    parquet.write_table(table, stream)


def _write_xlsx(
    stream: IO[bytes], asked: AskedFile, columns: AnswerColumns, rows: Answered
) -> None:
    """Write a workbook of one sheet; raise DataError for a character that a cell has not."""
    workbook = extra_module("openpyxl", "tables of Excel", "xlsx").Workbook(write_only=True)
    sheet = workbook.create_sheet()
    sheet.append([*asked.names, *columns.added])
    for row, named in rows:
        cells = chain(map(row.values.get, asked.names), columns.cells(named).values())
        plain = [cell if isinstance(cell, int | float) else _plain(cell) for cell in cells]
        try:
            sheet.append([None if cell == "" else cell for cell in plain])
        except ValueError as error:
            raise DataError(
                f"{row.place} has a character that Excel does not keep ({error}): write .csv"
            ) from None
    workbook.save(stream)


Writer = Callable[[IO[bytes], AskedFile, AnswerColumns, Answered], None]
WRITERS: dict[FileKind, Writer] = {
    "csv": _write_csv,
    "tsv": _write_tsv,
    "jsonl": _write_json_lines,
    "json": _write_json_list,
    "parquet": _write_parquet,
    "xlsx": _write_xlsx,
}
"""Each writes rows, one after another, to a stream of bytes."""


def check_out(out: Path, kind: FileKind | None) -> FileKind:
    """Return the kind of a new file. Raises ConfigError where it cannot be written."""
    if out.exists():
        raise ConfigError(f"{out} exists: name a file that does not")
    if not out.parent.is_dir():
        raise ConfigError(f"the folder {out.parent} is not there: make it, or name another file")
    if kind is None or out.suffix in PACKED_TABLES:
        raise ConfigError(f"{out} is of no kind that is written: {', '.join(WRITERS)}")
    return kind


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
