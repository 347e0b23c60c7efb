"""A table of one's own as a task: its columns, its files, its labels, its examples."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sublayer.counts import count
from sublayer.errors import ConfigError, DataError
from sublayer.files.paths import expanded
from sublayer.files.storage import describe_absence
from sublayer.nearest import nearest_hint
from sublayer.tasks.finding import check_shards, entries, one_copy, split_in_name, unpacked_name
from sublayer.tasks.reading import (
    ReadSplit,
    choice_of,
    is_blank,
    is_unanswerable,
    kept_answers,
    number_of,
    same_number,
    sorted_words,
    spans_of,
    texts_of,
    word_of,
)
from sublayer.tasks.records import (
    Record,
    missing_column,
    named,
    read_csv,
    read_records,
    read_xlsx,
    sheets_note,
    suffix_of,
)
from sublayer.tasks.registry import find_files, read_split
from sublayer.tasks.rows import Found
from sublayer.tasks.task import Answer, Example, Kind, Task
from sublayer.tasks.text_metrics import check_text_metrics

ROLES = (
    "text", "text_pair", "label", "number", "choices", "answer", "answer_start", "target", "group",
    "id",
)  # fmt: skip
"""Roles of columns in ``data.columns``; ``number`` is a label that is a number."""


@dataclass(frozen=True)
class Table:
    """A file, or a folder with one for each split, and what its columns are.

    Raises ConfigError where columns exclude each other, or one is given twice.
    """

    path: str | Path
    text: str
    """The column of the text; of the passage, where answers are spans of it."""
    text_pair: str = ""
    """Column of a second text; of the question, where answers are spans."""
    label: str = ""
    """Column of the class, the number or the right choice; empty: it is not read."""
    choices: tuple[str, ...] = ()
    """Those of the answers to choose from."""
    answer: str = ""
    """Column of an answer that is a span of the passage."""
    answer_start: str = ""
    """Column of the place where the answer begins, in characters."""
    target: str = ""
    """Column of the text to be written, or of a list of texts, all of which are right."""
    is_number: bool = False
    """True where the label is a number to be predicted, and no class."""
    group: str = ""
    """Column of the document or author: rows of one stand on one side of a division."""
    id: str = ""
    """Column of the rows' ids; empty: they are numbered from 0, those left out included."""

    def __post_init__(self) -> None:
        asked = filter(None, (self.label, self.answer, self.target))
        columns = [*self.texts, *asked, *self.choices]
        twice = [name for name, n in Counter(columns).items() if n > 1]
        if twice:
            raise ConfigError(f"the column {twice[0]!r} is given twice: a column is one thing")
        if self.answer and (self.label or self.choices or self.is_number):
            raise ConfigError(
                "answers that are spans of the text exclude a label, choices and numbers: give "
                "the columns of one kind of task"
            )
        if self.target and (self.label or self.choices or self.is_number or self.answer):
            raise ConfigError(
                "a target that is written excludes a label, choices, numbers and answers: give "
                "the columns of one kind of task"
            )
        if self.answer and not self.text_pair:
            raise ConfigError(
                f"the answers in {self.answer!r} are to questions about the text: give the column "
                "of the questions as text_pair (--text-pair)"
            )
        if self.answer_start and not self.answer:
            raise ConfigError("answer_start is the place of an answer: give its column, too")
        if len(self.choices) == 1:
            raise ConfigError(f"{self.choices[0]!r} alone is no choice: give two columns or more")
        if self.choices and self.is_number:
            raise ConfigError("the right one of several choices is no number: give one of the two")

    @property
    def kind(self) -> Kind:
        """Return the kind of the task."""
        if self.answer:
            return "span"
        if self.target:
            return "text"
        if self.choices:
            return "choice"
        return "number" if self.is_number else "classes"

    @property
    def is_right(self) -> str:
        """Return the column of the answers: the label's, the spans' or the target's."""
        return self.label or self.answer or self.target

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the columns of texts."""
        return (self.text, self.text_pair) if self.text_pair else (self.text,)


def table_of(path: str | Path, columns: Mapping[str, str | Sequence[str]]) -> Table:
    """Return the settings of a table whose columns are said by their roles, as recipes do.

    Raises ConfigError for a role that there is not, a column without a name, and columns that
    exclude each other.
    """
    values: dict[str, Any] = {}
    for role, column in columns.items():
        if role not in ROLES:
            raise ConfigError(
                f"data.columns: {role} is not one of {', '.join(ROLES)}{nearest_hint(role, ROLES)}"
            )
        is_list = not isinstance(column, str)
        if is_list != (role == "choices"):
            wanted = "a list of columns" if role == "choices" else "one column"
            raise ConfigError(f"data.columns: {role} is {wanted}, by name, not {column!r:.80}")
        if not column or not all(column):
            raise ConfigError(f"data.columns: {role} is empty: name a column, or leave it out")
        values[role] = tuple(column) if is_list else column
    if "text" not in values:
        raise ConfigError("data.columns does not say which column is the text: give text")
    if "number" in values:
        if "label" in values:
            raise ConfigError("data.columns: label and number exclude each other: give one of them")
        values["label"] = values.pop("number")
        values["is_number"] = True
    return Table(path, **values)


@dataclass(frozen=True, slots=True)
class OwnTsv:
    """The rows of a file."""

    records: Sequence[Record]
    note: str = ""
    """Note on how quotes were read, or on the sheet; empty where there is no choice."""
    is_quoted: bool = False
    """True where quotes stand around fields."""


def read_own_tsv(path: Path) -> OwnTsv:
    """Read the rows of a file of TSV, or of a workbook.

    Quotes are those of CSV, around fields, where all rows have their columns so; unless all have
    them too where quotes are text, and there are more rows: then a quote would have joined lines
    that do not belong together.

    Raises DataError where the file cannot be read.
    """
    if suffix_of(path) == ".xlsx":
        return OwnTsv(list(read_xlsx(path)), sheets_note(path))
    as_text = list(read_records(path, ".tsv"))
    if not any(_begins_quoted(record) for record in as_text):
        return OwnTsv(as_text)
    try:
        as_csv = list(read_csv(path, "\t"))
    except DataError:
        as_csv = []
    is_whole = as_csv and not any(record.problem for record in as_csv)
    if is_whole and (len(as_csv) == len(as_text) or any(record.problem for record in as_text)):
        return OwnTsv(as_csv, f"{path}: quotes stand around fields, as in CSV", is_quoted=True)
    return OwnTsv(as_text, f"{path}: quotes are text")


def _begins_quoted(record: Record) -> bool:
    return any(text.startswith('"') for text in (*record.values, *record.values.values()))


_SPLITS = ("train", "dev", "test")
_SHOWN_FILES = 4
SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".xlsx")


@dataclass(frozen=True, slots=True)
class Row:
    """A row with its texts; its label or answer is not yet read."""

    record: Record
    number: int
    """Among all rows of its split, from 0."""
    fields: Mapping[str, str]
    choices: tuple[str, ...]

    @property
    def place(self) -> str:
        """Return file and line."""
        return self.record.place


def find_table(path: str | Path) -> Found:
    """Find a table's files: one, which is to be trained on, or those of a folder, by their splits.

    Raises DataError where there are none.
    """
    place = expanded(path)
    if place.is_file():
        return {"train": (place,)}
    if not place.is_dir():
        raise DataError(f"{describe_absence(path)}: name the file of a table, or a folder of them")
    paths = {split: _paths_of(place, split) for split in _SPLITS}
    found = {split: one_copy(of_split) for split, of_split in paths.items() if of_split}
    if not found:
        raise DataError(
            f"{path} has no table with train, dev or test in its name ({', '.join(SUFFIXES)})"
            f"{_what_else(place)}"
        )
    return found


def _what_else(folder: Path) -> str:
    """Name a file that is in a folder instead, and a remedy."""
    files = [each for each in entries(folder) if each.is_file()]
    tables = [each for each in files if Path(unpacked_name(each)).suffix in SUFFIXES]
    if tables:
        return f": name one file, such as {tables[0]}, or rename the parts"
    there = f": it has {files[0].name}" if files else ""
    return f"{there}: name a file of that kind"


def find_parts(path: str | Path) -> set[str]:
    """Return the splits of which a folder has tables; of anything else none."""
    place = expanded(path)
    return {split for split in _SPLITS if place.is_dir() and _paths_of(place, split)}


def _paths_of(folder: Path, split: str) -> list[Path]:
    return [each for each in entries(folder) if split_in_name(each, SUFFIXES) == split]


def describe_left_out(path: str | Path, found: Found) -> list[str]:
    """Say of a folder which of its tables are of no split, or of one that another file has."""
    place = expanded(path)
    read = {each for paths in found.values() for each in paths}
    tables = [each for each in entries(place) if each.is_file()] if place.is_dir() else []
    others = [
        each for each in tables if each not in read and Path(unpacked_name(each)).suffix in SUFFIXES
    ]
    if not others:
        return []
    listed = ", ".join(each.name for each in others[:_SHOWN_FILES])
    more = f" and {len(others) - _SHOWN_FILES:,} more" if len(others) > _SHOWN_FILES else ""
    parts = "of the same part as another, or without train, dev or test in its name: rename them"
    return [f"{count(len(others), 'table')} of {path} not read ({parts}): {listed}{more}"]


def columns_of(path: str | Path) -> tuple[str, ...]:
    """Return the columns of a table's first file; raise DataError where it is none, or is empty."""
    first, *_ = find_table(path).values()
    records = _records(first[0], ReadSplit("", first))
    record = next(iter(records), None)
    if record is None:
        raise DataError(f"{first[0]} has no rows")
    return tuple(record.values)


