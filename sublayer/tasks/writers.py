"""Rows and their answers written as a file of a kind: CSV, TSV, JSON, Parquet or Excel."""

import csv
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from sublayer.counts import count
from sublayer.errors import ConfigError, DataError
from sublayer.files.lines import PACKED_TABLES, parquet_file
from sublayer.system.extras import extra_module
from sublayer.system.stages import note
from sublayer.tasks.predicting import AnswerColumns, AskedFile, AskedRow, FileKind, NamedPrediction

_NOT_IN_TSV = str.maketrans("\t\r\n", "   ")


class RowWriter(ABC):
    """Writes rows, one after another, to a stream of bytes."""

    def __init__(self, stream: IO[bytes], asked: AskedFile, columns: AnswerColumns) -> None:
        self._stream = stream
        self._asked = asked
        self._columns = columns

    @abstractmethod
    def add(self, row: AskedRow, named: NamedPrediction) -> None:
        """Write a row and its answer."""

    def finish(self) -> None:
        """Write what stands behind the last row: nothing, unless the kind has something there."""
        return

    def _write(self, text: str) -> None:
        self._stream.write(text.encode("utf-8", "surrogatepass"))

    def _cells(self, row: AskedRow, named: NamedPrediction) -> list[Any]:
        answer = self._columns.cells(named)
        own = [row.values.get(name) for name in self._asked.names]
        return [*own, *answer.values()]

    @property
    def _header(self) -> list[str]:
        return [*self._asked.names, *self._columns.added]


class CsvWriter(RowWriter):
    """CSV, with what stands between the columns of the rows."""

    def __init__(self, stream: IO[bytes], asked: AskedFile, columns: AnswerColumns) -> None:
        super().__init__(stream, asked, columns)
        delimiter = asked.delimiter if asked.kind == "csv" else ","
        self._writer = csv.writer(self, delimiter=delimiter, lineterminator="\n")
        self._writer.writerow(self._header)

    def write(self, text: str) -> None:
        """Take text from the library's writer."""
        self._write(text)

    def add(self, row: AskedRow, named: NamedPrediction) -> None:
        """Write a line."""
        self._writer.writerow([_plain(value) for value in self._cells(row, named)])


class TsvWriter(RowWriter):
    """TSV whose quotes are text. Tabs and breaks of lines inside a text become spaces, as noted."""

    _n_changed = 0

    def __init__(self, stream: IO[bytes], asked: AskedFile, columns: AnswerColumns) -> None:
        super().__init__(stream, asked, columns)
        self._write_line(self._header)

    def add(self, row: AskedRow, named: NamedPrediction) -> None:
        """Write a line."""
        self._write_line([_plain(value) for value in self._cells(row, named)])

    def finish(self) -> None:
        """Say how many rows have texts that TSV cannot hold."""
        if self._n_changed:
            note(
                f"tabs and line breaks in texts of {count(self._n_changed, 'row')} are written as "
                "spaces, for TSV has neither: --out with .csv or .jsonl, or --json, keeps them"
            )

    def _write_line(self, cells: Sequence[str]) -> None:
        written = [cell.translate(_NOT_IN_TSV) for cell in cells]
        self._n_changed += written != list(cells)
        self._write("\t".join(written) + "\n")


class JsonLinesWriter(RowWriter):
    """An object on a line, to which ``prediction``, ``probabilities`` and so on are added."""

    def add(self, row: AskedRow, named: NamedPrediction) -> None:
        """Write a line."""
        self._write(f"{self._object(row, named)}\n")

    def _object(self, row: AskedRow, named: NamedPrediction) -> str:
        return json.dumps(beside(row.values, named, self._columns), ensure_ascii=False, default=str)


class JsonListWriter(JsonLinesWriter):
    """A list of objects, one on a line."""

    _n_rows = 0

    def add(self, row: AskedRow, named: NamedPrediction) -> None:
        """Write an object of the list."""
        self._write("[\n" if not self._n_rows else ",\n")
        self._write(self._object(row, named))
        self._n_rows += 1

    def finish(self) -> None:
        """End the list."""
        self._write("\n]\n" if self._n_rows else "[]\n")


