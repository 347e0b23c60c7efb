"""Examples of a split as read: labels and spans checked, rows dropped or repaired."""

import math
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

from sublayer.counts import count
from sublayer.errors import ConfigError, DataError
from sublayer.tasks.records import Record
from sublayer.tasks.task import Answer, Example, Task
from sublayer.values import is_missing

VERSION = 2
"""Changes whenever equal files would be read otherwise, by the reader of any task."""

SAME_ID = "an id that another row has: its place in the file is its id"
"""Repair of such a row."""


@dataclass
class ReadSplit:
    """A split of a task as read."""

    name: str
    """One of the task's ``splits``."""
    paths: tuple[Path, ...]
    """The files, in the order in which they were read."""
    examples: list[Example] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    """Rows that were left out, by the reason."""
    repaired: Counter[str] = field(default_factory=Counter)
    """Rows that were read otherwise than they are written, by the repair."""
    kept: Counter[str] = field(default_factory=Counter)
    """Rows with a fault that are kept as they are, so that all are scored, by the fault."""
    notes: list[str] = field(default_factory=list)
    """Notes on a whole file, such as how its quotes are read."""
    firsts: dict[str, str] = field(default_factory=dict)
    """For each reason the first place: file and line."""
    numbers: Counter[str] = field(default_factory=Counter)
    """Questions of each passage so far."""
    n_rows: int = 0
    """Rows that were read so far, those left out included."""
    _by_id: dict[str, Example] = field(default_factory=dict, repr=False)

    @property
    def is_test(self) -> bool:
        """True where rows need no labels."""
        return self.name.startswith("test")

    def add_known(self, example: Example, row: Record, *columns: str) -> bool:
        """Keep an example, unless it lacks a label or answer outside a test.

        ``columns`` are those of which one has the label or answer. Return whether it was kept.
        """
        if example.is_labelled or self.is_test:
            return self.add(example, row)
        self.skip(NO_COLUMN if row.values.keys().isdisjoint(columns) else UNLABELLED, row.place)
        return False

    def add(self, example: Example, row: Record) -> bool:
        """Keep the example of a row; return whether it was kept.

        Duplicates with equal id are dropped; other examples with a duplicate id get a unique one;
        both are counted.
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
        """Count a row that has no right answer: in training it is left out, else it is kept.

        Return whether it was left out.
        """
        if self.name == "train":
            self.skip(reason, where)
            return True
        self.keep(reason, where)
        return False

    def described(self) -> list[str]:
        """Describe dropped, repaired and kept rows, with the file of the first."""
        notes = [*self.notes]
        for counted, what in (
            (self.skipped, "left out"),
            (self.repaired, "repaired"),
            (self.kept, "kept as it is"),
        ):
            for reason, n in counted.items():
                where = self._in_file(self.firsts[reason])
                first = f" ({where})" if n == 1 else f", first {where}"
                notes.append(f"{count(n, 'row')} {what}: {reason}{first}")
        return notes

    def _in_file(self, where: str) -> str:
        for path in self.paths:
            within = where.removeprefix(str(path))
            if within.startswith(":"):
                return path.name + within
        return where


UNLABELLED, NO_COLUMN = "no label (-1 or empty)", "no label (its column is missing)"
"""Reason to leave out a row of a training or development set."""
NO_LABEL = -1
"""Label that the hub's copies have where the publisher keeps the labels to himself."""

_DECIMALS = 6
"""Those that a number keeps that was stored in single precision."""


def read_class(task: Task, written: object, where: str, choices: Sequence[str] = ()) -> int | None:
    """Return the index of a label, or None where none is given: -1, an empty text, null.

    ``choices`` are the names of labels of a task that has none of its own.

    Raises DataError, with its place and the labels there are, for anything else.
    """
    label, labels = _stripped(written), tuple(choices) or task.labels
    indices = _indices(labels)
    if label not in indices:
        listed = ", ".join(f"{name} ({index})" for index, name in enumerate(labels))
        raise DataError(f"{where}: {written!r} is no label of {task.title}: {listed}")
    return indices[label]


@cache
def _indices(labels: tuple[str, ...]) -> Mapping[str | float | None, int | None]:
    """Return the index of each way to write a label, or None for those that mean none."""
    indices: dict[str | float | None, int | None] = {None: None, "": None}
    for index in range(NO_LABEL, len(labels)):
        # A table with gaps, as pandas writes it, has whole numbers with a decimal point.
        ways = (index, str(index), f"{index}.0")
        indices |= dict.fromkeys(ways, None if index == NO_LABEL else index)
    return {**indices, **{label: index for index, label in enumerate(labels)}}


