"""The baselines, by name: what every score is shown beside."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sublayer.tasks.baselines.majority import describe_majority, majority
from sublayer.tasks.baselines.words import describe_words, words
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
    """What it can answer."""


def copy(task: Task, train: Sequence[Example], scored: Sequence[Example]) -> list[Prediction]:
    """Write the text that is read, of several the first."""
    return [Prediction(text=example.fields[task.fields[0]]) for example in scored]


_LABELLED: tuple[Kind, ...] = ("classes", "choice", "number", "span")


BASELINES: dict[str, Baseline] = {
    baseline.name: baseline
    for baseline in (
        Baseline("majority", describe_majority, majority, (*_LABELLED, "text")),
        Baseline("words", describe_words, words, _LABELLED),
        Baseline("copy", lambda task: "the text itself, unchanged", copy, ("text",)),
    )
}