class ParquetWriter(RowWriter):
    """Parquet, with the types that the rows' own columns have there."""

    def __init__(self, stream: IO[bytes], asked: AskedFile, columns: AnswerColumns) -> None:
        super().__init__(stream, asked, columns)
        self._parquet = extra_module("pyarrow.parquet", "Parquet files")
        self._rows: list[Mapping[str, Any]] = []
        self._answers: list[dict[str, Any]] = []

    def add(self, row: AskedRow, named: NamedPrediction) -> None:
        """Keep a row."""
        self._rows.append(row.values)
        self._answers.append(self._columns.cells(named))

    def finish(self) -> None:
        """Write all rows."""
        arrow = import_module("pyarrow")
        if self._asked.kind == "parquet":
            with parquet_file(self._asked.path) as file:
                table = file.read()
        else:
            names = self._asked.names
            columns = {name: [row.get(name) for row in self._rows] for name in names}
            try:
                table = arrow.table(columns)
            except arrow.ArrowException as error:
                raise DataError(
                    f"{self._asked.path} has a column of several types, which Parquet has not "
                    f"({error}): write .jsonl"
                ) from None
        for name in self._columns.added:
            values = [answer[name] for answer in self._answers]
            table = table.append_column(name, arrow.array(values))
        self._parquet.write_table(table, self._stream)


class XlsxWriter(RowWriter):
    """A workbook of one sheet."""

    def __init__(self, stream: IO[bytes], asked: AskedFile, columns: AnswerColumns) -> None:
        super().__init__(stream, asked, columns)
        library = extra_module("openpyxl", "tables of Excel", "xlsx")
        self._workbook = library.Workbook(write_only=True)
        self._sheet = self._workbook.create_sheet()
        self._sheet.append(self._header)

    def add(self, row: AskedRow, named: NamedPrediction) -> None:
        """Add a row; raise DataError for a control character, which a cell has not."""
        cells = [
            each if isinstance(each, int | float) else _plain(each)
            for each in self._cells(row, named)
        ]
        try:
            self._sheet.append([None if cell == "" else cell for cell in cells])
        except ValueError as error:
            raise DataError(
                f"{row.place} has a character that Excel does not keep ({error}): write .csv"
            ) from None

    def finish(self) -> None:
        """Write all rows."""
        self._workbook.save(self._stream)


def beside(
    values: Mapping[str, Any], named: NamedPrediction, columns: AnswerColumns
) -> dict[str, Any]:
    """Return a row and its answer as one object, whose probabilities are an object in it."""
    answer = named.to_json()
    names = {**columns.names, "probabilities": _free("probabilities", values)}
    added = {names.get(name, name): value for name, value in answer.items()}
    return {**values, **added}


WRITERS: dict[FileKind, Callable[[IO[bytes], AskedFile, AnswerColumns], RowWriter]] = {
    "csv": CsvWriter,
    "tsv": TsvWriter,
    "jsonl": JsonLinesWriter,
    "json": JsonListWriter,
    "parquet": ParquetWriter,
    "xlsx": XlsxWriter,
}


def check_out(out: Path, kind: FileKind | None) -> FileKind:
    """Return of which kind a new file is to be. Raises ConfigError where it cannot be written."""
    if out.exists():
        raise ConfigError(f"{out} exists: name a file that does not")
    if not out.parent.is_dir():
        raise ConfigError(f"the folder {out.parent} is not there: make it, or name another file")
    if kind is None or out.suffix in PACKED_TABLES:
        raise ConfigError(f"{out} is of no kind that is written: {', '.join(WRITERS)}")
    return kind


def _free(name: str, there: Mapping[str, Any]) -> str:
    return name if name not in there else _free(f"{name}_2", there)


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
