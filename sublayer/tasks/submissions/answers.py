"""What is handed in for a split: a prediction for each of its examples, by their ids."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from sublayer.counts import count
from sublayer.errors import DataError
from sublayer.tasks.example import Example
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.task import Task


@dataclass(frozen=True)
class Answers:
    """A split, and the predictions for it."""

    task: Task
    split: str
    """Such as ``test``, or ``test_matched``."""
    examples: Sequence[Example]
    predictions: Sequence[tuple[str, Prediction]] | None = None
    """With the id of each one's example, in any order; None where no model was trained: then the
    majority's answer is handed in, and marked."""
    train: Sequence[Example] = ()
    """What the majority is taken of."""

    @property
    def title(self) -> str:
        """Return what messages call it."""
        return f"{self.task.title} ({self.split})"


def in_order(answers: Answers, predictions: Sequence[tuple[str, Prediction]]) -> list[Prediction]:
    """Return the prediction of each example.

    Raises DataError where ids of examples or of predictions stand twice, where examples have no
    prediction, and where predictions are for none of the examples.
    """
    ids = [example.id for example in answers.examples]
    _check_once(answers, ids, "rows")
    predicted = [each for each, _ in predictions]
    _check_once(answers, predicted, "predictions")
    known = set(ids)
    unknown = [each for each in predicted if each not in known]
    if unknown:
        raise DataError(
            f"{count(len(unknown), 'prediction')} for {answers.title} belong to none of its rows: "
            f"the first has the id {unknown[0]!r}"
        )
    by_id = dict(predictions)
    missing = [each for each in ids if each not in by_id]
    if missing:
        raise DataError(
            f"{len(missing):,} of the {len(ids):,} rows of {answers.title} have no prediction: the "
            f"first has the id {missing[0]!r}"
        )
    return [by_id[each] for each in ids]


def _check_once(answers: Answers, ids: Sequence[str], what: str) -> None:
    twice = [each for each, n in Counter(ids).items() if n > 1]
    if twice:
        raise DataError(f"{answers.title} has two {what} with the id {twice[0]!r}")


def given_predictions(answers: Answers) -> Sequence[tuple[str, Prediction]]:
    """Return the predictions. Raises DataError where there are none to be handed in."""
    if answers.predictions is None:
        raise DataError(f"{answers.title} has no predictions: answer it first")
    return answers.predictions


def file_prefix(answers: Answers, of: Sequence[Answers]) -> str:
    """Return what the names of a split's files begin with: something where there are several."""
    return f"{answers.task.name}-{answers.split}-" if len(of) > 1 else ""
