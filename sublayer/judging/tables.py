"""Tables of scores, read in chunks of columns: CSV, TSV, JSON lines, Parquet, DataFrames."""

import codecs
import csv
import gc
import io
import itertools
import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.counts import count
from sublayer.errors import DataError
from sublayer.files.lines import check_no_pointer, decoded, unpacked
from sublayer.values import plain, table_rows

Cells = Sequence[Any] | NDArray[Any]
"""Some rows of a column: texts or bytes of a CSV, Python's values or numbers of other tables."""
TEXT_TABLES = (".csv", ".tsv", ".txt")
OBJECT_TABLES = (".jsonl", ".ndjson", ".json")
_PARQUET = ".parquet"
_CHUNK_ROWS = 5_000
_CHUNK_CELLS = 200_000
_HEAD_ROWS = 200
"""Rows by which the kinds of a table's columns are told."""
_OWN_NAMES = ("kind", "arm", "baseline", "seed")
"""The first columns of a table that ``compare --table`` and ``judge --table`` write."""
_SHOWN = 40
_LONGEST_CELL = 1 << 24
_MANY_COLUMNS = 64
"""Of more, all cells of some rows are cut at once."""
_LONGEST_GATHERED = 128
"""Bytes of a cell; columns of longer ones are cut cell by cell."""
_HEADER_BYTES = 1 << 22
_TRUTHS = {"true": 1.0, "false": 0.0}
_UNNAMED = re.compile(r"column \d+|Unnamed: \d+|__index_level_\d+__")
_WHOLE = re.compile(r"-?\d+\.0*")


@dataclass(frozen=True)
class Coded:
    """Names of rows, such as their seeds: each row's place in the list of names."""

    codes: NDArray[np.int64]
    """``[R]``."""
    names: tuple[str, ...]


@dataclass(frozen=True)
class Loaded:
    """The columns of a table that were asked for."""

    coded: Mapping[str, Coded]
    numbers: Mapping[str, NDArray[np.float64]]
    """``[R]``; NaN where a cell is empty."""
    empty: Mapping[str, Sequence[int]]
    """The rows of the empty cells of each column of numbers that has any."""