def _read_rows(table: Table, split: str, paths: tuple[Path, ...]) -> tuple[ReadSplit, list[Row]]:
    """Read the rows of a split. Those without a text, a choice or a column are counted.

    Raises DataError for a column that is missing, a text that is none, and where nothing is left.
    """
    check_shards(paths)
    result = ReadSplit(split, paths)
    rows: list[Row] = []
    n_rows = 0
    for path in paths:
        before = n_rows
        columns: dict[str, None] = {}
        for record in _records(path, result):
            if not record.problem:
                # Each object of JSON may have names of its own; rows of other files have all.
                columns |= dict.fromkeys(record.values)
            problem = record.problem or _blank_column(table, record)
            if problem:
                result.skip(problem, record.place)
            else:
                fields = {name: record.text(name) for name in table.texts}
                choices = tuple(record.text(name) for name in table.choices)
                rows.append(Row(record, n_rows, fields, choices))
            n_rows += 1
        if n_rows == before:
            raise DataError(f"{path} has no rows")
        needed = [*table.texts, *table.choices, table.group, table.id]
        if split != "test":
            needed += [table.is_right, table.answer_start]
        missing = [name for name in needed if name and name not in columns]
        if columns and missing:
            raise missing_column(path, missing[:1], columns, missing[1:])
    if not rows:
        reasons = " or ".join(result.skipped)
        raise DataError(f"{paths[0]} has {count(n_rows, 'row')}, all to be left out: {reasons}")
    return result, rows


