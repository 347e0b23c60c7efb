"""A task, its examples, predictions, and held-out examples."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Kind = Literal["classes", "choice", "number", "span", "text"]
"""Kind of answer: one of the labels, one of the example's choices, a number, a span of the passage,
or a written text."""


@dataclass(frozen=True)
class Task:
    """A row of the table of tasks."""

    name: str
    """Name in recipes and commands, such as ``sst2``."""
    title: str
    """Name as its publisher writes it, such as ``SST-2``."""
    suite: str
    """``glue``, ``superglue``, ``squad``, ``race``, ``nli``, ``cloze`` or ``dpr``."""
    kind: Kind
    fields: tuple[str, ...]
    """Names of its texts, in reading order: in a pair the first text, then the second; with a
    question about a passage the passage first."""
    metrics: tuple[str, ...]
    """Names in ``METRICS``; the task's score is the mean of those that are part of it."""
    labels: tuple[str, ...] = ()
    """Names of the labels of ``classes``, by index."""
    is_symmetric: bool = False
    """True where the order of the two texts does not matter."""
    numbers: tuple[float, float] = (0.0, 1.0)
    """Lowest and highest value of ``number``."""
    is_bounded: bool = True
    """Whether ``number`` is never outside these bounds."""
    has_unanswerable: bool = False
    """Whether some questions of ``span`` have no answer in their passage."""
    splits: tuple[str, ...] = ("train", "dev", "test")
    """Splits as published; there may be several of ``dev`` and ``test``: ``dev_matched``."""
    trained_as: str = ""
    """Task whose model answers this diagnostic set, such as ``mnli``."""

    @property
    def dev_splits(self) -> tuple[str, ...]:
        """Return the scored splits: the published development set."""
        return tuple(name for name in self.splits if name.startswith("dev"))

    @property
    def test_splits(self) -> tuple[str, ...]:
        """Return the test splits: most have no labels, and their predictions are submitted."""
        return tuple(name for name in self.splits if name.startswith("test"))


@dataclass(frozen=True, slots=True)
class Answer:
    """A gold answer."""

    text: str
    start: int | None = None
    """Start position in the passage, in characters; None for an answer without a position."""


@dataclass(frozen=True, slots=True)
class Example:
    """An example of a task, as its publisher means it.

    Texts are as published: input formats change them, readers do not.
    """

    id: str
    """The publisher's id, or else its row number, from 0; unique within a split."""
    fields: Mapping[str, str]
    """Texts by the names of ``Task.fields``, in that order."""
    label: int | float | None = None
    """Index of its class or of its correct choice, or its number; None where it has none: in a test
    split, and where ``answers`` hold the gold answers."""
    choices: tuple[str, ...] = ()
    """The answers to choose from; empty where all examples share the labels."""
    answers: tuple[Answer, ...] = ()
    """Gold answers of a question, or references of a text, each of them correct; empty where the
    question has none, or where they are unknown."""
    is_labelled: bool = True
    """True where its label or its answers are known."""
    group: str = ""
    """Examples of one group are scored together, such as the answers to one question; empty: scored
    alone.
    """
    source: str = ""
    """Its passage, article or document: examples of one source are never divided between training
    and held-out examples. Empty: a source of its own."""
    extra: Mapping[str, int] = field(default_factory=dict)
    """Numbers about its texts, by the publisher's names, such as WSC's ``span2_index``."""

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts; they identify an example."""
        return (*self.fields.values(), *self.choices)

    def answer_text(self, prediction: "Prediction") -> str:
        """Return the answered text, or the choice's text."""
        if self.choices and prediction.label is not None:
            return self.choices[int(prediction.label)]
        return prediction.text


@dataclass(frozen=True, slots=True)
class Prediction:
    """A predicted answer with its confidence. The task's kind determines the fields set."""

    label: int | float | None = None
    """Index for ``classes`` and ``choice``, the number for ``number``; None where a written text is
    none of the labels, or not a number."""
    probabilities: tuple[float, ...] = ()
    """Probability of each label or choice; empty where the model gives none."""
    text: str = ""
    """The answer for ``span``, empty for none; for text to text the written text."""
    start: int | None = None
    """Start position of a ``span`` in the passage, in characters."""
    is_cut: bool = False
    """True where the example exceeds the model's context, and was cut."""
    no_answer: float = 0.0
    """Score of no answer for ``span`` with unanswerable questions; higher is likelier."""


_Class = int | bool
"""A label or the index of a choice; for spans, whether there are answers."""


def held_out(examples: Sequence[Example], share: float, at_most: int) -> NDArray[np.bool_]:
    """Select the held-out examples: a share, and at most ``at_most``.

    Examples of one source, one group or equal texts stay together in a bundle. Bundles are taken in
    an order that depends only on their texts: first those that bring every class nearer to its
    share, then those that bring the total nearer. Large sources may leave fewer, but at least one
    bundle is held out, if there are two and ``at_most`` allows it.
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
        """Return by how much adding rows changes the deviation from the classes' shares and the
        sum."""
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
    """Return the rows of each indivisible bundle: examples with a common text, source or group.

    Bundles are ordered by the smallest hash of their keys.
    """
    parents: dict[bytes, bytes] = {}
    keys = []
    for example in examples:
        # An example's texts, in any order, its source and its group.
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
