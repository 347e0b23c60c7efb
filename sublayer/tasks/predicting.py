"""Rows to predict, and their answers: found, read, named, and written as tables of every kind."""

import csv
import itertools
import json
import shlex
from codecs import getwriter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, get_args

from sublayer.errors import ConfigError, DataError, extra_module
from sublayer.files.lines import PACKED_TABLES, parquet_file
from sublayer.files.storage import as_typed, describe_absence, expanded
from sublayer.numbers import count
from sublayer.system.terminal import note
from sublayer.tasks.finding import unpacked_name
from sublayer.tasks.own_table import read_own
from sublayer.tasks.published import ReadSplit, is_blank
from sublayer.tasks.records import Record, begins_with, delimiter_of, missing_column, named
from sublayer.tasks.registry import ROWS, find_files, read_split, wording_of
from sublayer.tasks.task import Example, Prediction, Task
from sublayer.values import surrogate_problem

_DECIMALS = 6


@dataclass(frozen=True, slots=True)
class NamedPrediction:
    """A model's answer to a row."""

    label: str | float | None = None
    """The name of the class, the text of the choice, the number, the written text, or the span of
    the passage, empty for no answer. None: the written text is not an answer, or a text of the row
    is empty, and the row was not answered."""
    probabilities: Mapping[str, float] = field(default_factory=dict)
    """By the names of the labels, or of the choices; empty where the model gives none."""
    probability: float | None = None
    """Of the answer; of a span among the best spans. None where the model gives none."""
    choice: int | None = None
    """Number of the choice, from 0."""
    start: int | None = None
    """Start position of the span in its passage, in characters."""
    no_answer: float | None = None
    """Score of no answer where questions may be unanswerable; higher is likelier."""
    written: str | None = None
    """Text written by a text-to-text model."""
    is_answered: bool = True
    is_cut: bool = False
    """True where the row exceeds the model's context, and was cut."""

    def to_json(self) -> dict[str, Any]:
        """Return the known fields as JSON, ``prediction`` always among them."""
        probabilities = {name: _rounded(p) for name, p in self.probabilities.items()}
        values: dict[str, Any] = {
            "choice": self.choice,
            "start": self.start,
            "probability": _rounded(self.probability),
            "probabilities": probabilities or None,
            "no_answer": _rounded(self.no_answer),
            "written": self.written,
        }
        set_values = {name: value for name, value in values.items() if value is not None}
        return {"prediction": _rounded(self.label), **set_values}


UNANSWERED = NamedPrediction(is_answered=False)


def name_prediction(
    task: Task,
    example: Example,
    prediction: Prediction,
    choice_names: Sequence[str] = (),
    *,
    is_written: bool = False,
) -> NamedPrediction:
    """Name a prediction; ``choice_names`` are the names of the choices."""
    kind, text, label = task.kind, prediction.text, prediction.label
    probabilities = prediction.probabilities
    written = text if is_written else None
    if kind == "span":
        return NamedPrediction(
            label=text,
            probability=probabilities[0] if probabilities and text else None,
            start=prediction.start if text else None,
            no_answer=prediction.no_answer if task.has_unanswerable else None,
        )
    if kind in ("text", "number"):
        return NamedPrediction(text) if kind == "text" else NamedPrediction(label, written=written)
    index = None if label is None else int(label)
    names: Sequence[str] = task.labels
    words = task.labels
    if kind == "choice":
        # Missing choices have trailing probabilities of 0.
        numbered = [f"choice{number}" for number, _ in enumerate(example.choices, 1)]
        names, words = choice_names or numbered, example.choices
    return NamedPrediction(
        None if index is None else words[index],
        dict(zip(names, probabilities, strict=False)),
        probabilities[index] if probabilities and index is not None else None,
        choice=index if kind == "choice" else None,
        written=written,
    )


def _rounded(value: str | float | None) -> str | float | None:
    return round(value, _DECIMALS) if isinstance(value, float) else value


