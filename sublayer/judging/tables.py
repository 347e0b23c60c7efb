"""Tables of scores as columns: CSV, TSV, JSON lines, Parquet, DataFrames."""

import csv
import io
import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import itemgetter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.errors import DataError
from sublayer.files.lines import decoded, parquet_file, unpacked
from sublayer.numbers import count
from sublayer.values import plain, table_rows

TEXTS, OBJECTS, PARQUET = (".csv", ".tsv", ".txt"), (".jsonl", ".ndjson", ".json"), (".parquet",)
"""Suffixes of delimited texts, of JSON objects and of Parquet."""
_HEAD_ROWS = 200
"""Rows used to detect numeric columns."""
_OWN_NAMES = ["kind", "arm", "baseline", "seed"]
"""The first columns of tables written by ``compare --table`` and ``judge --table``."""
_SHOWN = 40
_LONGEST_CELL = 1 << 24
_TRUTHS = {"true": 1.0, "false": 0.0}
_UNNAMED = re.compile(r"column \d+|Unnamed: \d+|__index_level_\d+__")
_PERCENT_OR_COMMA = re.compile(r"-?\d+(,\d+|[.,]?\d* ?%)")
_WHOLE = re.compile(r"-?\d+\.0*")


@dataclass(frozen=True)
class Coded:
    """Names of rows, such as their seeds, as codes: indices into the list of names."""

    codes: NDArray[np.int64]
    """``[R]``."""
    names: tuple[str, ...]

    @classmethod
    def of(cls, names: Sequence[str]) -> "Coded":
        """Number names in order of first occurrence."""
        places = {name: code for code, name in enumerate(dict.fromkeys(names))}
        codes = np.fromiter(map(places.__getitem__, names), np.int64, len(names))
        return cls(codes, tuple(places))

    def at(self, rows: NDArray[Any]) -> "Coded":
        """Return the names of some rows."""
        return Coded(self.codes[rows], self.names)


@dataclass(frozen=True)
class RunTable:
    """The columns of a table, with the positions of its rows for errors."""

    name: str
    columns: Mapping[str, Sequence[Any]]
    """Texts of a delimited file, Python values of others, equally many in each."""
    first_line: int | None = None
    """None: the rows of the source are not lines."""
    has_header: bool = True

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        return len(next(iter(self.columns.values())))

    def of_runs(self) -> "RunTable":
        """Return the table without the rows of differences of ``compare --table``.

        Raises DataError without any others.
        """
        if list(self.columns)[: len(_OWN_NAMES)] != _OWN_NAMES:
            return self
        run_rows = [row for row, kind in enumerate(self.columns["kind"]) if kind != "difference"]
        if not run_rows:
            raise DataError(
                f"{self.name} has only rows of differences: give a table with rows of runs"
            )
        if len(run_rows) == self.n_rows:
            return self
        rows = {name: [cells[row] for row in run_rows] for name, cells in self.columns.items()}
        return replace(self, columns=rows)

    def place(self, row: int, column: str = "") -> str:
        """Return the position of a row, from 0, and a column, for an error."""
        line = f"row {row}" if self.first_line is None else f"line {row + self.first_line}"
        return f"{self.name}, {line}" + (f", column {column}" if column else "")

    def is_number(self, column: str) -> bool:
        """Return whether most filled cells of a column's first rows are numbers."""
        filled = [cell for cell in self.columns[column][:_HEAD_ROWS] if not is_empty(cell)]
        return 2 * sum(_number(cell) is not None for cell in filled) > len(filled)

    def is_unnamed(self, column: str) -> bool:
        """Return whether a column has no heading, as the row numbers of pandas."""
        return self.has_header and bool(_UNNAMED.fullmatch(column))

    def coded(self, column: str) -> Coded:
        """Read a column as names; raise DataError for lists and objects."""
        cells = self.columns[column]
        codes: dict[Any, int] = {}
        places: dict[str, int] = {}
        try:
            for cell in dict.fromkeys(cells):
                codes[cell] = places.setdefault(_name(cell), len(places))
        except TypeError:
            row = next(row for row, cell in enumerate(cells) if not _is_hashable(cell))
            where = self.place(row, column)
            raise DataError(
                f"{where}: a list or an object cannot be a name: choose another column"
            ) from None
        return Coded(np.fromiter(map(codes.__getitem__, cells), np.int64, len(cells)), (*places,))

    def numbers(self, column: str) -> NDArray[np.float64]:
        """Read a column as numbers, ``[R]``, NaN for an empty cell.

        Raises DataError, with line and column, for a text that is not a number.
        """
        cells = self.columns[column]
        with suppress(TypeError, ValueError):  # a cell that is empty, a Boolean or not a text
            if "_" not in "".join(cells):
                return np.fromiter(map(float, cells), np.float64, len(cells))
        values = [_number(cell) for cell in cells]
        if None in values:
            row = values.index(None)
            text = str(cells[row])
            remedy = "write numbers with a decimal point, and nan for a run that failed"
            if _PERCENT_OR_COMMA.fullmatch(text.strip()):
                remedy = f"write {text.replace(',', '.').strip(' %')}"
            where = self.place(row, column)
            raise DataError(f"{where}: {text[:_SHOWN]!r} is not a number: {remedy}")
        return np.array(values, dtype=np.float64)


