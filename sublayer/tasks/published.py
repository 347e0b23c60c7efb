"""Published tasks: rows read as examples, with their faults counted; predictions written."""

import json
import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from sublayer.errors import DataError
from sublayer.files.lines import read_start, suffix_of
from sublayer.numbers import count
from sublayer.tasks.finding import FileLayout, Release, check_shards
from sublayer.tasks.records import (
    Record,
    begins_with,
    missing_column,
    read_csv,
    read_records,
    read_tsv_records,
)
from sublayer.tasks.task import Answer, Example, Prediction, Task
from sublayer.tasks.wording import Wording
from sublayer.values import is_missing

VERSION = 2
"""Incremented whenever any task's reader would read equal files differently."""

SAME_ID = "a duplicate id: its place in the file is added to it"
"""Repair of a row with a duplicate id."""


@dataclass
class ReadSplit:
    """A split of a task as read."""

    name: str
    """One of the task's ``splits``."""
    paths: tuple[Path, ...]
    """Files, in reading order."""
    examples: list[Example] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    """Counts of rows left out, by the reason."""
    repaired: Counter[str] = field(default_factory=Counter)
    """Counts of rows read differently from the file, by the repair."""
    kept: Counter[str] = field(default_factory=Counter)
    """Counts of faulty rows kept unchanged, so that all are scored, by the fault."""
    notes: list[str] = field(default_factory=list)
    """Notes on a whole file, such as how its quotes are read."""
    firsts: dict[str, str] = field(default_factory=dict)
    """First place of each reason: file and line."""
    numbers: Counter[str] = field(default_factory=Counter)
    """Number of questions of each passage so far."""
    n_rows: int = 0
    """Number of rows so far, including those left out."""
    _by_id: dict[str, Example] = field(default_factory=dict, repr=False)

    @property
    def is_test(self) -> bool:
        """True where rows need no labels."""
        return self.name.startswith("test")

    def add_known(self, example: Example, row: Record, *columns: str) -> bool:
        """Keep an example, unless it lacks a label or answer and is not in a test split.

        ``columns`` are possible columns of the label or answer. Return whether it was kept.
        """
        if example.is_labelled or self.is_test:
            return self.add(example, row)
        self.skip(NO_COLUMN if row.values.keys().isdisjoint(columns) else UNLABELLED, row.place)
        return False

    def add(self, example: Example, row: Record) -> bool:
        """Keep the example of a row; return whether it was kept.

        An exact duplicate is dropped; another example with the same id gets a unique id; both are
        counted.
        """
        earlier = self._by_id.get(example.id)
        if earlier is not None:
            if earlier == example:
                self.skip("the same row again", row.place)
                return False
            self.repair(SAME_ID, row.place)
            example = replace(example, id=f"{example.id} at {row.place}")
        self._by_id[example.id] = example
        self.examples.append(example)
        return True

    def skip(self, reason: str, where: str) -> None:
        """Drop the row at a place, such as ``train.tsv:12``, for a reason."""
        self.skipped[reason] += 1
        self.firsts.setdefault(reason, where)

    def repair(self, what: str, where: str) -> None:
        """Count a repair of the row at a place."""
        self.repaired[what] += 1
        self.firsts.setdefault(what, where)

    def keep(self, reason: str, where: str) -> None:
        """Count a faulty row at a place as kept."""
        self.kept[reason] += 1
        self.firsts.setdefault(reason, where)

    def cannot_learn(self, reason: str, where: str) -> bool:
        """Count a row without a correct answer: in training it is left out, else it is kept.

        Return whether it was left out.
        """
        if self.name == "train":
            self.skip(reason, where)
            return True
        self.keep(reason, where)
        return False

    def described(self) -> list[str]:
        """Describe rows left out, repaired and kept, with the place of the first."""
        others = self._describe(self.repaired, "repaired")
        others += self._describe(self.kept, "kept unchanged")
        return [*self.notes, *self.left_out(), *others]

    def left_out(self) -> list[str]:
        """Describe the rows left out, a line for each reason."""
        return self._describe(self.skipped, "left out")

    def _describe(self, counted: Mapping[str, int], what: str) -> list[str]:
        lines = []
        for reason, n in counted.items():
            where = self.firsts[reason]
            for path in self.paths:
                # The file's name without its folder, before the line number.
                within = where.removeprefix(str(path))
                if within.startswith(":"):
                    where = path.name + within
                    break
            first = f" ({where})" if n == 1 else f", first {where}"
            lines.append(f"{count(n, 'row')} {what}: {reason}{first}")
        return lines

    def kept_answers(
        self, placed: "Sequence[PlacedAnswer]", where: str
    ) -> tuple[Answer, ...] | None:
        """Return the gold answers of a question; in training only those found in the passage.

        None where training finds none of the given answers: the question is left out. Repaired
        answers, and questions kept despite a missing one, are counted.
        """
        located = [(answer, repair) for answer, repair in placed if answer.start is not None]
        if len(located) < len(placed):
            if self.name == "train" and not located:
                self.skip(NOT_FOUND, where)
                return None
            self.keep(NOT_FOUND, where)
        for repair in dict.fromkeys(repair for _, repair in located if repair):
            self.repair(repair, where)
        return tuple(answer for answer, _ in (located if self.name == "train" else placed))


