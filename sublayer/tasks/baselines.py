"""Baselines of every score: majority answer, bag of words, copy."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from sublayer.tasks.reading import labelled_rows
from sublayer.tasks.scripts import OTHER_ENDS
from sublayer.tasks.task import Example, Kind, Prediction, Task

_SENTENCE_END = re.compile(rf"(?<=[.!?])\s|(?<=[{OTHER_ENDS}])")


@dataclass(frozen=True)
class Baseline:
    """A row of ``BASELINES``."""

    name: str
    describe: Callable[[Task], str]
    """Describes the baseline of a task in a few words."""
    predict: Callable[[Task, Sequence[Example], Sequence[Example]], list[Prediction]]
    """Learns from the first examples, and predicts the second.

    Raises DataError where it has to learn and no training row has a label."""
    kinds: tuple[Kind, ...]
    """Kinds of tasks that it answers."""


def describe_majority(task: Task) -> str:
    """Return the majority's answer to a task in a few words."""
    if task.kind == "span":
        return "no answer" if task.has_unanswerable else "the passage's first sentence"
    return {
        "classes": "the most frequent label of the training rows",
        "number": "the mean of the training rows",
        "text": "the most frequent text of the training rows",
        "choice": "the place where the right choice of the training rows stands most often",
    }[task.kind]


def majority(task: Task, train: Sequence[Example], scored: Sequence[Example]) -> list[Prediction]:
    """Predict one answer for all: see ``describe_majority``.

    A choice that an example does not have is its first. Raises DataError where no training row has
    a label, but for spans, of which nothing is learned.
    """
    if task.kind == "span":
        return [_trivial_span(task, example) for example in scored]
    rows = labelled_rows(task, train)
    if task.kind == "text":
        texts = Counter(answer.text for example in rows for answer in example.answers)
        return [Prediction(text=texts.most_common(1)[0][0])] * len(scored)
    if task.kind == "number":
        mean = float(np.mean([example.label for example in rows]))
        return [Prediction(mean)] * len(scored)
    if task.kind == "classes":
        counts = np.bincount([int(example.label or 0) for example in rows], None, len(task.labels))
        probabilities = tuple((counts / len(rows)).tolist())
        return [Prediction(int(counts.argmax()), probabilities)] * len(scored)
    index = int(np.bincount([_right_choice(example) for example in rows]).argmax())
    return [Prediction(index if index < len(example.choices) else 0) for example in scored]


def _right_choice(example: Example) -> int:
    if example.label is not None:
        return int(example.label)
    golds = {answer.text for answer in example.answers}
    right = [index for index, choice in enumerate(example.choices) if choice in golds]
    return right[0] if right else 0


def _trivial_span(task: Task, example: Example) -> Prediction:
    if task.has_unanswerable:
        return Prediction(no_answer=1.0)
    passage = example.fields[task.fields[0]]
    return Prediction(text=_SENTENCE_END.split(passage, maxsplit=1)[0], start=0)


def _copy(task: Task, train: Sequence[Example], scored: Sequence[Example]) -> list[Prediction]:
    """Answer with a copy of the input, the first text of several."""
    return [Prediction(text=example.fields[task.fields[0]]) for example in scored]


def _words(task: Task, train: Sequence[Example], asked: Sequence[Example]) -> list[Prediction]:
    from sublayer.tasks.words import predict_by_words  # scikit-learn is slow to import

    return predict_by_words(task, train, asked)


def _describe_words(task: Task) -> str:
    from sublayer.tasks.words import describe_words

    return describe_words(task)


_LABELLED: tuple[Kind, ...] = ("classes", "choice", "number", "span")
BASELINES: dict[str, Baseline] = {
    baseline.name: baseline
    for baseline in (
        Baseline("majority", describe_majority, majority, (*_LABELLED, "text")),
        Baseline("words", _describe_words, _words, _LABELLED),
        Baseline("copy", lambda task: "the text itself, unchanged", _copy, ("text",)),
    )
}
