"""The rows by which members are chosen: what was held out, without any row that is scored."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sublayer.data.tasks.task_split import TaskPart
from sublayer.errors import DataError
from sublayer.objective.supervised.ensemble.answers import MemberAnswers, combine, mean_threshold
from sublayer.objective.supervised.ensemble.averages import mean
from sublayer.tasks.example import Example
from sublayer.tasks.metrics.score import score
from sublayer.tasks.metrics.thresholds import best_thresholds, with_threshold
from sublayer.tasks.prediction import Prediction


class HeldOutScore(NamedTuple):
    """What an ensemble scores on what was held out."""

    score: float
    threshold: float | None
    """The threshold of no answer by which it does, as after training; None where there is none."""


@dataclass(frozen=True)
class Unseen:
    """What was held out, and which of its rows choose."""

    parts: Sequence[TaskPart]
    places: Sequence[Sequence[int]]
    """Of each part's examples those that choose, by their places in it."""

    @property
    def n_rows(self) -> int:
        """Count the rows that choose."""
        return sum(map(len, self.places))

    @property
    def n_left_out(self) -> int:
        """Count the rows that are scored, and so do not choose."""
        return sum(len(part.examples) for part in self.parts) - self.n_rows

    def score(self, members: Sequence[MemberAnswers]) -> HeldOutScore:
        """Score an ensemble: the mean over parts, with the threshold that is best for it."""
        threshold = mean_threshold(members)
        values = []
        for part, examples, found in self._chosen(combine(self.parts, members, None)):
            own = found
            if threshold is not None:
                threshold = best_thresholds(examples, own).f1.threshold
                own = with_threshold(own, threshold)
            values.append(score(examples, own, part.task.metrics).value)
        return HeldOutScore(mean(values), threshold)

    def _chosen(
        self, predictions: Sequence[Prediction]
    ) -> Iterator[tuple[TaskPart, list[Example], list[Prediction]]]:
        first = 0
        for part, places in zip(self.parts, self.places, strict=True):
            examples = [part.examples[place] for place in places]
            yield part, examples, [predictions[first + place] for place in places]
            first += len(part.examples)


def unseen_rows(held_out: Sequence[TaskPart], scored: Sequence[TaskPart], run: object) -> Unseen:
    """Leave out the rows of what was held out whose texts are scored.

    Raises DataError where of a part of it nothing remains, as where the development set selects.
    """
    texts = {example.texts for part in scored for example in part.examples}
    places = [
        [place for place, example in enumerate(part.examples) if example.texts not in texts]
        for part in held_out
    ]
    for part, own in zip(held_out, places, strict=True):
        if not own:
            raise DataError(
                f"{run} held nothing of {part.task.title} out that is not scored, too: members are "
                "chosen by other rows (data.select = held-out in training), or leave --choose out"
            )
    return Unseen(held_out, places)
