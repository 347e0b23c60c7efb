"""A task, its examples and their division, and predictions."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["classes", "choice", "number", "span", "text"]
"""Kind of answer: one of the labels, one of the example's own choices, a number, a span of the
passage, or a text that is written."""


@dataclass(frozen=True)
class Task:
    """A row of the table of tasks."""

    name: str
    """As recipes and commands say it, such as ``sst2``."""
    title: str
    """As its publisher writes it, such as ``SST-2``."""
    suite: str
    """``glue``, ``superglue``, ``squad``, ``race``, ``nli``, ``cloze`` or ``dpr``."""
    kind: Kind
    fields: tuple[str, ...]
    """The names of its texts, in the order in which they are read: of a pair the first text, and
    then the second; of a question about a passage the passage first."""
    metrics: tuple[str, ...]
    """Names of ``METRICS``; the task's score is the mean of those that count for it."""
    labels: tuple[str, ...] = ()
    """Of ``classes``: the words of the labels, by index."""
    is_symmetric: bool = False
    """True where the two texts may be exchanged."""
    numbers: tuple[float, float] = (0.0, 1.0)
    """Of ``number``: the lowest and the highest."""
    is_bounded: bool = True
    """Of ``number``: whether there is none beyond those."""
    has_unanswerable: bool = False
    """Of ``span``: whether some questions have no answer in their passage."""
    splits: tuple[str, ...] = ("train", "dev", "test")
    """Those that its publisher has; ``dev`` and ``test`` may be several: ``dev_matched``."""
    trained_as: str = ""
    """Of a diagnostic set: the task whose model answers it, such as ``mnli``."""

    @property
    def dev_splits(self) -> tuple[str, ...]:
        """Return the scored splits: the published development set."""
        return tuple(name for name in self.splits if name.startswith("dev"))

    @property
    def test_splits(self) -> tuple[str, ...]:
        """Return the splits of tests: most have no labels, and predictions are handed in."""
        return tuple(name for name in self.splits if name.startswith("test"))


@dataclass(frozen=True, slots=True)
class Answer:
    """A gold answer."""

    text: str
    start: int | None = None
    """Place in the passage where it begins, in characters; None of one that is a text alone."""


@dataclass(frozen=True, slots=True)
class Example:
    """A row of a task, as its publisher means it.

    Texts are as published: formats change them, readers do not.
    """

    id: str
    """The publisher's, or else the number of its row, from 0; unique within a split."""
    fields: Mapping[str, str]
    """Texts by the names of ``Task.fields``, in that order."""
    label: int | float | None = None
    """The index of its class or of its right choice, or a number; None where it has none: in a
    test split, and where ``answers`` have the gold ones."""
    choices: tuple[str, ...] = ()
    """The answers to choose from; none where the labels are the same for all examples."""
    answers: tuple[Answer, ...] = ()
    """Gold answers of a question, or references of a text, any of which is right; none where the
    question has none, or where it is not known."""
    is_labelled: bool = True
    """True where its label or its answers are known."""
    group: str = ""
    """Examples of one group are scored together, such as the answers to a question; empty: alone.
    """
    source: str = ""
    """The passage, article or document that it is about: examples of one source never stand on
    both sides of a division. Empty: its own."""
    extra: Mapping[str, int] = field(default_factory=dict)
    """Numbers that belong to its texts, by the publisher's names, such as WSC's ``span2_index``."""

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts, which identify an example."""
        return (*self.fields.values(), *self.choices)


@dataclass(frozen=True, slots=True)
class Prediction:
    """An answer with confidence. The task's kind determines the fields set."""

    label: int | float | None = None
    """Of ``classes`` and ``choice`` an index, of ``number`` the number; None where a text that was
    written is none of the labels, or no number."""
    probabilities: tuple[float, ...] = ()
    """Of each label or choice; empty where the model gives none."""
    text: str = ""
    """Of ``span`` the answer, empty for none; of text to text the written text."""
    start: int | None = None
    """Of ``span``: where it begins in the passage, in characters."""
    is_cut: bool = False
    """True where the example is longer than the model reads, and was cut."""
    no_answer: float = 0.0
    """Of ``span`` with unanswerable questions: the score of no answer, more the likelier."""