def _blank_column(table: Table, record: Record) -> str:
    """Say which text or choice a row lacks; empty where it has all."""
    for name in (*table.texts, *table.choices):
        if is_blank(record.values.get(name)):
            return f"nothing in the column {name!r}"
        record.text(name)  # whose error names the type
    return ""


def _records(path: Path, result: ReadSplit) -> Iterable[Record]:
    if not unpacked_name(path).endswith((".tsv", ".xlsx")):
        return read_records(path)
    read = read_own_tsv(path)
    if read.note:
        result.notes.append(read.note)
    return read.records


def _example(table: Table, task: Task, row: Row, result: ReadSplit) -> Example | None:
    """Return the example of a row, with its label or answer; None of one to be left out."""
    values, place = row.record.values, row.place
    right = values.get(table.is_right)
    label: int | float | None = None
    answers: tuple[Answer, ...] = ()
    source = "" if is_blank(values.get(table.group)) else str(values[table.group])
    if task.kind == "classes":
        label = _class(task, right, place)
    elif task.kind == "number":
        label = number_of(right, place)
    elif task.kind == "choice":
        label = choice_of(right, table.choices, row.choices, place)
    elif task.kind == "text":
        answers = tuple(map(Answer, texts_of(right, table.target, place)))
    is_labelled = label is not None or bool(answers)
    if task.kind == "span":
        placed = spans_of(right, values.get(table.answer_start), row.fields[table.text], place)
        kept = kept_answers(placed or [], result, place)
        if kept is None:
            return None
        answers, is_labelled = kept, placed is not None
        # Questions about one passage stand on one side.
        source = source or (row.fields[table.text] if is_labelled else "")
    id_ = values.get(table.id)
    return Example(
        id=str(row.number if is_blank(id_) else id_),
        fields=row.fields,
        label=label,
        choices=row.choices,
        answers=answers,
        is_labelled=is_labelled,
        source=source,
    )