class AnswerColumns:
    """Added columns of a task's rows, distinct from ``there``, from ``NamedPrediction.to_json``.

    Each label, and each choice common to all rows, has a probability. ``is_written``: the model
    writes its answers, and gives no probabilities.
    """

    def __init__(
        self, task: Task, there: Sequence[str], choice_names: Sequence[str], *, is_written: bool
    ) -> None:
        names = ["prediction"]
        labels: Sequence[str] = ()
        if task.kind == "choice":
            names.append("choice")
        if task.kind == "span":
            names += ["start", *(["no_answer"] if task.has_unanswerable else [])]
        if not is_written and task.kind != "number":
            labels = task.labels if task.kind == "classes" else choice_names
            if not labels:
                names.append("probability")
        # For spans and texts the prediction is the written text itself.
        if is_written and task.kind not in ("span", "text"):
            names.append("written")
        taken = list(there)
        self._names: dict[str, str] = {}
        self._by_label: dict[str, str] = {}
        for name in names:
            self._names[name] = free_name(name, taken)
            taken.append(self._names[name])
        for label in labels:
            self._by_label[label] = free_name(f"p_{label}", taken)
            taken.append(self._by_label[label])

    @property
    def added(self) -> tuple[str, ...]:
        """Names of the columns, in order."""
        return (*self._names.values(), *self._by_label.values())

    def cells(self, named: NamedPrediction) -> dict[str, Any]:
        """Return a row's answer by column; None where missing."""
        values = named.to_json()
        probabilities = values.get("probabilities", {})
        cells = {column: values.get(name) for name, column in self._names.items()}
        for label, column in self._by_label.items():
            cells[column] = probabilities.get(label)
        return cells

    def object_of(self, row: Mapping[str, Any], named: NamedPrediction) -> dict[str, Any]:
        """Return a row and its answer as one object, with the probabilities nested in it."""
        names = {**self._names, "probabilities": free_name("probabilities", row)}
        return {**row, **{names.get(name, name): v for name, v in named.to_json().items()}}


def free_name(name: str, taken: Collection[str]) -> str:
    """Return a free name: the name itself, or the first with a number appended."""
    names = chain([name], (f"{name}_{number}" for number in itertools.count(2)))
    return next(candidate for candidate in names if candidate not in taken)


_LISTS = ("choices", "options")
"""Names of columns that hold all choices of a row, as a list."""
_MOST_CHOICES = 26


class ToldColumns(NamedTuple):
    """Columns named by the user; empty: matched by name."""

    text: str = ""
    text_pair: str = ""
    choices: tuple[str, ...] = ()


class RowColumns(NamedTuple):
    """Columns to read."""

    fields: Mapping[str, str]
    """Columns by the task's fields."""
    choices: tuple[str, ...] = ()
    """Columns of the choices, one each."""
    choice_list: str = ""
    """Column with the list of choices."""

    def example_of(
        self, task: Task, values: Mapping[str, Any], number: int, where: str
    ) -> Example | None:
        """Return a row as an unlabelled example; None where one of its texts is empty.

        Raises DataError for a value that is not a text, or not a number where one is needed.
        """
        fields = {}
        for name, column in self.fields.items():
            value = values.get(column)
            if is_blank(value):
                return None
            fields[name] = _text(value, column, where)
        choices = [values.get(name) for name in self.choices]
        if self.choice_list:
            listed: Any = values.get(self.choice_list)
            if not isinstance(listed, list | tuple) and not is_blank(listed):
                kind = type(listed).__name__
                raise DataError(f"{where}: {self.choice_list} is {kind}, not a list")
            choices = [] if is_blank(listed) else list(listed)
        if task.kind == "choice" and (not choices or any(is_blank(choice) for choice in choices)):
            return None
        row = Record(where, 0, values)
        return Example(
            id=str(number),
            fields=fields,
            choices=tuple(_text(choice, "choice", where) for choice in choices),
            is_labelled=False,
            extra={name: row.whole(name) for name in wording_of(task).numbers},
        )

    def asked_rows(self, task: Task, records: Iterator[Record]) -> "Iterator[AskedRow]":
        """Yield rows with their examples; raise DataError for a row with too many cells."""
        for number, record in enumerate(records):
            if record.problem.startswith("more"):
                raise DataError(
                    f"{record.place} has {record.problem}, so that an answer cannot be appended: "
                    "correct the row"
                )
            missing = [name for name in self.fields.values() if name not in record.values]
            if missing and not record.problem:
                record.value(missing[0])  # raises the error
            example = self.example_of(task, record.values, number, record.place)
            yield AskedRow(record.values, example, record.place)