def answer_text(example: Example, prediction: Prediction) -> str:
    """Return the answered text, or the choice's text."""
    if example.choices and prediction.label is not None:
        return example.choices[int(prediction.label)]
    return prediction.text


_Class = int | bool
"""A label or the index of a choice; without one, whether there are answers."""


def held_out(examples: Sequence[Example], share: float, at_most: int) -> NDArray[np.bool_]:
    """Select the held-out examples: a share, and at most ``at_most``.

    Examples of one source, one group or equal texts stay together. These bundles are taken in an
    order that depends only on their texts: first those that bring every class nearer to its share,
    then the sum. There may be fewer where sources are large, but at least one bundle, if there are
    two and ``at_most`` allows it.
    """
    assert 0 < share < 1, "the rest is trained on"
    result = np.zeros(len(examples), dtype=np.bool_)
    n_wanted = min(share * len(examples), at_most)
    if n_wanted <= 0:
        return result
    counts = Counter(map(_class, examples))
    wanted = {label: n_wanted * n / len(examples) for label, n in counts.items()}
    n_missing, n_allowed = n_wanted, at_most
    bundles = bundles_of(examples)

    def change(rows: list[int], *, weighs_sum: bool = True) -> float:
        """Return the change of deviation from the shares, of classes and sum, by adding rows."""
        added = Counter(_class(examples[row]) for row in rows)
        of_classes = sum(abs(wanted[label] - n) - abs(wanted[label]) for label, n in added.items())
        return of_classes + (abs(n_missing - len(rows)) - abs(n_missing) if weighs_sum else 0.0)

    for weighs_sum in (False, True):
        for rows in bundles:
            if n_missing <= 0:
                break
            if result[rows[0]] or len(rows) > n_allowed:
                continue
            if change(rows, weighs_sum=weighs_sum) < 0:
                result[rows] = True
                n_missing -= len(rows)
                n_allowed -= len(rows)
                for class_, n in Counter(_class(examples[row]) for row in rows).items():
                    wanted[class_] -= n
    allowed = [rows for rows in bundles if len(rows) <= n_allowed]
    if not result.any() and allowed and len(bundles) > 1:
        result[min(allowed, key=change)] = True
    return result


def _class(example: Example) -> _Class:
    return example.label if isinstance(example.label, int) else bool(example.answers)


def bundles_of(examples: Sequence[Example]) -> list[list[int]]:
    """Return the rows of each indivisible bundle, by common texts, source or group.

    Bundles are ordered by the least hash of their keys.
    """
    parents: dict[bytes, bytes] = {}
    keys = []
    for example in examples:
        # An example's texts, whatever their order, its source and its group.
        hashes = [_hash("texts", *sorted([*example.fields.values(), *example.choices]))]
        hashes += [_hash("source", example.source)] if example.source else []
        hashes += [_hash("group", example.group)] if example.group else []
        roots = [_root(parents, key) for key in hashes]
        least = min(roots)
        parents.update((root, least) for root in roots)
        keys.append(least)
    bundles = defaultdict(list)
    for row, key in enumerate(keys):
        bundles[_root(parents, key)].append(row)
    return [rows for _, rows in sorted(bundles.items())]


def _root(parents: dict[bytes, bytes], key: bytes) -> bytes:
    while (parent := parents.setdefault(key, key)) != key:
        parents[key] = parents[parent]
        key = parent
    return key


def _hash(kind: str, *texts: str) -> bytes:
    written = kind + "".join([f"\n{len(text)}:{text}" for text in texts])
    return hashlib.blake2b(written.encode("utf-8", "surrogatepass"), digest_size=16).digest()