def _class(task: Task, written: Any, place: str) -> int | None:
    word = word_of(written, place)
    if not word:
        return None
    if word not in task.labels:
        word = same_number(word, task.labels) or word
    if word not in task.labels:
        raise DataError(
            f"{place}: {word!r} is not among the labels that are learned: {named(task.labels)}"
            f": mend it, or delete the row{nearest_hint(word, task.labels)}"
        )
    return task.labels.index(word)


NAME = "table"
"""The task's name, whatever the file's: the text format begins with it."""
LONE = "a label that no other row has: it is learned from one row, or not at all"
"""Reason that is counted for such a row, which is kept."""

METRICS: dict[Kind, tuple[str, ...]] = {
    "classes": ("accuracy",),
    "number": ("pearson", "spearman"),
    "choice": ("accuracy",),
    "span": ("exact_match", "token_f1"),
    "text": ("chrf", "rouge1", "rouge2", "rougeL", "exact_text"),
}
"""Of tasks that no publisher scores."""
_UNANSWERABLE_METRICS = ("exact_match_v2", "token_f1_v2")


def read_table(table: Table) -> tuple[Task, dict[str, ReadSplit]]:
    """Read a table with its labels or answers, and return the task that it is, and its splits.

    Labels of classes are the distinct words of the training split, or of all splits without one, in
    order. Rows without a label are left out and counted, but for a test.

    Raises DataError, with file and line, for a column that is missing, a table without rows, a
    label that cannot be read or that the training split has not, and for labels that teach
    nothing: one alone, or as many as rows.
    """
    if not table.is_right:
        raise ConfigError(f"nothing says what is right in {table.path}: give the column of labels")
    if table.kind == "text":
        check_text_metrics()
    found = find_table(table.path)
    splits = {split: _read_rows(table, split, paths) for split, paths in found.items()}
    learned = [splits["train"]] if "train" in splits else list(splits.values())
    task = _task(table, learned, tuple(splits))
    return task, {split: _with_examples(table, task, *rows) for split, rows in splits.items()}


