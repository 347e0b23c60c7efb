"""A user's table as a task: columns, files, labels, examples."""

import math
import string
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from typing import Any

from sublayer.errors import ConfigError, DataError, nearest_hint
from sublayer.files.lines import suffix_of
from sublayer.files.storage import describe_absence, expanded
from sublayer.numbers import count
from sublayer.tasks.finding import check_shards, entries, one_copy, split_in_name, unpacked_name
from sublayer.tasks.metrics import check_text_metrics
from sublayer.tasks.published import (
    Found,
    PlacedAnswer,
    ReadSplit,
    is_blank,
    place_answer,
)
from sublayer.tasks.records import (
    Record,
    missing_column,
    named,
    read_csv,
    read_records,
    sheets_note,
)
from sublayer.tasks.task import Answer, Example, Kind, Task

ROLES = (
    "text", "text_pair", "label", "number", "choices", "answer", "answer_start", "target", "group",
    "id",
)  # fmt: skip
"""Roles of columns in ``data.columns``; ``number`` is the role of a numeric label."""


@dataclass(frozen=True)
class OwnTable:
    """A file, or a folder with a file for each split, and the roles of its columns.

    Raises ConfigError where columns exclude each other, or a column has two roles.
    """

    path: str | Path
    text: str
    """Column of the text; the passage, where answers are spans of it."""
    text_pair: str = ""
    """Column of a second text; the question, where answers are spans."""
    label: str = ""
    """Column of the class, the number or the correct choice; empty: not read."""
    choices: tuple[str, ...] = ()
    """Columns of the choices."""
    answer: str = ""
    """Column of an answer that is a span of the passage."""
    answer_start: str = ""
    """Column of the answer's start position, in characters."""
    target: str = ""
    """Column of the text to be written, or of a list of texts, all of them correct."""
    is_number: bool = False
    """True where the label is a number to predict, not a class."""
    group: str = ""
    """Column of the document or author: rows with the same one stay in one split."""
    id: str = ""
    """Column of the rows' ids; empty: row numbers from 0, counting rows that are left out."""

    def __post_init__(self) -> None:
        outputs = filter(None, (self.label, self.answer, self.target))
        twice = [
            name for name, n in Counter([*self.texts, *outputs, *self.choices]).items() if n > 1
        ]
        kinds = (self.answer, self.target, self.label or self.choices or self.is_number)
        for is_wrong, message in (
            (twice, f"the column {', '.join(twice)!r} has two roles: give a column one role"),
            (
                sum(map(bool, kinds)) > 1,
                "answer, target, and label, choices or number belong to different kinds of task: "
                "give the columns of one kind",
            ),
            (
                self.answer and not self.text_pair,
                f"the answers in {self.answer!r} need questions about the text: give the column "
                "of questions as text_pair (--text-pair)",
            ),
            (
                self.answer_start and not self.answer,
                "answer_start without answer has no effect: give the column of the answer, too",
            ),
            (
                len(self.choices) == 1,
                f"{', '.join(self.choices)!r} is the only column of choices: give two or more",
            ),
            (
                self.choices and self.is_number,
                "choices and number exclude each other: give one of them",
            ),
        ):
            if is_wrong:
                raise ConfigError(message)

    @property
    def kind(self) -> Kind:
        """Return the kind of the task."""
        if self.answer or self.target:
            return "span" if self.answer else "text"
        if self.choices:
            return "choice"
        return "number" if self.is_number else "classes"

    @property
    def is_right(self) -> str:
        """Return the column of correct answers: the label's, the spans' or the target's."""
        return self.label or self.answer or self.target

    @property
    def texts(self) -> tuple[str, ...]:
        """Return the columns of texts."""
        return (self.text, self.text_pair) if self.text_pair else (self.text,)

    def _read_rows(self, split: str, paths: tuple[Path, ...]) -> "tuple[ReadSplit, _Rows]":
        """Read the rows of a split; count those skipped, without a text, a choice or a column.

        Raises DataError for a missing column, for a value that is not a text, and where no row is
        left.
        """
        check_shards(paths)
        result = ReadSplit(split, paths)
        rows: list[tuple[int, Record]] = []
        for path in paths:
            before = result.n_rows
            columns: dict[str, None] = {}
            records, note, _ = read_own(path)
            result.notes += filter(None, [note])
            for record in records:
                problem = record.problem
                if not problem:
                    # JSON objects may differ in their names; rows of other files all have the same.
                    columns |= dict.fromkeys(record.values)
                for name in (*self.texts, *self.choices):
                    if problem:
                        break
                    if is_blank(record.values.get(name)):
                        problem = f"no value in the column {name!r}"
                    else:
                        record.text(name)  # its error names the type
                if problem:
                    result.skip(problem, record.place)
                else:
                    rows.append((result.n_rows, record))
                result.n_rows += 1
            if result.n_rows == before:
                raise DataError(f"{path} has no rows")
            needed = [*self.texts, *self.choices, self.group, self.id]
            if split != "test":
                needed += [self.is_right, self.answer_start]
            missing = [name for name in needed if name and name not in columns]
            if columns and missing:
                raise missing_column(path, missing[:1], columns, missing[1:])
        if not rows:
            n_rows, reasons = count(result.n_rows, "row"), " or ".join(result.skipped)
            raise DataError(f"{paths[0]} has {n_rows}, and all are left out for: {reasons}")
        return result, rows

    def example(self, task: Task, number: int, row: Record, result: ReadSplit) -> Example | None:
        """Return the example of a row, with its label or answer; None for a row to be left out.

        The label may give the correct choice by the name of its column, its text, its letter, from
        A, or its number, from 0. Raises DataError for a label that is invalid, or fits several
        choices.
        """
        values, where = row.values, row.place
        right = values.get(self.is_right)
        fields = {name: row.text(name) for name in self.texts}
        choices = tuple(row.text(name) for name in self.choices)
        source = "" if is_blank(values.get(self.group)) else str(values[self.group])
        label: int | float | None = None
        answers: tuple[Answer, ...] = ()
        is_labelled = False
        word = word_of(right, where) if task.kind in ("classes", "choice") else ""
        if task.kind == "classes" and word:
            if word not in task.labels:
                # The same number, as 1 is 1.0, is the same label.
                value = _number(word)
                same = [
                    name for name in task.labels if value is not None and _number(name) == value
                ]
                word = next(iter(same), word)
            if word not in task.labels:
                raise DataError(
                    f"{where}: {word!r} is not a label of the training rows, {named(task.labels)}"
                    f": correct it, or delete the row{nearest_hint(word, task.labels)}"
                )
            label = task.labels.index(word)
        elif task.kind == "choice" and word in self.choices:
            label = self.choices.index(word)
        elif task.kind == "choice" and word:
            meant = {index for index, choice in enumerate(choices) if choice.strip() == word}
            letters = string.ascii_uppercase[: len(choices)]
            if len(word) == 1 and word in letters:
                meant.add(letters.index(word))
            if word.isdecimal() and int(word) < len(choices):
                meant.add(int(word))
            if len(meant) > 1:
                columns = " or ".join(self.choices[index] for index in sorted(meant))
                raise DataError(
                    f"{where}: the label {word!r} may mean {columns}: write the column's name"
                )
            if not meant:
                raise DataError(
                    f"{where}: the label {word!r} is not a choice: write its text, its column "
                    f"({', '.join(self.choices)}), its letter ({letters[0]} to {letters[-1]}) or "
                    f"its number (0 to {len(choices) - 1})"
                )
            label = meant.pop()
        elif task.kind == "number":
            label = number_of(right, where)
        elif task.kind == "text":
            answers = tuple(map(Answer, texts_of(right, self.target, where)))
        elif task.kind == "span":
            placed = spans_of(right, values.get(self.answer_start), fields[self.text], where)
            kept = result.kept_answers(placed or [], where)
            if kept is None:
                return None
            answers, is_labelled = kept, placed is not None
            # Questions about one passage stay together.
            source = source or (fields[self.text] if is_labelled else "")
        id_ = values.get(self.id)
        return Example(
            id=str(number if is_blank(id_) else id_),
            fields=fields,
            label=label,
            choices=choices,
            answers=answers,
            is_labelled=is_labelled or label is not None or bool(answers),
            source=source,
        )

    def read(self) -> tuple[Task, dict[str, ReadSplit]]:
        """Read a table with its labels or answers; return its task, and its splits.

        Labels of classes are the distinct words of the training split, or without one of all
        splits, in order. Rows without a label are left out and counted, except in a test split.

        Raises DataError, with file and line, for a missing column, a table without rows, a label
        that is invalid or absent from the training split, and for labels that teach nothing: a
        single one, or a different one in each row.
        """
        if not self.is_right:
            raise ConfigError(f"{self.path} is used without a column of labels: name it")
        if self.kind == "text":
            check_text_metrics()
        by_split = find_table(self.path)
        splits = {split: self._read_rows(split, paths) for split, paths in by_split.items()}
        learned = [splits["train"]] if "train" in splits else list(splits.values())
        task = self.task(learned, tuple(splits))
        return task, {split: self._with_examples(task, *rows) for split, rows in splits.items()}

    def read_rows(self, task: Task, split: str, paths: tuple[Path, ...]) -> ReadSplit:
        """Read files of a known task; files of ``test`` need no labels.

        Raises as ``read`` does.
        """
        return self._with_examples(task, *self._read_rows(split, paths))

    def _with_examples(self, task: Task, result: ReadSplit, rows: "_Rows") -> ReadSplit:
        for number, row in rows:
            example = self.example(task, number, row, result)
            if example is not None and (example.is_labelled or result.name == "test"):
                result.add(example, row)
            elif example is not None:
                result.skip(f"no value in the column {self.is_right!r}", row.place)
        return result

    def task(self, learned: "Sequence[tuple[ReadSplit, _Rows]]", splits: tuple[str, ...]) -> Task:
        """Derive the task of a table from the rows of its splits.

        Raises DataError for labels, numbers or targets that teach nothing.
        """
        where = f"{self.path}: the column {self.is_right!r}"
        rows = [(result, row) for result, of_split in learned for _, row in of_split]
        written = [(row.values.get(self.is_right), row.place) for _, row in rows]
        labels: tuple[str, ...] = ()
        numbers = (0.0, 1.0)
        metrics = METRICS[self.kind]
        # Questions are marked unanswerable by an empty list.
        has_unanswerable = self.kind == "span" and any(
            value == [] or (isinstance(value, dict) and value.get("text") == [])
            for value, _ in written
        )
        distinct: Sequence[object] | None = None
        if self.kind == "classes":
            places = defaultdict(list)
            for (result, row), given in zip(rows, written, strict=True):
                if word := word_of(*given):
                    places[word].append((result, row.place))
            words = sorted(places)
            values_of = {word: _number(word) for word in words}
            if None not in values_of.values():
                # Whole numbers are sorted by value, all else as words.
                odd = [
                    word for word, value in values_of.items() if value and not value.is_integer()
                ]
                if odd and not math.isfinite(float(odd[-1])):
                    raise DataError(
                        f"{where} has numbers, and {odd[-1]!r} among them: leave it empty where it "
                        "means a missing label, or write classes as words"
                    )
                if odd:
                    raise DataError(
                        f"{where} has numbers such as {odd[0]}: predict them as numbers (--number, "
                        "or number instead of label in data.columns), or write classes as words"
                    )
                words.sort(key=lambda word: (float(word), word))
            distinct = labels = tuple(words)
            n_rows = sum(map(len, places.values()))
            if len(labels) == n_rows and n_rows > 2:
                raise DataError(
                    f"{where} has a different label in each of {n_rows} rows: these are not classes"
                )
        elif self.kind == "number":
            read = (number_of(*given) for given in written)
            distinct = values = sorted({number for number in read if number is not None})
            numbers = (values[0], values[-1]) if values else numbers
        elif self.kind == "text":
            texts = (texts_of(value, self.target, location) for value, location in written)
            distinct = sorted({text for of_row in texts for text in of_row})
        elif has_unanswerable:
            metrics = _UNANSWERABLE_METRICS
        if distinct is not None and not distinct:
            raise DataError(f"{where} is empty in all rows: there are no labels or answers")
        if distinct is not None and len(distinct) == 1:
            raise DataError(f"{where} is {distinct[0]!r} in all rows: there is nothing to learn")
        if labels:
            for (result, row_place), *others in places.values():
                if not others:
                    result.keep(LONE, row_place)
        return Task(
            NAME,
            Path(self.path).name,
            NAME,
            self.kind,
            self.texts,
            metrics,
            labels=labels,
            numbers=numbers,
            has_unanswerable=has_unanswerable,
            splits=splits,
        )

    def read_labelled(self, task: Task) -> ReadSplit:
        """Read a user's table, or a folder's development set, or else its test set.

        Raises DataError where no row has a label, and for labels unknown to the task.
        """
        by_split = find_table(self.path)
        name = next(name for name in ("dev", "test", "train") if name in by_split)
        if len(by_split) == 3:  # the development set selected
            tests = self.read_rows(task, "test", by_split["test"]).examples
            name = "test" if all(example.is_labelled for example in tests) else "dev"
        read = self.read_rows(task, "dev", by_split[name])
        if not read.examples:
            raise DataError(
                f"no row of {self.path} has a label to score by: use predict for answers"
            )
        if len(by_split) > 1:
            others = ", ".join(str(paths[0]) for split, paths in by_split.items() if split != name)
            read.notes.append(f"{by_split[name][0]} is scored, not {others}")
        return read