UNLABELLED, NO_COLUMN = "no label (-1 or empty)", "no label (its column is missing)"
"""Reasons to leave out a row of a training or development set."""
NO_LABEL = -1
"""Label in the hub's copies where the publisher withholds the labels."""

_DECIMALS = 6
"""Decimals to keep of a number stored in single precision."""


def read_class(task: Task, written: object, where: str, choices: Sequence[str] = ()) -> int | None:
    """Return the index of a label, or None without one: -1, an empty text, null.

    ``choices`` are the label names of a task without labels of its own.

    Raises DataError, with the place and the possible labels, for anything else.
    """
    label, labels = _stripped(written), tuple(choices) or task.labels
    indices = _indices(labels)
    if label not in indices:
        listed = ", ".join(f"{name} ({index})" for index, name in enumerate(labels))
        raise DataError(f"{where}: {written!r} is not a label of {task.title}: {listed}")
    return indices[label]


@cache
def _indices(labels: tuple[str, ...]) -> Mapping[str | float | None, int | None]:
    """Return the index of each spelling of a label, None for spellings of no label."""
    indices: dict[str | float | None, int | None] = {None: None, "": None}
    for index in range(NO_LABEL, len(labels)):
        # pandas writes whole numbers with a decimal point in a column with gaps.
        ways = (index, str(index), f"{index}.0")
        indices |= dict.fromkeys(ways, None if index == NO_LABEL else index)
    return {**indices, **{label: index for index, label in enumerate(labels)}}


def _stripped(written: object) -> str | int | float | None:
    """Return a label stripped of white space, None for none, and the repr of any other value."""
    if written is None or (isinstance(written, float) and math.isnan(written)):
        return None
    if isinstance(written, str):
        return written.strip()
    if isinstance(written, int | float) and not isinstance(written, bool):
        return written
    return repr(written)


NOT_FOUND = "an answer that is not at its position in the passage"
"""Reason to leave a question out of a training set."""
MOVED = "an answer a few characters before its position"
SPACED = "an answer with white space around it"
"""Repairs of answers."""

_FEW = 8
"""Most characters of leading white space that copies strip from a passage."""


PlacedAnswer = tuple[Answer, str]
"""An answer, with or without a position, and its repair; empty: none."""


def place_answer(passage: str, text: str, start: int) -> PlacedAnswer:
    """Check a gold answer at its start position, in characters, and repair it.

    Two faults are repaired: white space around an answer, which some copies strip without moving
    its position; and stripped leading white space of a passage, as in some of SQuAD 2.0: there the
    answer begins a few characters earlier, and is moved only if a single position fits. Any other
    answer gets no position.
    """
    if text and start >= 0:
        if passage.startswith(text, start):
            return Answer(text, start), ""
        bare = text.strip()
        inside = start + len(text) - len(text.lstrip())
        for begin in (inside, start):
            if bare and bare != text and passage.startswith(bare, begin):
                return Answer(bare, begin), SPACED
        spaces = len(passage[start:]) - len(passage[start:].lstrip())
        if bare and spaces and passage.startswith(bare, start + spaces):
            return Answer(bare, start + spaces), SPACED
        earlier = [
            offset
            for offset in range(max(0, start - _FEW), start)
            if bare and passage.startswith(bare, offset)
        ]
        if len(earlier) == 1:
            return Answer(bare, earlier[0]), MOVED
    return Answer(text), ""


