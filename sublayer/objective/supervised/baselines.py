"""What the baselines score on parts of tasks: computed once, whatever models stand beside them."""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

from sublayer.data.tasks.task_split import TaskPart
from sublayer.system.stages import stage
from sublayer.tasks.baselines.table import BASELINES
from sublayer.tasks.example import Example
from sublayer.tasks.metrics.score import Score, score


class BaselineScores:
    """Scores of the baselines.

    They learn from what ``read_train`` returns by the task, read when it is first needed; of a task
    that it does not have there are none. With ``are_scored`` False none is computed: what they
    learn from is known all the same.
    """

    def __init__(
        self,
        read_train: Callable[[], Mapping[str, Sequence[Example]]],
        *,
        are_scored: bool = True,
    ) -> None:
        self._read_train = read_train
        self._are_scored = are_scored
        self._scores: dict[tuple[str, str], Mapping[str, Score]] = {}

    @cached_property
    def _train(self) -> Mapping[str, Sequence[Example]]:
        return self._read_train()

    def learned_from(self, part: TaskPart) -> Sequence[Example]:
        """Return the examples of a part's task that are learned from."""
        return self._train.get(part.task.name, ())

    def of(self, part: TaskPart) -> Mapping[str, Score]:
        """Return what each baseline scores on a part, by its name."""
        key = part.task.name, part.published
        if key not in self._scores:
            self._scores[key] = self._computed(part)
        return self._scores[key]

    def _computed(self, part: TaskPart) -> Mapping[str, Score]:
        train = self.learned_from(part)
        scores = {}
        asked = BASELINES.values() if train and self._are_scored else ()
        for baseline in (each for each in asked if part.task.kind in each.kinds):
            with stage(f"scoring the baseline {baseline.name} of {part.task.title}"):
                predictions = baseline.predict(part.task, train, part.examples)
            scores[baseline.name] = score(part.examples, predictions, part.task.metrics)
        return scores