def find_columns(
    task: Task,
    table_columns: Mapping[str, str | Sequence[str]],
    overrides: ToldColumns,
    there: Sequence[str] | Mapping[str, Any],
    where: Path | str,
) -> RowColumns:
    """Map input columns to task fields and choices, by name or by explicit option.

    ``table_columns`` are the columns of the table that the model was trained on, if any. Raises
    DataError for a missing column, with the existing ones and the nearest.
    """
    row = ROWS.get(task.name)
    names = {name: (name,) for name in task.fields} if row is None else dict(row.texts)
    for index, column in enumerate((overrides.text, overrides.text_pair)):
        if column and index < len(task.fields):
            names[task.fields[index]] = (column,)
        elif column:
            raise DataError(f"{task.title} has no second text: leave out --text-pair")
    fields = {name: _found(aliases, there, where) for name, aliases in names.items()}
    for name in wording_of(task).numbers:
        _found((name,), there, where)
    if task.kind != "choice":
        if overrides.choices:
            raise DataError(f"{task.title} has no choices: leave out --choices")
        return RowColumns(fields)
    columns = overrides.choices or tuple(table_columns.get("choices", ()))
    if columns:
        return RowColumns(fields, tuple(_found((name,), there, where) for name in columns))
    for name in _LISTS:
        if name in there:
            return RowColumns(fields, choice_list=name)
    numbered = [f"choice{number}" for number in range(1, _MOST_CHOICES + 1)]
    columns = tuple(name for name in numbered if name in there)
    if len(columns) < 2:
        raise DataError(
            f"{where} has no columns choice1, choice2 and so on, and no list of choices "
            f"({', '.join(_LISTS)}): name the columns of the choices (--choices) among "
            f"{named(there)}"
        )
    return RowColumns(fields, columns)


def _found(
    aliases: tuple[str, ...], there: Sequence[str] | Mapping[str, Any], where: Path | str
) -> str:
    for name in aliases:
        if name in there:
            return name
    raise missing_column(where, aliases, there)


def _text(value: Any, column: str, where: str) -> str:
    if not isinstance(value, str):
        raise DataError(
            f"{where}: {column} is {type(value).__name__}, not a text: write it as text"
        )
    if problem := surrogate_problem(value):
        raise DataError(f"{where}: {column} {problem}")
    return value


FileKind = Literal["csv", "tsv", "jsonl", "json", "parquet", "xlsx"]
_KINDS: dict[str, FileKind] = {
    ".csv": "csv",
    ".tsv": "tsv",
    ".txt": "tsv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".parquet": "parquet",
    ".xlsx": "xlsx",
}


class AskedRow(NamedTuple):
    """A row to answer, and its example."""

    values: Mapping[str, Any]
    """By column names; a row that is too short lacks the last ones.
    """
    example: Example | None
    """None: a text is empty, and the row is not answered."""
    place: str


@dataclass(frozen=True)
class AskedFile:
    """A file of rows to answer."""

    path: Path
    kind: FileKind
    """Kind of the file, and by default of the file of answers."""
    names: tuple[str, ...]
    """Names of the columns; in JSON the names in the first row."""
    rows: Iterator[AskedRow]
    delimiter: str = ","
    """Delimiter of CSV."""
    choice_names: tuple[str, ...] = ()
    notes: list[str] = field(default_factory=list)


def kind_of(path: Path) -> FileKind | None:
    """Return the kind of a file by suffix; None for unknown ones."""
    return _KINDS.get(Path(unpacked_name(path)).suffix)


