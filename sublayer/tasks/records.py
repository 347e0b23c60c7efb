"""Files of records with named fields: JSON lines, CSV, TSV, Parquet and Excel."""

import csv
import re
import shlex
import warnings
import zipfile
import zlib
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from sublayer.errors import DataError, extra_module, nearest_hint
from sublayer.files.lines import (
    decoded,
    held_lines,
    parquet_file,
    python_value,
    read_lines,
    read_start,
    suffix_of,
)
from sublayer.files.parsing import parse_json
from sublayer.files.storage import as_typed
from sublayer.system.machine import total_memory


def read_tsv(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield the number of each line of a file, from 1, and its fields.

    Lines end with LF or CRLF, the last with or without one.

    A byte order mark is dropped; the file may be compressed, by its suffix. Raises DataError where
    it cannot be read, or is not UTF-8.
    """
    # str.splitlines would also split at Unicode line separators inside a text.
    for number, data in read_lines(path):
        line = decoded(path, number, data)
        yield number, line.removesuffix("\n").removesuffix("\r").split("\t")


_T = TypeVar("_T")
_LONGEST_FIELD = 16 << 20
_PARQUET_ROWS = 64
"""Rows read at a time: with a book in each they take a few dozen megabytes at most."""
_SHOWN_NAMES = 16
_DELIMITERS = (",", ";", "\t", "|")
_BEGINNING = 64
_SEPARATOR = re.compile(r"sep=([^\w\s])", re.IGNORECASE)
WEB_PAGE = (b"<!doctype html", b"<html")
"""Beginnings of web pages, in lower case."""
_LONGEST_NAME, _MOST_SPACES = 40, 3
"""Most characters and most spaces of a column name; a longer one looks like a value."""


@dataclass(frozen=True, slots=True)
class Record:
    """A row of a file, or an object nested in one, with its values by name.

    Reading a value that is missing, null or of another type raises DataError, with the place.
    """

    path: Path | str
    """The file, or the name of the place in messages."""
    line: int
    """Line where it begins, from 1; row number in Parquet and in a list of JSON. 0: the whole file.
    """
    values: Mapping[str, Any]
    """Texts; in JSON and Parquet also numbers, booleans, None, lists and objects."""
    problem: str = ""
    """Why it does not fit the file's columns, such as ``fewer than 5 fields``; empty: it fits."""
    within: str = ""
    """Place of a nested object in its row, such as ``passage.questions[2]``; empty: the row itself.
    """

    @property
    def place(self) -> str:
        """Return file and line, as messages name them."""
        return f"{self._row}: {self.within}" if self.within else self._row

    @property
    def _row(self) -> str:
        return f"{self.path}:{self.line}" if self.line else str(self.path)

    def has(self, name: str) -> bool:
        """Return whether a value is there, and not null."""
        return self.values.get(name) is not None

    def value(self, name: str) -> Any:
        """Return a value of any type."""
        if not self.has(name):
            raise DataError(
                f"{self.place} has no {name}: it has {named(list(filter(self.has, self.values)))}"
            )
        return self.values[name]

    def text(self, name: str) -> str:
        """Return a text."""
        return self._typed(name, str, "a text: write it as one")

    def whole(self, name: str) -> int:
        """Return a whole number, or a text of one."""
        value = self.value(name)
        if isinstance(value, str) and value.strip().isdecimal():
            return int(value)
        if isinstance(value, float) and value.is_integer():
            return int(value)
        return self._typed(name, int, "a whole number")

    def inner(self, name: str) -> "Record":
        """Return an object."""
        values: dict[str, Any] = self._typed(name, dict, "an object")
        return replace(self, values=values, within=self._path(name))

    def each(self, name: str) -> "list[Record]":
        """Return the objects of a list."""
        objects = self._listed(name, dict, "an object")
        path = self._path(name)
        return [replace(self, values=v, within=f"{path}[{n}]") for n, v in enumerate(objects)]

    def texts(self, name: str) -> tuple[str, ...]:
        """Return the texts of a list."""
        return tuple(self._listed(name, str, "a text"))

    def wholes(self, name: str) -> tuple[int, ...]:
        """Return the whole numbers of a list."""
        return tuple(self._listed(name, int, "a whole number"))

    def lists(self, name: str) -> list[tuple[str, ...]]:
        """Return the lists of texts of a list."""
        listed = self._listed(name, list, "a list")
        inner = replace(self, values={f"{name}[{n}]": value for n, value in enumerate(listed)})
        return [inner.texts(key) for key in inner.values]

    def _listed(self, name: str, kind: type[_T], words: str) -> list[_T]:
        values: list[_T] = self._typed(name, list, "a list")
        for index, value in enumerate(values):
            self._check(f"{name}[{index}]", value, kind, words)
        return values

    def _typed(self, name: str, kind: type[_T], words: str) -> _T:
        value: _T = self.value(name)
        self._check(name, value, kind, words)
        return value

    def _check(self, name: str, value: object, kind: type, words: str) -> None:
        if not isinstance(value, kind) or isinstance(value, bool):
            is_ = "null" if value is None else type(value).__name__
            raise DataError(f"{self._row}: {self._path(name)} is {is_}, not {words}")

    def _path(self, name: str) -> str:
        return f"{self.within}.{name}" if self.within else name


def read_records(path: Path, kind: str = "") -> Iterator[Record]:
    """Read the rows of a file, by its suffix; JSON lines, CSV and TSV may be compressed.

    ``kind`` is the suffix to read the file by, instead of its own.

    JSON is one object a line, a list of objects, or an object with such a list as a member. CSV has
    a header, and may be quoted; TSV has a header, and quotes in it are plain text. Blank lines are
    skipped.

    Raises DataError, with the line where known, where the file cannot be read or does not match its
    kind.
    """
    reader = _READERS.get(kind or suffix_of(path))
    if reader is None:
        raise DataError(f"{path} is of an unknown kind: save it as {', '.join(_READERS)}")
    start = read_start(path, _BEGINNING) if path.is_file() else b""
    if start.removeprefix(BOM_UTF8).lstrip().lower().startswith(WEB_PAGE):
        raise DataError(
            f"{path} is a web page, not a table: download the file itself, on GitHub by Raw"
        )
    return reader(path)


def whole_rows(records: Iterable[Record]) -> Iterator[Record]:
    """Yield records; raise DataError, with the place, at a row with too many or too few fields."""
    for record in records:
        if record.problem:
            raise DataError(f"{record.place} has {record.problem}: correct the row, or remove it")
        yield record


def begins_with(path: Path, mark: bytes) -> bool:
    """Return whether a file begins, after white space, with ``{`` or ``[``, as JSON does.

    Raises DataError where it cannot be read.
    """
    return read_start(path, _BEGINNING).removeprefix(BOM_UTF8).lstrip().startswith(mark)


def read_tsv_records(
    path: Path,
    without_header: Sequence[str] = (),
    is_header: Callable[[Sequence[str]], bool] = lambda cells: True,
) -> Iterator[Record]:
    """Read the rows of TSV: quotes are plain text, and empty lines are skipped.

    ``without_header`` names the columns where ``is_header`` rejects the first line. Raises as
    ``read_records`` does.
    """
    names: list[str] = []
    for line, cells in read_tsv(path):
        if not names:
            header = [name.strip() for name in cells]
            if not without_header or is_header(header):
                names = _columns(path, header)
                continue
            names = list(without_header)
        if cells != [""]:
            yield _row(path, line, names, cells)
    if not names:
        raise DataError(f"{path} is empty")


def named(names: Sequence[str] | Mapping[str, Any]) -> str:
    """List names for a message, the first few of them."""
    listed = list(names)
    if not listed:
        return "none"
    rest = ", ..." if len(listed) > _SHOWN_NAMES else ""
    return ", ".join(listed[:_SHOWN_NAMES]) + rest


def _json(path: Path) -> Iterator[Record]:
    is_first = True
    for line, data in held_lines(path):
        if is_first and data.strip():
            is_first = False
            if decoded(path, line, data).lstrip().startswith("["):
                yield from _json_list(path)
                return
        text = decoded(path, line, data)
        if text.strip():
            where = f"{path}:{line}"
            try:
                value = parse_json(text, where, DataError)
            except DataError:
                if text.lstrip().startswith("{") and text.rstrip().endswith(("{", "[", ",")):
                    yield from _json_list(path)
                    return
                raise
            if line == 1 and _holds_columns(value):
                raise _columns_of_json(path)
            yield _object(path, line, value)


def _json_list(path: Path) -> Iterator[Record]:
    """Read a file of one JSON value: a list of objects, or an object with one such list as a
    member."""
    whole = b"".join(data for _, data in held_lines(path))
    try:
        value = parse_json(whole, str(path), DataError)
    except DataError as error:
        if "Extra data" not in str(error):
            raise
        raise DataError(
            f"{path} has JSON objects that span several lines, not one object a line: "
            f"`jq -c . {shlex.quote(as_typed(str(path)))} > "
            f"{shlex.quote(f'lines-{path.stem}.jsonl')}` converts it"
        ) from None
    if isinstance(value, dict):
        lists = [member for member in value.values() if isinstance(member, list)]
        rows = [array for array in lists if array and all(isinstance(row, dict) for row in array)]
        if _holds_columns(value):
            raise _columns_of_json(path)
        value = rows[0] if len(rows) == 1 else [value]
    for row, record in enumerate(value, start=1):
        yield _object(path, row, record)


def _holds_columns(value: Any) -> bool:
    """Return whether a JSON object holds a table by columns, as pandas writes it by default."""
    if not isinstance(value, dict) or not value:
        return False
    if value.keys() >= {"columns", "data"}:
        return True
    keys = {tuple(column) if isinstance(column, dict) else () for column in value.values()}
    numbers = next(iter(keys))
    return len(keys) == 1 and bool(numbers) and all(map(str.isdecimal, numbers))


def _columns_of_json(path: Path) -> DataError:
    return DataError(
        f"{path} holds a table by columns, as pandas' to_json writes it by default, not by rows: "
        "write it with to_json(path, orient='records', lines=True)"
    )


def _object(path: Path, line: int, value: object) -> Record:
    if not isinstance(value, dict):
        raise DataError(f"{path}:{line} is {type(value).__name__}, not a JSON object")
    return Record(path, line, value)


def read_csv(path: Path, delimiter: str = "") -> Iterator[Record]:
    """Read the rows of CSV: fields may be quoted, with quotes inside them doubled.

    Without ``delimiter`` it is the one among comma, semicolon, tab and bar that splits the header
    into most columns, or the one that Excel's line ``sep=;`` before the header names. Raises as
    ``read_records`` does.
    """
    lines = (decoded(path, line, data) for line, data in held_lines(path))
    header = next(lines, "")
    names: list[str] = []
    n_before = 0
    if _SEPARATOR.fullmatch(header.rstrip()):
        delimiter = delimiter or _delimiter(header)
        header, n_before = next(lines, ""), 1
    if not header.strip():
        raise DataError(
            f"{path} is empty, or its first line is: begin it with a line of column names"
        )
    csv.field_size_limit(_LONGEST_FIELD)
    first = iter([header])
    rows = csv.reader(
        (line for part in (first, lines) for line in part),
        delimiter=delimiter or _delimiter(header),
        strict=True,
    )
    begins = 1 + n_before
    while True:
        try:
            row = next(rows, None)
        except csv.Error as error:
            problem = str(error)
            remedy = "quote a field that holds quotes, and double the quotes in it"
            if problem.startswith("new-line character"):
                problem = "a carriage return alone"
                name = shlex.quote(as_typed(str(path)))
                remedy = (
                    "end lines with a line feed, and quote a field that holds line breaks; "
                    f"`tr '\\r' '\\n' < {name} > {shlex.quote(f'lines-{path.name}')}` "
                    "converts the line ends"
                )
            raise DataError(f"{path}:{begins} is not CSV ({problem}): {remedy}") from None
        if row is None:
            return
        if not names:
            names = _columns(path, [name.strip() for name in row])
        elif row:
            yield _row(path, begins, names, row)
        begins = rows.line_num + 1 + n_before


def delimiter_of(path: Path) -> str:
    """Return the delimiter of a CSV file, from its header."""
    line, data = next(read_lines(path), (1, b""))
    return _delimiter(decoded(path, line, data))


def _delimiter(header: str) -> str:
    if match := _SEPARATOR.fullmatch(header.rstrip()):
        return match[1]

    def n_columns(delimiter: str) -> int:
        try:
            return len(next(csv.reader([header], delimiter=delimiter)))
        except csv.Error:
            # The reader of the rows reports the fault and its place.
            return 0

    return max(_DELIMITERS, key=n_columns)


def missing_column(
    where: Path | str, aliases: Sequence[str], there: Iterable[str], others: Sequence[str] = ()
) -> DataError:
    """Build the error for rows that lack a column, under any of its ``aliases`` names.

    It lists the existing columns and the nearest name. Where these names look like the values of a
    first row, it shows the command that puts a header before the rows, with the column that is
    missing and ``others``.
    """
    names = list(there)
    wanted = " or ".join(map(repr, aliases))
    message = (
        f"{where} has no column {wanted}: it has {named(names)}{nearest_hint(aliases[0], names)}"
    )
    is_table = isinstance(where, Path) and suffix_of(where) in (".csv", ".tsv")
    looks_like_values = any(
        len(name) > _LONGEST_NAME
        or name.count(" ") > _MOST_SPACES
        or name.strip().replace(".", "", 1).removeprefix("-").isdigit()
        for name in names
    )
    if is_table and looks_like_values:
        path = Path(where)
        mark = "," if suffix_of(path) == ".csv" else "\\t"
        header_names = [aliases[0], *others][: len(names)]
        header = mark.join(
            header_names + [f"column{n}" for n in range(len(header_names) + 1, len(names) + 1)]
        )
        message += (
            "; if its first row is not a header, put one before it, as in "
            f"`(printf '{header}\\n'; cat {shlex.quote(as_typed(str(path)))}) > "
            f"{shlex.quote(f'with-header-{path.name}')}`"
        )
    return DataError(message)


def _columns(path: Path, names: list[str]) -> list[str]:
    if names.count("") > 1:
        # Excel exports empty columns this way.
        names = [name or f"column {number}" for number, name in enumerate(names, 1)]
    _check_once(path, names)
    return names


def _check_once(path: Path, names: Sequence[str]) -> None:
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataError(f"{path} has several columns {', '.join(map(repr, twice))}: rename them")


def _row(path: Path, line: int, names: Sequence[str], cells: Sequence[str]) -> Record:
    problem = ""
    if len(cells) != len(names):
        more = "fewer" if len(cells) < len(names) else "more"
        problem = f"{more} than {len(names)} fields"
    return Record(path, line, dict(zip(names, cells, strict=False)), problem)


def read_parquet(path: Path, *choices: tuple[str, ...]) -> Iterator[Record]:
    """Read the rows of a Parquet file: the first choice of columns that are all there, else all.

    Where choices are given and none is complete, columns with a duplicate name are left out.

    Raises DataError where the file is damaged, with the row, or where a column that is read occurs
    twice.
    """
    with parquet_file(path) as file:
        there = list(file.schema_arrow.names)
        chosen = next((names for names in choices if set(names) <= set(there)), ())
        once = [name for name in there if choices and there.count(name) == 1]
        names = list(chosen) or once or there
        _check_once(path, [name for name in there if name in names])
        row = 0
        for batch in file.iter_batches(batch_size=_PARQUET_ROWS, columns=names):
            columns = [_values(batch.column(name), path, row) for name in names]
            for values in zip(*columns, strict=True):
                row += 1
                yield Record(path, row, dict(zip(names, values, strict=True)))


def _values(column: Any, path: Path, before: int) -> list[Any]:
    try:
        return list(column.to_pylist())
    except UnicodeDecodeError:
        # The values are decoded one by one, so that the error names the row.
        return [python_value(value, path, row) for row, value in enumerate(column, before + 1)]


@contextmanager
def _workbook(path: Path) -> Iterator[Any]:
    """Open a workbook; raise DataError where openpyxl is missing, or the file is damaged."""
    library = extra_module("openpyxl", "tables of Excel", "xlsx")
    most = (total_memory() or 8 << 30) // 2
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(member.file_size for member in archive.infolist()) > most:
                raise DataError(f"{path} is larger than half of the memory here: save it as .csv")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about styles, which are not read
            with closing(library.load_workbook(path, read_only=True, data_only=True)) as workbook:
                yield workbook
    except _NO_WORKBOOK as error:
        reason = (str(error) or type(error).__name__).splitlines()[0][:200]
        raise DataError(
            f"{path} is not a complete .xlsx file ({reason}): save it again, or as .csv"
        ) from error
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror or error}") from error