class Table:
    """A table whose columns are read once their roles are known.

    ``chunks`` yields rows as columns, in the order of ``names``, each time from the first row on.
    """

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        chunks: Callable[[], Iterator[Sequence[Cells]]],
        *,
        first_line: int | None = None,
        has_header: bool = True,
    ) -> None:
        twice = next((each for each, times in Counter(names).items() if times > 1), None)
        if twice is not None:
            raise DataError(f"{name} has several columns {twice!r}: rename all but one")
        self.name = name
        self.names = tuple(names)
        self._places = {each: place for place, each in enumerate(names)}
        self.has_header = has_header
        self._chunks = chunks
        self._first_line = first_line
        head = next(chunks(), None)
        if head is None or not len(head) or not len(head[0]):
            raise DataError(f"{name} has no row: give a table with a row for each value")
        self._head = head
        self.n_head = min(_HEAD_ROWS, len(head[0]))
        """The number of its first rows, by which columns are told apart."""

    def of_runs(self) -> "Table":
        """Return the table without the rows of differences that ``compare --table`` writes last.

        Raises DataError where there are no others.
        """
        if self.names[: len(_OWN_NAMES)] != _OWN_NAMES:
            return self
        kinds_of_all = {kind for chunk in self._chunks() for kind in _shown(chunk[0])}
        if "difference" not in kinds_of_all:
            return self
        if kinds_of_all == {"difference"}:
            raise DataError(f"{self.name} has rows of differences alone: give it those of runs")

        def chunks() -> Iterator[Sequence[Cells]]:
            for chunk in self._chunks():
                kinds = _shown(chunk[0])
                kept = [row for row, kind in enumerate(kinds) if kind != "difference"]
                if len(kept) == len(kinds):
                    yield chunk
                elif kept:
                    yield [[cells[row] for row in kept] for cells in map(_shown, chunk)]

        header = self.has_header
        return Table(self.name, self.names, chunks, first_line=self._first_line, has_header=header)

    def place(self, row: int, column: str = "") -> str:
        """Return where a row is, from 0, and a column, for an error."""
        line = f"row {row}" if self._first_line is None else f"line {row + self._first_line}"
        return f"{self.name}, {line}" + (f", column {column}" if column else "")

    def is_number(self, column: str) -> bool:
        """Return whether the first rows of a column are numbers, most of those that are filled."""
        cells = self._head[self._places[column]][:_HEAD_ROWS]
        if isinstance(cells, np.ndarray):
            with suppress(ValueError):
                return bool(cells.astype(np.float64).size)
        found = [_number(cell) for cell in _shown(cells) if not _is_empty(cell)]
        return 2 * sum(each is not None for each in found) > len(found)

    def is_unnamed(self, column: str) -> bool:
        """Return whether a column has no heading of its own, as the row numbers of pandas."""
        return self.has_header and bool(_UNNAMED.fullmatch(column))

    def load(self, coded: Sequence[str], numbers: Sequence[str]) -> Loaded:
        """Read columns as names and as numbers; raise DataError for a text that is no number."""
        places = self._places
        codes: dict[str, list[NDArray[np.int64]]] = {column: [] for column in coded}
        seen = {column: _counted() for column in coded}
        values: dict[str, list[NDArray[np.float64]]] = {column: [] for column in numbers}
        empty: dict[str, list[int]] = {}
        start = 0
        for chunk in _without_collecting(self._chunks()):
            n_rows = len(chunk[0])
            for column in coded:
                code = seen[column].__getitem__
                cells = chunk[places[column]]
                try:
                    listed = cells.tolist() if isinstance(cells, np.ndarray) else cells
                    codes[column].append(np.fromiter(map(code, listed), np.int64, n_rows))
                except TypeError:
                    raise DataError(
                        f"{self.place(start, column)}: a list or an object is no name: choose "
                        "another column"
                    ) from None
            for column in numbers:
                cells = chunk[places[column]]
                found, without = self._numbers(cells, start, column)
                values[column].append(found)
                if without:
                    empty.setdefault(column, []).extend(without)
            start += n_rows
        return Loaded(
            {
                column: _coded(np.concatenate(codes[column]), tuple(seen[column]))
                for column in coded
            },
            {column: np.concatenate(values[column]) for column in numbers},
            empty,
        )

    def _numbers(
        self, cells: Cells, start: int, column: str
    ) -> tuple[NDArray[np.float64], list[int]]:
        try:
            if isinstance(cells, np.ndarray):
                found = cells.astype(np.float64)
                joined = cells.tobytes() if cells.dtype.kind == "S" else b""
            else:
                found = np.fromiter(map(float, cells), np.float64, len(cells))
                joined = "".join(each for each in cells if isinstance(each, str)).encode()
            if b"_" not in joined:  # to Python 1_000 is a number, to nobody else
                return found, []
        except (TypeError, ValueError, OverflowError):
            pass
        cells = _shown(cells)
        each_found = [_number(cell) for cell in cells]
        wrong = next((row for row, each in enumerate(each_found) if each is None), None)
        if wrong is not None:
            text = str(cells[wrong])
            remedy = "write numbers with a decimal point, and nan for a run that failed"
            if re.fullmatch(r"-?\d+(,\d+|[.,]?\d* ?%)", text.strip()):
                remedy = f"write {text.replace(',', '.').strip(' %')}"
            raise DataError(
                f"{self.place(start + wrong, column)}: {text[:_SHOWN]!r} is no number: {remedy}"
            )
        without = [start + row for row, cell in enumerate(cells) if _is_empty(cell)]
        return np.array(each_found, dtype=np.float64), without