def read_asked(
    task: Task,
    table_columns: Mapping[str, str | Sequence[str]],
    overrides: ToldColumns,
    file: Path,
) -> AskedFile:
    """Open the rows of a file, or of a task's test set in a folder.

    A file without the task's columns, and a test set of several files, are read in the publisher's
    format: then each example is a row. Raises DataError where no file is found, it is empty, or has
    neither format.
    """
    path = expanded(file)
    paths: tuple[Path, ...] = (path,)
    if not path.is_file():
        if not path.is_dir():
            raise DataError(f"{describe_absence(file)}: name a file of rows")
        if task.name not in ROWS:
            raise DataError(f"{file} is a folder: name a file of rows")
        by_split = find_files(task, path)
        tests = [files for name, files in by_split.items() if name in task.test_splits]
        if len(tests) != 1:
            there = ", ".join(by_split) or "nothing"
            raise DataError(
                f"{file} has {there} of {task.title}, not one test set: name a file of rows"
            )
        [paths] = tests
    if len(paths) > 1:
        if overrides != ToldColumns():
            raise DataError(
                f"{file} has the test set of {task.title} in {len(paths):,} files: name one of "
                "them, or give no columns"
            )
        return _published(task, path, read_split(task, "test", paths))
    [path] = paths
    kind = kind_of(path)
    if kind is None:
        raise DataError(
            f"{path} is of an unknown kind: save it as {', '.join(_KINDS)}, or send lines of "
            "text to standard input"
        )
    try:
        return _read_rows(task, table_columns, overrides, path, kind)
    except DataError as error:
        if overrides != ToldColumns() or task.name not in ROWS:
            raise
        try:
            read = read_split(task, "test", paths)
        except DataError:
            raise error from None
        return _published(task, path, read)


def _read_rows(
    task: Task,
    table_columns: Mapping[str, str | Sequence[str]],
    overrides: ToldColumns,
    path: Path,
    kind: FileKind,
) -> AskedFile:
    notes: list[str] = []
    delimiter = ","
    published = ROWS.get(task.name)
    if kind == "tsv" and published is not None and published.reads_tsv:
        records = published.records(path)
    else:
        records, note, is_quoted = read_own(path, ".tsv" if kind == "tsv" else "")
        notes += filter(None, [note])
        if is_quoted:
            kind, delimiter = "csv", "\t"
        elif kind == "csv":
            delimiter = delimiter_of(path)
        elif kind in ("json", "jsonl"):
            kind = "json" if begins_with(path, b"[") else "jsonl"
    first = next(records, None)
    if first is None:
        raise DataError(f"{path} has no rows")
    try:
        columns = find_columns(task, table_columns, overrides, first.values, path)
    except DataError as error:
        if Path(unpacked_name(path)).suffix != ".txt":
            raise
        raise DataError(
            f"{error}; .txt is read as a table with column names in its first line: for lines of "
            f"text use `sublayer predict RUN < {shlex.quote(as_typed(str(path)))}`"
        ) from None
    return AskedFile(
        path,
        kind,
        tuple(first.values),
        columns.asked_rows(task, chain([first], records)),
        delimiter,
        columns.choices,
        notes,
    )


def _published(task: Task, path: Path, read: ReadSplit) -> AskedFile:
    names = ["id", *task.fields]
    if task.kind == "choice":
        names.append("choices")
    rows = []
    for row in read.examples:
        values: dict[str, Any] = {"id": row.id, **row.fields}
        if row.choices:
            values["choices"] = list(row.choices)
        rows.append(AskedRow(values, row, f"{path}: {row.id}"))
    return AskedFile(path, "jsonl", tuple(names), iter(rows), notes=read.described())


_NOT_IN_TSV = str.maketrans("\t\r\n", "   ")
Answered = Iterable[tuple[AskedRow, NamedPrediction]]
"""Rows with their answers."""