def _filled(sheet: Any) -> Iterator[tuple[int, list[str]]]:
    for row, values in enumerate(sheet.iter_rows(values_only=True), start=1):
        cells = [_cell(value) for value in values]
        while cells and not cells[-1]:
            cells.pop()
        if cells:
            yield row, cells


def _cell(value: Any) -> str:
    """Return a cell as text as in CSV: whole numbers without a decimal point, dates as ISO 8601."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float) and value.is_integer() and abs(value) < 1 << 53:
        return str(int(value))
    if hasattr(value, "isoformat"):
        return str(value.isoformat()).removesuffix("T00:00:00")
    return str(value)


def read_xlsx(path: Path) -> Iterator[Record]:
    """Read the rows of a workbook's first sheet that has any; every cell becomes text.

    Raises as ``read_records`` does.
    """
    with _workbook(path) as workbook:
        for sheet in workbook.worksheets:
            names: list[str] = []
            for row, cells in _filled(sheet):
                if not names:
                    names = _columns(path, [name.strip() for name in cells])
                    continue
                # Some programs drop empty cells at the end of a row.
                yield _row(path, row, names, cells + [""] * (len(names) - len(cells)))
            if names:
                return
    raise DataError(f"{path} has no sheet with rows")


def sheets_note(path: Path) -> str:
    """Return a note on the sheet that is read where several have rows; empty where one has."""
    with _workbook(path) as workbook:
        titles = [sheet.title for sheet in workbook.worksheets if any(True for _ in _filled(sheet))]
    if len(titles) < 2:
        return ""
    return f"{path}: reads the sheet {titles[0]!r}, not {named(titles[1:])}"


_NO_WORKBOOK = (
    *(zipfile.BadZipFile, KeyError, ValueError, TypeError, IndexError, AttributeError),
    *(SyntaxError, EOFError, NotImplementedError, RuntimeError, ArithmeticError, zlib.error),
)
"""Errors that openpyxl raises for damaged files; damaged XML is a SyntaxError."""
_READERS: dict[str, Callable[[Path], Iterator[Record]]] = {
    ".jsonl": _json,
    ".json": _json,
    ".ndjson": _json,
    ".csv": read_csv,
    ".tsv": read_tsv_records,
    ".parquet": read_parquet,
    ".xlsx": read_xlsx,
}
"""By the suffix of a file's name."""