def read_table(path: Path) -> Table:
    """Open a table by its suffix, packed (.gz and the like) or not.

    Raises DataError for another suffix, a damaged file, and without pyarrow for Parquet.
    """
    suffix = next((each for each in reversed(path.suffixes) if _is_table(each)), "")
    if suffix.lower() in TEXT_TABLES:
        return _delimited(path, suffix.lower())
    if suffix.lower() in OBJECT_TABLES:
        return _objects(path, suffix.lower())
    if suffix.lower() == _PARQUET:
        return _parquet(path)
    raise DataError(
        f"{path} is no table that is read: name a file that ends in .csv, .tsv, .jsonl or "
        ".parquet, or a folder of runs"
    )


def table_of_rows(name: str, table: Any) -> Table | None:
    """Return the table of a DataFrame or of a list of mappings; None for anything else."""
    index = [*getattr(getattr(table, "index", None), "names", ())]
    if index and None not in index and not set(index) & {*table.columns}:
        table = table.reset_index()  # a DataFrame's index that has names is columns of it
    rows = table_rows(table)
    if rows is None:
        return None
    return _of_objects(name, [plain(row) for row in rows], first_line=None)


def _without_collecting(chunks: Iterator[Sequence[Cells]]) -> Iterator[Sequence[Cells]]:
    """Yield chunks without looking for circles of objects: of millions of cells that takes most."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield from chunks
    finally:
        if was_enabled:
            gc.enable()


def _is_table(suffix: str) -> bool:
    return suffix.lower() in (*TEXT_TABLES, *OBJECT_TABLES, _PARQUET)


def _number(cell: Any) -> float | None:
    """Return a cell's number: NaN of an empty one, 1 and 0 of truths; None where it is a text."""
    if _is_empty(cell):
        return math.nan
    if isinstance(cell, str):
        text = cell.strip().lower()
        if text in _TRUTHS:
            return _TRUTHS[text]
        if "_" in text:
            return None
    try:
        return float(cell)
    except (TypeError, ValueError, OverflowError):
        return None


def _is_empty(cell: Any) -> bool:
    return cell is None or (isinstance(cell, str) and not cell.strip())


def _counted() -> defaultdict[Any, int]:
    return defaultdict(itertools.count().__next__)


def _coded(codes: NDArray[np.int64], names: Sequence[Any]) -> Coded:
    """Name rows by texts, in which 3.0 is 3; names that become one are one."""
    texts = [_name(each) for each in names]
    merged = tuple(dict.fromkeys(texts))
    if len(merged) < len(texts) or not codes.size:
        place = {name: index for index, name in enumerate(merged)}
        codes = np.array([place[text] for text in texts], dtype=np.int64)[codes]
    return Coded(codes, merged)


def _shown(cells: Cells) -> Cells:
    """Return cells as texts where they are bytes."""
    listed = cells.tolist() if isinstance(cells, np.ndarray) else cells
    return [each.decode("utf-8", "replace") if isinstance(each, bytes) else each for each in listed]


