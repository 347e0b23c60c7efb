"""The baselines, by name: what every score is shown beside."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sublayer.tasks.baselines.majority import describe_majority, majority
from sublayer.tasks.example import Example
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.task import Kind, Task


@dataclass(frozen=True)
class Baseline:
    """A row of ``BASELINES``."""

    name: str
    describe: Callable[[Task], str]
    """Says in a few words what it is for a task."""
    predict: Callable[[Task, Sequence[Example], Sequence[Example]], list[Prediction]]
    """Learns from the first examples, and predicts the second.

    Raises DataError where it has to learn and no training row has a label."""
    kinds: tuple[Kind, ...]
    """Kinds of tasks that it answers."""


def copy(task: Task, train: Sequence[Example], scored: Sequence[Example]) -> list[Prediction]:
    """Write the text that is read, of several the first."""
    return [Prediction(text=example.fields[task.fields[0]]) for example in scored]


_LABELLED: tuple[Kind, ...] = ("classes", "choice", "number", "span")


def _words(task: Task, train: Sequence[Example], asked: Sequence[Example]) -> list[Prediction]:
    from sublayer.tasks.baselines.words import words  # scipy is slow to import

    return words(task, train, asked)


def _describe_words(task: Task) -> str:
    from sublayer.tasks.baselines.words import describe_words

    return describe_words(task)


BASELINES: dict[str, Baseline] = {
    baseline.name: baseline
    for baseline in (
        Baseline("majority", describe_majority, majority, (*_LABELLED, "text")),
        Baseline("words", _describe_words, _words, _LABELLED),
        Baseline("copy", lambda task: "the text itself, unchanged", copy, ("text",)),
    )
}