def read_number(task: Task, written: object, where: str) -> float | None:
    """Return a number, or None where none is given: -1, an empty text, null.

    Raises DataError, with its place, for a value that is no number within the task's bounds.
    """
    low, high = task.numbers
    label = _stripped(written)
    if label is None or label == "":
        return None
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    if number == NO_LABEL:
        return None
    if not low <= number <= high:
        raise DataError(
            f"{where}: {written!r} is no number from {low:g} to {high:g}, as {task.title} has them"
        )
    return round(number, _DECIMALS)


def label_places(words: Sequence[str], task: Task) -> tuple[int, ...]:
    """Return the index of each task label's word in ``words``.

    Capitals do not count, nor whether words are joined by spaces, hyphens or underscores. Raises
    ConfigError where the words differ from the labels: an order is never guessed.
    """
    plain = [_plain(word) for word in words]
    wanted = [_plain(label) for label in task.labels]
    if sorted(plain) != sorted(wanted):
        named = ", ".join(words)
        raise ConfigError(
            f"the model's labels are {named:.200}, those of {task.title} {', '.join(task.labels)}: "
            "which is which is not guessed; write the words into id2label of config.json, and "
            "import it again"
        )
    return tuple(plain.index(label) for label in wanted)


def _plain(label: str) -> str:
    return "_".join(label.casefold().replace("-", " ").replace("_", " ").split())


def _stripped(written: object) -> str | int | float | None:
    """Return a label without blanks, None for none at all, and any other value as it is shown."""
    if written is None or (isinstance(written, float) and math.isnan(written)):
        return None
    if isinstance(written, str):
        return written.strip()
    if isinstance(written, int | float) and not isinstance(written, bool):
        return written
    return repr(written)


NOT_FOUND = "an answer that its passage does not have in its place"
"""Reason to leave a question out of a training set."""
MOVED = "an answer that begins a few characters before its place"
SPACED = "an answer with white space around it"
"""Repairs."""

_FEW = 8
"""At most so many characters of white space were taken from the beginning of a passage."""


@dataclass(frozen=True, slots=True)
class PlacedAnswer:
    """An answer, with or without a place, and the repair made; empty: none."""

    answer: Answer
    repair: str = ""


def place_answer(passage: str, text: str, start: int) -> PlacedAnswer:
    """Check a gold answer at its start position, in characters, and repair it.

    Two things are repaired: white space around an answer, which some copies take away without
    moving its place; and passages whose leading white space was taken away in the same manner, of
    which SQuAD 2.0 has some: there the answer begins a few characters earlier, and only where one
    place alone fits. Of all others the answer has no place.
    """
    if text and start >= 0:
        if passage.startswith(text, start):
            return PlacedAnswer(Answer(text, start))
        bare = text.strip()
        inside = start + len(text) - len(text.lstrip())
        for begin in (inside, start):
            if bare and bare != text and passage.startswith(bare, begin):
                return PlacedAnswer(Answer(bare, begin), SPACED)
        spaces = len(passage[start:]) - len(passage[start:].lstrip())
        if bare and spaces and passage.startswith(bare, start + spaces):
            return PlacedAnswer(Answer(bare, start + spaces), SPACED)
        earlier = [
            offset
            for offset in range(max(0, start - _FEW), start)
            if bare and passage.startswith(bare, offset)
        ]
        if len(earlier) == 1:
            return PlacedAnswer(Answer(bare, earlier[0]), MOVED)
    return PlacedAnswer(Answer(text))


SEVERAL = "an answer that its passage has in several places: the first of them"
"""Repair of an answer without a place."""


def is_blank(value: Any) -> bool:
    """Check whether a field is empty: a blank text, null, or NaN."""
    return not value.strip() if isinstance(value, str) else is_missing(value)