def read_rows(table: Table, task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
    """Read files of a task that is known; those of ``test`` need no labels.

    Raises as ``read_table`` does.
    """
    return _with_examples(table, task, *_read_rows(table, split, paths))


def _with_examples(table: Table, task: Task, result: ReadSplit, rows: list[Row]) -> ReadSplit:
    for row in rows:
        example = _example(table, task, row, result)
        if example is not None and (example.is_labelled or result.name == "test"):
            result.add(example, row)
        elif example is not None:
            result.skip(f"nothing in the column {table.is_right!r}", row.place)
    return result


_Learned = Sequence[tuple[ReadSplit, list[Row]]]
"""Splits that labels are learned from."""


def _task(table: Table, learned: _Learned, splits: tuple[str, ...]) -> Task:
    rows = [row for _, of_split in learned for row in of_split]
    values = [row.record.values.get(table.is_right) for row in rows]
    pairs = [(value, row.place) for value, row in zip(values, rows, strict=True)]
    labels: tuple[str, ...] = ()
    numbers = (0.0, 1.0)
    has_unanswerable = False
    if table.kind == "classes":
        labels = _labels(table, learned)
    elif table.kind == "number":
        read = (number_of(value, place) for value, place in pairs)
        distinct = sorted({number for number in read if number is not None})
        _check_several(table, distinct)
        numbers = distinct[0], distinct[-1]
    elif table.kind == "text":
        texts = (texts_of(value, table.target, place) for value, place in pairs)
        _check_several(table, sorted({text for of_row in texts for text in of_row}))
    elif table.kind == "span":
        has_unanswerable = any(map(is_unanswerable, values))
    return Task(
        NAME,
        Path(table.path).name,
        NAME,
        table.kind,
        table.texts,
        _UNANSWERABLE_METRICS if has_unanswerable else METRICS[table.kind],
        labels=labels,
        numbers=numbers,
        has_unanswerable=has_unanswerable,
        splits=splits,
    )


def _labels(table: Table, learned: _Learned) -> tuple[str, ...]:
    places = defaultdict(list)
    for result, rows in learned:
        for row in rows:
            word = word_of(row.record.values.get(table.label), row.place)
            if word:
                places[word].append((result, row.place))
    labels = sorted_words(places, _where(table))
    n_rows = sum(map(len, places.values()))
    if len(labels) == n_rows and n_rows > 2:
        raise DataError(f"{_where(table)} has another label in each of {n_rows} rows: no classes")
    _check_several(table, labels)
    for (result, place), *others in places.values():
        if not others:
            result.keep(LONE, place)
    return labels


def _check_several(table: Table, values: Sequence[object]) -> None:
    if not values:
        raise DataError(f"{_where(table)} is empty in all rows: nothing says what is right")
    if len(values) == 1:
        raise DataError(f"{_where(table)} is {values[0]!r} in all rows: there is nothing to learn")


def _where(table: Table) -> str:
    return f"{table.path}: the column {table.is_right!r}"


_HANDED_IN = (
    "a test set is handed in (`sublayer predict RUN --submission`), a development set is scored"
)


def read_labelled(task: Task, path: str) -> tuple[list[ReadSplit], ReadSplit | None]:
    """Read a file of a task, or the development sets of a folder, and the training set beside.

    The latter is None where there is none. Raises DataError where no row has a label.
    """
    place = expanded(path)
    if place.is_file():
        asked = read_split(task, "test", (place,))
        if not any(example.is_labelled for example in asked.examples):
            raise DataError(f"no row of {path} has a label to score {task.title} by: {_HANDED_IN}")
        return [read_split(task, "dev", (place,))], None
    found = find_files(task, place)
    devs = [name for name in task.dev_splits if name in found]
    if not devs:
        there = ", ".join(found) or "nothing"
        raise DataError(
            f"{path} has {there} of {task.title}, and no development set to score: {_HANDED_IN}"
        )
    scored = [read_split(task, name, found[name]) for name in devs]
    train = read_split(task, "train", found["train"]) if "train" in found else None
    return scored, train


def read_labelled_table(table: Table, task: Task) -> ReadSplit:
    """Read a table of one's own, or of a folder the development set, or else the test set.

    Raises DataError where no row has a label, and for labels that the task has not.
    """
    found = find_table(table.path)
    name = next(name for name in ("dev", "test", "train") if name in found)
    if len(found) == 3:  # the development set selected
        tests = read_rows(table, task, "test", found["test"]).examples
        name = "test" if all(example.is_labelled for example in tests) else "dev"
    read = read_rows(table, task, "dev", found[name])
    if not read.examples:
        raise DataError(f"no row of {table.path} has a label to score by: answer it, by predict")
    if len(found) > 1:
        others = ", ".join(str(paths[0]) for each, paths in found.items() if each != name)
        read.notes.append(f"{found[name][0]} is scored, and not {others}")
    return read