def table_of(path: str | Path, columns: Mapping[str, str | Sequence[str]]) -> OwnTable:
    """Build a table's settings from columns by role, as in recipes.

    Raises ConfigError for an unknown role, an empty column name, and exclusive columns.
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
            raise ConfigError(f"data.columns: {role} must name {wanted}, not {column!r:.80}")
        if not column or not all(column):
            raise ConfigError(f"data.columns: {role} is empty: name a column, or leave it out")
        values[role] = tuple(column) if is_list else column
    if "text" not in values:
        raise ConfigError("data.columns has no text: name the column of the text")
    if "number" in values:
        if "label" in values:
            raise ConfigError("data.columns: label and number exclude each other: give one of them")
        values["label"] = values.pop("number")
        values["is_number"] = True
    return OwnTable(path, **values)


def read_own(path: Path, suffix: str = "") -> tuple[Iterator[Record], str, bool]:
    """Read the rows of a file of any kind; ``suffix`` overrides the file's own.

    Also return a note on how quotes were read, or on the sheet of a workbook, empty where there was
    nothing to decide, and whether fields are quoted as in CSV.

    Quotes in TSV are read as in CSV, around fields, where every row then has all columns, unless
    every row also has them with quotes as plain text, and these are more rows: then a quote would
    have joined unrelated lines.

    Raises DataError where the file cannot be read.
    """
    suffix = suffix or suffix_of(path)
    if suffix == ".xlsx":
        return read_records(path), sheets_note(path), False
    if suffix != ".tsv":
        return read_records(path), "", False
    as_text = list(read_records(path, ".tsv"))
    cells = (text for row in as_text for text in (*row.values, *row.values.values()))
    if not any(text.startswith('"') for text in cells):
        return iter(as_text), "", False
    try:
        as_csv = list(read_csv(path, "\t"))
    except DataError:
        as_csv = []
    is_whole = as_csv and not any(row.problem for row in as_csv)
    if is_whole and (len(as_csv) == len(as_text) or any(row.problem for row in as_text)):
        return iter(as_csv), f"{path}: fields are quoted, as in CSV", True
    return iter(as_text), f"{path}: quotes are plain text", False


SEVERAL = "an answer that occurs several times in its passage: the first is taken"
"""Repair of an answer without a place."""


def word_of(value: Any, where: str) -> str:
    """Return a label as a word, stripped of white space; empty for none.

    Whole numbers and booleans are words, too. Raises DataError for other numbers, and for lists.
    """
    if is_blank(value):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if not isinstance(value, str | int):
        kind = type(value).__name__
        raise DataError(
            f"{where}: the label {value!r} is {kind}, not a word or a whole number: "
            "write it as text"
        )
    return str(value).strip()


def number_of(value: Any, where: str) -> float | None:
    """Return a number, or None for none; raise DataError for anything but a finite number."""
    if is_blank(value):
        return None
    number = None if isinstance(value, bool) else _number(value)
    if number is None or not math.isfinite(number):
        raise DataError(
            f"{where}: the label {value!r} is not a number: write it with a decimal point and "
            "without a unit, or leave it empty where it is missing"
        )
    return number


def spans_of(answers: Any, start: Any, passage: str, where: str) -> list[PlacedAnswer] | None:
    """Return the gold answers to a question, or None where unlabelled.

    ``answers`` is a text, a list of texts, or an object with lists of texts and start positions, as
    in the hub's copies of SQuAD; an empty list marks a question without an answer. ``start`` is the
    start position of a text, in characters; without one, it is the first occurrence in the passage.

    Raises DataError for any other value.
    """
    if is_blank(answers):
        return None
    if isinstance(answers, str):
        return [_placed(answers, start, passage, where)]
    if isinstance(answers, dict):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list):
            raise DataError(f"{where}: an answer lacks the lists text and answer_start")
    else:
        texts, starts = answers, [None] * len(answers) if isinstance(answers, list) else None
    if not isinstance(texts, list) or starts is None or len(texts) != len(starts):
        raise DataError(f"{where}: the answer {answers!r} is neither a text nor a list of texts")
    if not all(isinstance(text, str) for text in texts):
        raise DataError(f"{where}: not all answers in {texts!r} are texts")
    return [_placed(text, at, passage, where) for text, at in zip(texts, starts, strict=True)]


def texts_of(value: Any, column: str, where: str) -> list[str]:
    """Return the texts of a column with a text or a list of texts in each row; none where it is
    blank.

    Raises DataError for a value that is neither.
    """
    listed = value if isinstance(value, list | tuple) else [value]
    texts = [text for text in listed if not is_blank(text)]
    if not all(isinstance(text, str) for text in texts):
        raise DataError(f"{where}: {column} is {value!r:.60}, neither a text nor a list of texts")
    return texts


def _placed(text: str, start: Any, passage: str, where: str) -> PlacedAnswer:
    if not is_blank(start):
        number = None if isinstance(start, bool) else _number(start)
        if number is None or not number.is_integer():
            raise DataError(f"{where}: the answer's start {start!r} is not a whole number")
        return place_answer(passage, text, int(number))
    bare = text.strip()
    first = passage.find(bare) if bare else -1
    if first < 0:
        return Answer(text), ""
    return Answer(bare, first), SEVERAL if passage.find(bare, first + 1) > 0 else ""


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if "_" in str(value) else number


_SPLITS = ("train", "dev", "test")
_LOOKED_AT = 100
"""Rows from which column names are collected."""
_SHOWN_FILES = 4
SUFFIXES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".parquet", ".xlsx")
_Rows = Sequence[tuple[int, Record]]
"""Rows with all their texts, each with its number among all rows of its split, from 0."""


def find_table(path: str | Path) -> Found:
    """Find a table's files by split: one file is the training split.

    Raises DataError where there are none.
    """
    location = expanded(path)
    if location.is_file():
        return {"train": (location,)}
    if not location.is_dir():
        raise DataError(
            f"{describe_absence(path)}: name the file of a table, or a folder of tables"
        )
    by_split = {split: one_copy(_paths_of(location, split)) for split in _SPLITS}
    if not any(by_split.values()):
        files = [file for file in entries(location) if file.is_file()]
        tables = [file for file in files if Path(unpacked_name(file)).suffix in SUFFIXES]
        there = f": it has {files[0].name}" if files else ""
        remedy = f"{there}: name a file of one of these kinds"
        if tables:
            remedy = f": name one file, such as {tables[0]}, or rename the parts"
        raise DataError(
            f"{path} has no table with train, dev or test in its name ({', '.join(SUFFIXES)})"
            f"{remedy}"
        )
    return {split: paths for split, paths in by_split.items() if paths}


def find_parts(path: str | Path) -> set[str]:
    """Return the splits with tables in a folder; empty for other paths."""
    location = expanded(path)
    return {split for split in _SPLITS if location.is_dir() and _paths_of(location, split)}


def _paths_of(folder: Path, split: str) -> list[Path]:
    return [file for file in entries(folder) if split_in_name(file, SUFFIXES) == split]


def describe_left_out(path: str | Path, by_split: Found) -> list[str]:
    """Describe a folder's tables that are left out: without a split, or with a duplicate one."""
    location = expanded(path)
    read = {file for paths in by_split.values() for file in paths}
    tables = [file for file in entries(location) if file.is_file()] if location.is_dir() else []
    others = [
        file for file in tables if file not in read and Path(unpacked_name(file)).suffix in SUFFIXES
    ]
    if not others:
        return []
    listed = ", ".join(file.name for file in others[:_SHOWN_FILES])
    more = f" and {len(others) - _SHOWN_FILES:,} more" if len(others) > _SHOWN_FILES else ""
    parts = "of the same split as another, or without train, dev or test in its name: rename them"
    return [f"{count(len(others), 'table')} of {path} not read ({parts}): {listed}{more}"]


def columns_of(path: str | Path) -> tuple[str, ...]:
    """Return the columns of a table's first file; raise DataError where it is no table, or is
    empty."""
    first, *_ = find_table(path).values()
    rows, *_ = read_own(first[0])
    records = list(islice(rows, _LOOKED_AT))
    if not records:
        raise DataError(f"{first[0]} has no rows")
    # A damaged row may lack some columns.
    return tuple(dict.fromkeys(chain.from_iterable(record.values for record in records)))


NAME = "table"
"""Name of the task, whatever the file is called: the text format begins with it."""
LONE = "a label of this row alone: it is learned from one row, or not at all"
"""Reason counted for such a row, which is kept."""

METRICS: dict[Kind, tuple[str, ...]] = {
    "classes": ("accuracy",),
    "number": ("pearson", "spearman"),
    "choice": ("accuracy",),
    "span": ("exact_match", "token_f1"),
    "text": ("chrf", "rouge1", "rouge2", "rougeL", "exact_text"),
}
"""Metrics of tasks without a publisher's, by kind."""
_UNANSWERABLE_METRICS = ("exact_match_v2", "token_f1_v2")