def word_of(value: Any, where: str) -> str:
    """Return a label as a word, without white space around it; empty for none.

    Whole numbers and truths are words, too. Raises DataError for other numbers, and for lists.
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


def sorted_words(words: Iterable[str], where: str) -> tuple[str, ...]:
    """Return the distinct labels in order: whole numbers by value, all else as words.

    Raises DataError, which says where they stand, if all are numbers and some not whole: these are
    no classes.
    """
    distinct = sorted(set(words))
    numbers = [_number(word) for word in distinct]
    if any(number is None for number in numbers):
        return tuple(distinct)
    odd = [w for w, n in zip(distinct, numbers, strict=True) if n and not n.is_integer()]
    if odd and not math.isfinite(float(odd[-1])):
        raise DataError(
            f"{where} has numbers, and {odd[-1]!r} among them: empty it where it means that a "
            "label is missing, or write classes as words"
        )
    if odd:
        raise DataError(
            f"{where} has numbers such as {odd[0]}: predict them as such (--number, or number "
            "instead of label in data.columns), or write classes as words"
        )
    return tuple(sorted(distinct, key=lambda word: (float(word), word)))


def same_number(word: str, labels: Sequence[str]) -> str:
    """Return the label that is the same number as a word, as 1 is 1.0; empty where none is."""
    number = _number(word)
    return next((label for label in labels if number is not None and _number(label) == number), "")


def number_of(value: Any, where: str) -> float | None:
    """Return a number, or None for none; raise DataError for a value that is no finite one."""
    if is_blank(value):
        return None
    number = None if isinstance(value, bool) else _number(value)
    if number is None or not math.isfinite(number):
        raise DataError(
            f"{where}: the label {value!r} is no number: write it with a decimal point and without "
            "a unit, or empty it where it is missing"
        )
    return number


def choice_of(value: Any, names: Sequence[str], choices: Sequence[str], where: str) -> int | None:
    """Return the index of the right choice, or None where unlabelled.

    It may be said by the name of its column, by its text, by its letter, from A, or by its number,
    from 0. Raises DataError where it is none of these, or means different ones.
    """
    word = word_of(value, where)
    if not word:
        return None
    if word in names:
        return names.index(word)
    meant = {index for index, choice in enumerate(choices) if choice.strip() == word}
    letters = string.ascii_uppercase[: len(choices)]
    if len(word) == 1 and word in letters:
        meant.add(letters.index(word))
    if word.isdecimal() and int(word) < len(choices):
        meant.add(int(word))
    if len(meant) > 1:
        of_columns = " or ".join(names[index] for index in sorted(meant))
        raise DataError(f"{where}: the label {word!r} may mean {of_columns}: write that name")
    if not meant:
        raise DataError(
            f"{where}: the label {word!r} is no choice: write its text, its column "
            f"({', '.join(names)}), its letter ({letters[0]} to {letters[-1]}) or its number "
            f"(0 to {len(choices) - 1})"
        )
    return meant.pop()


def is_unanswerable(answers: Any) -> bool:
    """Check whether a question is marked unanswerable: by an empty list."""
    return answers == [] or (isinstance(answers, dict) and answers.get("text") == [])


def spans_of(answers: Any, start: Any, passage: str, where: str) -> list[PlacedAnswer] | None:
    """Return the gold answers to a question, or None where unlabelled.

    ``answers`` is a text, or a list of them, or of texts and their places as SQuAD's are in the
    hub's copies; an empty list is said of a question without an answer. ``start`` is the place of a
    text, in characters; without one, it is where the passage has the text first.

    Raises DataError for any other value.
    """
    if is_blank(answers):
        return None
    if isinstance(answers, str):
        return [_placed(answers, start, passage, where)]
    if isinstance(answers, dict):
        texts, starts = answers.get("text"), answers.get("answer_start")
        if not isinstance(texts, list) or not isinstance(starts, list):
            raise DataError(f"{where}: an answer has no lists text and answer_start")
    else:
        texts, starts = answers, [None] * len(answers) if isinstance(answers, list) else None
    if not isinstance(texts, list) or starts is None or len(texts) != len(starts):
        raise DataError(f"{where}: the answer {answers!r} is neither a text nor a list of them")
    if not all(isinstance(text, str) for text in texts):
        raise DataError(f"{where}: not all answers in {texts!r} are texts")
    return [_placed(text, at, passage, where) for text, at in zip(texts, starts, strict=True)]


def texts_of(value: Any, column: str, where: str) -> list[str]:
    """Return the texts of a column that has one in each row, or a list; none where it is blank.

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
            raise DataError(f"{where}: an answer begins at {start!r}, which is no whole number")
        return place_answer(passage, text, int(number))
    bare = text.strip()
    first = passage.find(bare) if bare else -1
    if first < 0:
        return PlacedAnswer(Answer(text))
    return PlacedAnswer(Answer(bare, first), SEVERAL if passage.find(bare, first + 1) > 0 else "")


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except (TypeError, ValueError):
        return None
    return None if "_" in str(value) else number


def labelled_rows(task: Task, train: Sequence[Example]) -> list[Example]:
    """Return the training rows that have a label. Raises DataError where there are none."""
    rows = [example for example in train if example.is_labelled]
    if not rows:
        raise DataError(
            f"{task.title} has no training rows with a label: without them its baselines are not "
            "known"
        )
    return rows


def kept_answers(
    placed: Sequence[PlacedAnswer], result: ReadSplit, where: str
) -> tuple[Answer, ...] | None:
    """Return the gold answers of a question, in training those that their passage has.

    None where it has none of several in training: the question is left out. Repaired answers, and
    questions kept otherwise, are counted.
    """
    located = [span for span in placed if span.answer.start is not None]
    if len(located) < len(placed):
        if result.name == "train" and not located:
            result.skip(NOT_FOUND, where)
            return None
        result.keep(NOT_FOUND, where)
    for repair in dict.fromkeys(span.repair for span in located if span.repair):
        result.repair(repair, where)
    return tuple(span.answer for span in (located if result.name == "train" else placed))