def is_blank(value: Any) -> bool:
    """Check whether a field is empty: a blank text, null, or NaN."""
    return not value.strip() if isinstance(value, str) else is_missing(value)


NO_TEXT = "no text (null)"
_JUDGED_ROWS = 8
_START_BYTES = 1 << 14
Found = Mapping[str, tuple[Path, ...]]
"""Files of each split found, by its name."""


PredictedRows = Sequence[tuple[Example, Prediction]]
"""Examples of a split, in order, with their predictions."""


@dataclass(frozen=True)
class AnswerFile:
    """A publisher's file of predictions for a task's split."""

    name: str
    n_rows: int = 0
    """Rows of the published set; 0 where rows cannot be generated without it."""
    most: Prediction | None = None
    """The published training set's majority; the first where classes are balanced; STS-B's mean, as
    measured. None: the task is submitted alone, and only if predicted."""
    labels: tuple[str, ...] = ()
    """Written labels, by index; empty: their indices."""
    split: str = "test"
    takes_text: bool = False
    """True where the chosen text is written, or else the written answer."""
    position: int = 0
    """Position in the publisher's list of files; equal ones keep the order of the tasks."""


@dataclass(frozen=True, kw_only=True)
class Published(ABC):
    """A row of the table of tasks: task, files, reading, wording and submission."""

    task: Task
    layout: FileLayout
    beside: FileLayout | None = None
    """Names of its files in another task's folder."""
    wording: Callable[[Task], Wording] | None = None
    """None: the wording of its kind."""
    reads_tsv: ClassVar[bool] = False
    """True where TSV rows to predict are read by its own reader."""
    release: Release | None = None
    """None: its publisher serves it only on request."""
    submission: tuple[AnswerFile, ...] = ()
    """Files of predictions; empty: its publisher takes none."""
    averages: tuple[str, ...] = ()
    """Titles of the averages that include its score."""

    @property
    def files(self) -> str:
        """Return the names of its files."""
        return self.layout.described()

    @cached_property
    def texts(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the columns of its texts, by our names."""
        return {name: (name,) for name in self.task.fields}

    def find(self, folder: Path, others: Sequence[FileLayout] = ()) -> Found:
        """Find its files in the suite's or task's folder, or one above.

        ``others`` are the layouts of all tasks: a ``folder`` named as one of them is not this
        task's.
        """
        files = self.layout.find_splits(folder, self.may_be, others)
        if self.beside is not None:
            files = self.beside.find_splits(folder, self.may_be, others) | files
        files = self.settle(files)
        return {split: files[split] for split in self.task.splits if split in files}

    def settle(self, files: dict[str, tuple[Path, ...]]) -> dict[str, tuple[Path, ...]]:
        """Select the files of each split among those found by name."""
        return files

    @abstractmethod
    def may_be(self, split: str, path: Path) -> bool:
        """Judge by its first rows whether a file may hold a split."""

    def first_names(self, path: Path) -> set[str]:
        """Return the field names of a file's first row; empty where it has none."""
        try:
            first = next(iter(self.records(path)), None)
        except DataError:
            return set()
        return set() if first is None else set(first.values)

    def records(self, path: Path) -> Iterator[Record]:
        """Read the rows of a file."""
        return read_records(path)

    @abstractmethod
    def add(self, row: Record, result: ReadSplit) -> None:
        """Add the examples of a row to a split."""

    def problem(self, row: Record) -> str:
        """Return why a row does not fit the task; empty where it does."""
        return row.problem

    def read(self, split: str, paths: tuple[Path, ...]) -> ReadSplit:
        """Read a split's files. Rows without a meaning are left out and counted.

        Raises DataError, with file and line, where a file has another format.
        """
        for folder in {path.parent for path in paths}:
            check_shards(tuple(path for path in paths if path.parent == folder))
        result = ReadSplit(split, paths)
        for path in paths:
            self.add_rows(self.records(path), path, result)
        return result

    def add_rows(self, rows: Iterable[Record], path: Path, result: ReadSplit) -> None:
        """Add the rows of a file to a split. Raises DataError where none fits the task."""
        before, problem, is_of = result.n_rows, "", False
        for row in rows:
            problem = self.problem(row)
            if problem:
                result.skip(problem, row.place)
            else:
                is_of = True
                self.add(row, result)
            result.n_rows += 1
        if result.n_rows == before:
            raise DataError(f"{path} has no rows of {self.task.title}")
        if not is_of:
            raise DataError(f"{path} is not of {self.task.title}: its rows have {problem}")

    def answer_files(
        self, file: AnswerFile, answered: PredictedRows, notes: list[str]
    ) -> Mapping[str, str]:
        """Return the contents of the files of predictions, by name: TSV or JSON lines, by suffix.

        Notes on answers that cannot be written are added to ``notes``.
        """
        if file.name.endswith(".tsv"):
            lines = [f"{example.id}\t{self.written(file, example, p)}" for example, p in answered]
            lines.insert(0, "index\tprediction")
        else:
            rows = self.answer_rows(file, answered)
            lines = [json.dumps(row, ensure_ascii=False) for row in rows]
        return {file.name: "".join(f"{line}\n" for line in lines)}

    def answer_rows(self, file: AnswerFile, answered: PredictedRows) -> Iterator[dict[str, Any]]:
        """Yield the objects of JSON lines."""
        for example, prediction in answered:
            label = self.written(file, example, prediction)
            yield {"idx": self.published_number(example), "label": label}

    def published_number(self, example: Example) -> int:
        """Return an example's number in the publisher's files."""
        return int(example.id)

    def written(self, file: AnswerFile, example: Example, prediction: Prediction) -> str | int:
        """Return a prediction as the file writes it. Raises DataError for a number that is not
        finite."""
        if file.takes_text:
            return example.answer_text(prediction)
        label = prediction.label
        assert label is not None, "filled"
        if self.task.kind != "number":
            return file.labels[int(label)] if file.labels else int(label)
        if not math.isfinite(label):
            raise DataError(f"a prediction for {self.task.title} is {label}, not a finite number")
        lowest, highest = self.task.numbers
        return f"{min(max(label, lowest), highest):.3f}"


@dataclass(frozen=True, kw_only=True)
class ColumnsTask(Published):
    """A task with tables as files, one row for each example."""

    reads_tsv: ClassVar[bool] = True
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Column names of texts, the publisher's and the hub's, by the task's fields; a missing field's
    column has the field's name."""
    label: tuple[str, ...] = ("label",)
    choices: tuple[str, ...] = ()
    """Columns of the choices; labels may also be given by their names."""
    ids: tuple[str, ...] = ("idx", "index", "id")
    source: str = ""
    """Field with the text that examples of one source share; empty: each is its own source."""
    group: str = ""
    """Column that groups examples scored together."""
    without_header: tuple[str, ...] = ()
    """Columns of TSV without a header, in order."""
    no_labels: Mapping[str, str] = field(default_factory=dict)
    """Words in place of a label, with the reason to leave the row out."""
    synonyms: Mapping[str, str] = field(default_factory=dict)
    """Labels by their other names in some files."""
    quoted: tuple[str, ...] = ()
    """TSV files with fields quoted as in CSV."""
    may_end_early: bool = False
    """True where rows may lack columns after those that are read."""

    @cached_property
    def texts(self) -> Mapping[str, tuple[str, ...]]:
        """Names of the columns of its texts, by our names."""
        return {name: self.columns.get(name, (name,)) for name in self.task.fields}

    def may_be(self, split: str, path: Path) -> bool:
        """Read the first rows."""
        try:
            first = islice(self.records(path), _JUDGED_ROWS)
            self.add_rows(first, path, ReadSplit(split, (path,)))
        except DataError:
            return False
        return True

    def records(self, path: Path) -> Iterator[Record]:
        """Read the rows of a file of any kind; ``.txt`` is TSV, or else JSON lines."""
        suffix = suffix_of(path)
        if path.name.lower() in self.quoted:
            return read_csv(path, "\t")
        if suffix == ".csv" and self.without_header:
            has_tabs = b"\t" in read_start(path, _START_BYTES).partition(b"\n")[0]
            suffix = ".tsv" if has_tabs else suffix
        if suffix == ".txt" and begins_with(path, b"{"):
            return read_records(path, ".jsonl")
        if suffix in (".tsv", ".txt"):
            return read_tsv_records(path, self.without_header, self.has_texts)
        return read_records(path)

    def has_texts(self, names: Iterable[str]) -> bool:
        """Return whether columns with these names include all texts."""
        there = set(names)
        return all(there.intersection(aliases) for aliases in self.texts.values())

    def problem(self, row: Record) -> str:
        """Return why a row lacks these columns; empty where it has them."""
        if not row.problem or not self.may_end_early or not self.has_texts(row.values):
            return row.problem
        is_whole = row.problem.startswith("fewer") and not row.values.keys().isdisjoint(self.label)
        return "" if is_whole else row.problem

    def add(self, row: Record, result: ReadSplit) -> None:
        """Add the example of a row, if it has texts and, outside a test split, a label."""
        example = self.example(row, result)
        if example is not None:
            result.add_known(example, row, *self.label)

    def example(self, row: Record, result: ReadSplit) -> Example | None:
        """Return the example of a row; None where a text is null, or its label means none.

        Ids are the publisher's, or else row numbers from 0, counting rows that are left out. Raises
        DataError for a missing column, and for an invalid label.
        """
        task, values = self.task, row.values
        aliases = (*self.texts.values(), self.label, self.ids)
        *theirs, label_column, id_column = _columns_among(aliases, tuple(values))
        needed = theirs if result.is_test else [*theirs, label_column]
        if None in needed:
            # Rows of a table all have the columns of its header; JSON objects may differ.
            has_own = isinstance(row.path, Path) and "json" in suffix_of(row.path) and row.line > 1
            where = row.place if has_own else row.path
            raise missing_column(where, aliases[needed.index(None)], values)
        columns = {ours: name for ours, name in zip(self.texts, theirs, strict=True) if name}
        if any(values[name] is None for name in columns.values()):
            result.skip(NO_TEXT, row.place)
            return None
        written = None if label_column is None else values[label_column]
        if self.no_labels and str(written) in self.no_labels:
            result.skip(self.no_labels[str(written)], row.place)
            return None
        if isinstance(written, str):
            written = self.synonyms.get(written, written)
        label: int | float | None = None
        if task.kind != "number":
            label = read_class(task, written, row.place, self.choices)
        elif (number := _stripped(written)) is not None and number != "":
            low, high = task.numbers
            try:
                label = float(number)
            except ValueError:
                label = math.nan
            if label == NO_LABEL:
                label = None
            elif not low <= label <= high:
                raise DataError(
                    f"{row.place}: {written!r} is not a label of {task.title}, a number "
                    f"from {low:g} to {high:g}"
                )
            else:
                label = round(label, _DECIMALS)
        texts = {ours: row.text(name) for ours, name in columns.items()}
        id_ = None if id_column is None else values[id_column]
        return Example(
            id=str(result.n_rows if id_ is None else id_),
            fields=texts,
            label=label,
            choices=tuple(row.text(name) for name in self.choices),
            is_labelled=label is not None,
            group=str(values[self.group]) if self.group and row.has(self.group) else "",
            source=texts[self.source] if self.source else "",
        )


def as_json_object(values: Mapping[str, Any]) -> str:
    """Return the text of a file with one JSON object, one member a line."""
    return json.dumps(values, ensure_ascii=False, indent=0) + "\n"


@lru_cache(64)
def _columns_among(
    aliases: tuple[tuple[str, ...], ...], there: tuple[str, ...]
) -> tuple[str | None, ...]:
    """Return the first existing name of each group; None where none exists."""
    return tuple(next((name for name in names if name in there), None) for names in aliases)