def _name(value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    text = "" if value is None else str(value).strip()
    return text.partition(".")[0] if _WHOLE.fullmatch(text) else text


def _delimited(path: Path, suffix: str) -> Table:
    """Open a CSV or TSV file; semicolons divide where its first line has no comma."""
    data = unpacked(path)
    check_no_pointer(path, data[:64])
    data = data.removeprefix(codecs.BOM_UTF8).replace(b"\r\n", b"\n")
    start = data[:_HEADER_BYTES].partition(b"\n")[0]
    first = decoded(path, 1, start)
    delimiter = "\t" if suffix == ".tsv" or ("\t" in first and "," not in first) else ","
    if "," not in first and ";" in first:
        delimiter = ";"
    if not data.strip():
        raise DataError(f"{path} is empty: give a table with a row for each value")
    header = next(_csv_rows(path, first, delimiter), [])
    if not any(cell.strip() for cell in header):
        raise DataError(f"{path} begins with an empty line: begin with the names of the columns")
    has_header = any(_number(cell) is None or _is_empty(cell) for cell in header)
    names = [cell.strip() for cell in header] if has_header else _numbered(len(header))
    names = [name or f"column {place}" for place, name in enumerate(names, 1)]
    body = data[len(start) + 1 :] if has_header else data
    if body and not body.endswith(b"\n"):
        body += b"\n"
    if not data.isascii():
        _text(path, data)  # raises where it is not UTF-8
    ends = None if b'"' in data else _ends(body, delimiter, len(names))
    text = "" if ends is not None else _text(path, data)

    def chunks() -> Iterator[Sequence[Cells]]:
        if ends is not None:
            n_rows = max(1, _CHUNK_CELLS // len(names))
            for begin in range(0, len(ends), n_rows):
                yield _ByteColumns(body, ends, begin, begin + n_rows)
            return
        rows = _csv_rows(path, text, delimiter)
        if has_header:
            next(rows)
        line = 1 if has_header else 0
        while chunk := list(itertools.islice(rows, _CHUNK_ROWS)):
            if set(map(len, chunk)) != {len(names)}:
                _check_widths(chunk, len(names), path, line)
                chunk = [row for row in chunk if row]
            line += len(chunk)
            if chunk:
                yield list(zip(*chunk, strict=True))

    first_line = 2 if has_header else 1
    return Table(str(path), names, chunks, first_line=first_line, has_header=has_header)


def _csv_rows(path: Path, text: str, delimiter: str) -> Iterator[list[str]]:
    csv.field_size_limit(_LONGEST_CELL)
    try:
        yield from csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    except csv.Error as error:
        raise DataError(f"{path} is no CSV file ({error}): write it again") from None


def _ends(body: bytes, delimiter: str, n_columns: int) -> NDArray[np.int64] | None:
    """Return where the cells of lines without quotes end, ``[R, C]``; None: not all are as long."""
    characters = np.frombuffer(body, dtype=np.uint8)
    is_line = characters == ord("\n")
    ends = np.flatnonzero((characters == ord(delimiter)) | is_line)
    if not ends.size or ends.size % n_columns or is_line.sum() != ends.size // n_columns:
        return None
    by_row = ends.reshape(-1, n_columns)
    return by_row if is_line[by_row[:, -1]].all() else None


class _ByteColumns(Sequence[Cells]):
    """Some rows of a text as columns of bytes, made on access."""

    def __init__(self, body: bytes, ends: NDArray[np.int64], begin: int, stop: int) -> None:
        self._characters = np.frombuffer(body, dtype=np.uint8)
        self._ends = ends[begin:stop]  # [R, C]
        before = ends[begin - 1, -1] if begin else -1
        row_starts = np.concatenate([[before], self._ends[:-1, -1]])
        self._starts = np.concatenate([row_starts[:, None], self._ends[:, :-1]], axis=1) + 1
        self._whole: NDArray[np.bytes_] | None = None
        if self._ends.shape[1] > _MANY_COLUMNS:
            longest = int((self._ends - self._starts).max())
            if longest <= _LONGEST_GATHERED:
                whole = self._gathered(self._starts.reshape(-1), self._ends.reshape(-1))
                self._whole = whole.reshape(self._ends.shape)

    def __len__(self) -> int:
        return int(self._ends.shape[1])

    def __getitem__(self, column: Any) -> Any:
        if self._whole is not None:
            return self._whole[:, column]
        starts, stops = self._starts[:, column], self._ends[:, column]
        if int((stops - starts).max()) > _LONGEST_GATHERED:
            pairs = zip(starts, stops, strict=True)
            return [self._characters[start:stop].tobytes() for start, stop in pairs]
        return self._gathered(starts, stops)

    def _gathered(self, starts: NDArray[np.int64], stops: NDArray[np.int64]) -> NDArray[np.bytes_]:
        """Return the characters from places to places, ``[N]``."""
        lengths = stops - starts
        longest = max(1, int(lengths.max()))
        offsets = np.arange(longest)
        places = np.minimum(starts[:, None] + offsets, len(self._characters) - 1)
        gathered = self._characters[places]  # [N, longest]
        gathered[offsets >= lengths[:, None]] = 0
        cells: NDArray[np.bytes_] = gathered.view(f"S{longest}").reshape(-1)
        return cells


def _text(path: Path, data: bytes) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        return decoded(path, line, data.split(b"\n")[line - 1])


def _read_text(path: Path) -> str:
    data = unpacked(path)
    check_no_pointer(path, data[:64])
    return _text(path, data)


def _numbered(n_columns: int) -> list[str]:
    return [str(place) for place in range(1, n_columns + 1)]


def _check_widths(rows: Sequence[Sequence[str]], n_columns: int, path: Path, line: int) -> None:
    """Raise DataError for a row that has more or fewer cells; empty lines stand at the end only."""
    for number, row in enumerate(rows, line + 1):
        is_last = number == line + len(rows) or not any(rows[number - line :])
        if (row and len(row) != n_columns) or (not row and not is_last):
            raise DataError(
                f"{path}, line {number}: it has {count(len(row), 'cell')}, and the table has "
                f"{count(n_columns, 'column')}: write a cell for each, empty where there is none"
            )


def _objects(path: Path, suffix: str) -> Table:
    """Open a file of JSON objects: one a line, or a list of them."""
    text = _read_text(path)
    if suffix == ".json":
        try:
            content = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{path} is no JSON ({error}): write it again") from None
        if not isinstance(content, list) or not all(isinstance(each, dict) for each in content):
            raise DataError(f"{path} holds no list of objects: write one object for each row")
        return _of_objects(str(path), content, first_line=None)
    rows = list(json_lines(path, text))
    return _of_objects(str(path), rows, first_line=1)


def json_lines(path: Path, text: str | None = None) -> Iterator[dict[str, Any]]:
    """Yield the objects of a file of JSON lines; raise DataError with the line of any other."""
    text = _read_text(path) if text is None else text
    for line, content in enumerate(text.rstrip().split("\n"), 1):  # strings may hold U+2028
        try:
            row = json.loads(content)
        except (ValueError, RecursionError) as error:
            reason = getattr(error, "msg", str(error))
            raise DataError(f"{path}, line {line} is no JSON ({reason}): write it again") from None
        if not isinstance(row, dict):
            raise DataError(f"{path}, line {line} is no JSON object: write one a line")
        yield row


def _of_objects(name: str, rows: Sequence[Mapping[str, Any]], first_line: int | None) -> Table:
    names = list(dict.fromkeys(str(key) for row in rows[:_HEAD_ROWS] for key in row))

    def chunks() -> Iterator[Sequence[Cells]]:
        for start in range(0, len(rows), _CHUNK_ROWS):
            part = rows[start : start + _CHUNK_ROWS]
            yield [[row.get(column) for row in part] for column in names]

    return Table(name, names, chunks, first_line=first_line)


def _parquet(path: Path) -> Table:
    from sublayer.files.lines import parquet_file

    with parquet_file(path) as file:
        names = list(file.schema_arrow.names)

    def chunks() -> Iterator[Sequence[Cells]]:
        with parquet_file(path) as file:
            for batch in file.iter_batches(batch_size=_CHUNK_ROWS * 10):
                yield [_arrow_cells(column) for column in batch.columns]

    return Table(str(path), names, chunks)


def _arrow_cells(column: Any) -> Cells:
    if not column.null_count:
        cells: NDArray[Any] = column.to_numpy(zero_copy_only=False)
        if cells.dtype.kind in "iuf":
            return cells
    return list(column.to_pylist())