def write_answers(
    stream: IO[bytes], kind: FileKind, source: AskedFile, columns: AnswerColumns, rows: Answered
) -> None:
    """Write rows with their answers, one by one, as a file of a kind.

    CSV keeps the delimiter of the rows' file; in TSV quotes are plain text, and tabs and line
    breaks in texts become spaces, with a note; in JSON a row and its answer are one object; Parquet
    keeps the types of the rows' columns; a workbook has one sheet. Raises DataError for a column of
    mixed types in Parquet, and for a character that Excel does not allow in a cell.
    """
    header = [*source.names, *columns.added]

    def cells_of(row: AskedRow, answer: NamedPrediction) -> Iterator[Any]:
        return chain(map(row.values.get, source.names), columns.cells(answer).values())

    lines = chain([header], (list(map(_plain, cells_of(*answered))) for answered in rows))
    if kind == "csv":
        delimiter = source.delimiter if source.kind == "csv" else ","
        text = getwriter("utf-8")(stream, "surrogatepass")
        csv.writer(text, delimiter=delimiter, lineterminator="\n").writerows(lines)
    elif kind == "tsv":
        n_changed = 0
        for line in lines:
            written = [cell.translate(_NOT_IN_TSV) for cell in line]
            n_changed += written != line
            stream.write(("\t".join(written) + "\n").encode("utf-8", "surrogatepass"))
        if n_changed:
            note(
                f"tabs and line breaks in texts of {count(n_changed, 'row')} are written as "
                "spaces, as TSV cannot hold them: --out with .csv or .jsonl, or --json, keeps them"
            )
    elif kind in ("jsonl", "json"):
        n_rows = 0
        for n_rows, (row, answer) in enumerate(rows, 1):
            values = columns.object_of(row.values, answer)
            data = json.dumps(values, ensure_ascii=False, default=str)
            before = "" if kind == "jsonl" else "[\n" if n_rows == 1 else ",\n"
            after = "\n" if kind == "jsonl" else ""
            stream.write(f"{before}{data}{after}".encode("utf-8", "surrogatepass"))
        if kind == "json":
            stream.write(b"\n]\n" if n_rows else b"[]\n")
    elif kind == "parquet":
        parquet = extra_module("pyarrow.parquet", "Parquet files")
        arrow = import_module("pyarrow")
        pairs = [(row.values, columns.cells(answer)) for row, answer in rows]
        if source.kind == "parquet":
            with parquet_file(source.path) as file:
                table = file.read()
        else:
            try:
                table = arrow.table(
                    {name: [row.get(name) for row, _ in pairs] for name in source.names}
                )
            except arrow.ArrowException as error:
                raise DataError(
                    f"{source.path} has a column of mixed types, which Parquet cannot hold "
                    f"({error}): write .jsonl"
                ) from None
        for name in columns.added:
            table = table.append_column(name, arrow.array([cells[name] for _, cells in pairs]))
        parquet.write_table(table, stream)
    else:
        workbook = extra_module("openpyxl", "tables of Excel", "xlsx").Workbook(write_only=True)
        sheet = workbook.create_sheet()
        sheet.append(header)
        for row, answer in rows:
            cells = cells_of(row, answer)
            plain = [cell if isinstance(cell, int | float) else _plain(cell) for cell in cells]
            try:
                sheet.append([None if cell == "" else cell for cell in plain])
            except ValueError as error:
                raise DataError(
                    f"{row.place} has a character that Excel does not allow ({error}): write .csv"
                ) from None
        workbook.save(stream)


def check_out(out: Path, kind: FileKind | None) -> FileKind:
    """Return the kind of a new file. Raises ConfigError where it cannot be written."""
    if out.exists():
        raise ConfigError(f"{out} exists: name a new file")
    if not out.parent.is_dir():
        raise ConfigError(
            f"the folder {out.parent} does not exist: create it, or name another file"
        )
    if kind is None or out.suffix in PACKED_TABLES:
        raise ConfigError(
            f"{out} is of an unknown kind: name a file of {', '.join(get_args(FileKind))}"
        )
    return kind


def _plain(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, list | tuple | dict):
        return json.dumps(value, ensure_ascii=False, default=str)
    return str(value)