class _ParquetColumns(Mapping[str, Sequence[Any]]):
    """The columns of a Parquet file, each read on first use."""

    def __init__(self, path: Path, names: Sequence[str]) -> None:
        self._path, self._names = path, names
        self._read: dict[str, list[Any]] = {}

    def __getitem__(self, name: str) -> list[Any]:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._read:
            with parquet_file(self._path) as file:
                cells = file.read([name]).column(name).to_pylist()
            self._read[name] = [
                cell.decode("utf-8", "replace") if isinstance(cell, bytes) else cell
                for cell in cells
            ]
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def table_of(
    name: str, names: Sequence[str], cells: Sequence[Sequence[Any]], **more: Any
) -> RunTable:
    """Build a table of columns; raise DataError without rows, and for duplicate names."""
    twice = next((column for column, times in Counter(names).items() if times > 1), None)
    if twice is not None:
        raise DataError(f"{name} has several columns {twice!r}: rename all but one")
    if not cells or not len(cells[0]):
        raise DataError(f"{name} has no row: give a table with a row for each value")
    return RunTable(name, dict(zip(names, cells, strict=True)), **more)


def read_table(path: Path) -> RunTable:
    """Read a table by its suffix, compressed (.gz and the like) or not.

    Raises DataError for another suffix, a damaged file, and without pyarrow for Parquet.
    """
    suffixes = (*TEXTS, *OBJECTS, *PARQUET)
    suffix = next((end for end in reversed(path.suffixes) if end.lower() in suffixes), "").lower()
    if suffix in TEXTS:
        return _delimited(path, suffix)
    if suffix in PARQUET:
        with parquet_file(path) as file:
            names, rows = list(file.schema_arrow.names), range(file.metadata.num_rows)
        checked = table_of(str(path), names, [rows] * len(names))
        return replace(checked, columns=_ParquetColumns(path, names))
    if suffix == ".json":
        content = _json(_text(path), path)
        if not isinstance(content, list) or not all(isinstance(row, dict) for row in content):
            raise DataError(f"{path} holds no list of objects: write one object for each row")
        return _of_objects(str(path), content)
    if suffix in OBJECTS:
        return _of_objects(str(path), list(json_lines(path)), first_line=1)
    raise DataError(
        f"{path} is not a supported table: name a file that ends in .csv, .tsv, .jsonl or "
        ".parquet, or a folder of runs"
    )


def table_of_rows(name: str, table: Any) -> RunTable:
    """Return the table of a DataFrame or a list of mappings; raise DataError for other rows."""
    index = [*getattr(getattr(table, "index", None), "names", ())]
    if index and None not in index and not set(index) & {*table.columns}:
        table = table.reset_index()  # named index levels of a DataFrame become columns
    rows = table_rows(table)
    if rows is None:
        raise DataError(
            f"{name} has rows that are not mappings: give each row as a mapping of column names "
            "to cells"
        )
    return _of_objects(name, [plain(row) for row in rows])


def json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the objects of a JSON lines file; raise DataError with the line of any other."""
    for line, content in enumerate(_text(path).rstrip().split("\n"), 1):  # strings may hold U+2028
        row = _json(content, path, line)
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {line} is not a JSON object: write one object per line")
        yield row


def is_empty(cell: Any) -> bool:
    """Return whether a cell is empty."""
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _number(cell: Any) -> float | None:
    """Return a cell's number: NaN if empty, 1 and 0 for Booleans; None for a text."""
    if is_empty(cell):
        return math.nan
    if isinstance(cell, str) and (truth := _TRUTHS.get(cell.strip().lower())) is not None:
        return truth
    try:
        # Only Python reads 1_000 as a number.
        return None if isinstance(cell, str) and "_" in cell else float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def _is_hashable(cell: Any) -> bool:
    try:
        hash(cell)
    except TypeError:
        return False
    return True


def _name(value: Any) -> str:
    """Write a cell as a name; 3.0 becomes 3."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = "" if value is None else str(value).strip()
    return text.partition(".")[0] if _WHOLE.fullmatch(text) else text


def _text(path: Path) -> str:
    data = unpacked(path)
    decoded(path, 1, data.partition(b"\n")[0])  # raises for another encoding
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return decoded(path, line, data.split(b"\n")[line - 1])


def _json(text: str, path: Path, line: int | None = None) -> Any:
    """Parse a JSON file, or a line of one; errors of a file have line and column."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        where, reason = f"{path}", str(error)
        if line is not None:
            where, reason = f"{path}, line {line}", getattr(error, "msg", reason)
        raise DataError(f"{where} is not valid JSON ({reason}): write it again") from None


def _delimited(path: Path, suffix: str) -> RunTable:
    """Read a CSV or TSV file, divided by semicolons if its first line has no comma."""
    text = _text(path).replace("\r\n", "\n")
    first = text.partition("\n")[0]
    delimiter = "\t" if suffix == ".tsv" or ("\t" in first and "," not in first) else ","
    if "," not in first and ";" in first:
        delimiter = ";"
    csv.field_size_limit(_LONGEST_CELL)
    try:
        # The garbage collector does not track tuples of texts.
        rows = [*map(tuple, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))]
    except csv.Error as error:
        raise DataError(f"{path} is not a valid CSV file ({error}): write it again") from None
    while rows and not rows[-1]:
        rows.pop()
    if not any(cell.strip() for row in rows for cell in row):
        raise DataError(f"{path} is empty: give a table with a row for each value")
    header = [cell.strip() for cell in rows[0]]
    if not any(header):
        raise DataError(f"{path} begins with an empty line: begin with the names of the columns")
    has_header = any(_number(cell) is None or is_empty(cell) for cell in header)
    places = range(1, len(header) + 1)
    names = list(map(str, places))
    if has_header:
        names = [name or f"column {number}" for number, name in zip(places, header, strict=True)]
    sizes = list(map(len, rows))
    if {*sizes} != {len(names)}:
        line, size = next((n, size) for n, size in enumerate(sizes, 1) if size != len(names))
        raise DataError(
            f"{path}, line {line}: it has {count(size, 'cell')}, and the table has "
            f"{count(len(names), 'column')}: write a cell per column, empty if it has no value"
        )
    cells = [list(map(itemgetter(n), rows[has_header:])) for n in range(len(names))]
    first_line = 1 + has_header
    return table_of(str(path), names, cells, first_line=first_line, has_header=has_header)


def _of_objects(
    name: str, rows: Sequence[Mapping[str, Any]], first_line: int | None = None
) -> RunTable:
    names = list(dict.fromkeys(str(key) for row in rows for key in row))
    cells = [[row.get(column) for row in rows] for column in names]
    return table_of(name, names, cells, first_line=first_line)
