"""The score of a part of a task, beside what needs no model: the majority, a model of words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sublayer.data.tasks.task_split import TaskSplit
from sublayer.objective.supervised.baselines import BaselineScores
from sublayer.objective.supervised.collapse import find_collapse
from sublayer.objective.supervised.scores import part_name
from sublayer.tasks.baselines.table import BASELINES
from sublayer.tasks.metrics.averages import suite_averages
from sublayer.tasks.metrics.score import Score, score
from sublayer.tasks.metrics.thresholds import ByAnswerable, by_answerable
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.task import Task


@dataclass(frozen=True)
class PartReport:
    """What a model scored on a part, and what the baselines did."""

    name: str
    task: Task
    split: str
    """The publisher's, such as ``dev_matched``."""
    score: Score
    baselines: Mapping[str, Score]
    collapse: str
    """Why the model answers nothing; empty where it does."""
    by_answerable: Mapping[bool, ByAnswerable] = field(default_factory=dict)
    """Where questions may have no answer: what those that have one score, and those without."""

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "task": self.name,
            "title": self.task.title,
            "split": self.split,
            "examples": self.score.n_examples,
            "outside": self.score.n_outside,
            **_values(self.score),
            "baselines": {
                name: {"description": BASELINES[name].describe(self.task), **_values(each)}
                for name, each in self.baselines.items()
            },
            "collapse": self.collapse,
            **self._answerable(),
        }

    def _answerable(self) -> dict[str, Any]:
        names = {True: "answerable", False: "unanswerable"}
        return {names[kind]: asdict(each) for kind, each in self.by_answerable.items()}


def report_split(
    split: TaskSplit,
    baselines: BaselineScores,
    predictions: Sequence[Prediction],
    loss: float | None = None,
) -> list[PartReport]:
    """Report every part of a split, of which there are predictions in its order.

    ``loss`` is that of training at its end, where it is known, by which a collapse is found.
    """
    reports = []
    for part, own in split.by_part(predictions):
        task, examples = part.task, part.examples
        reports.append(
            PartReport(
                name=part_name(part, split.parts),
                task=task,
                split=part.published,
                score=score(examples, own, task.metrics),
                baselines=baselines.of(part),
                collapse=find_collapse(task, examples, own, baselines.learned_from(part), loss),
                by_answerable=by_answerable(examples, own) if task.has_unanswerable else {},
            )
        )
    return reports


def average_reports(reports: Sequence[PartReport]) -> dict[str, float]:
    """Average the scores over each suite of which all tasks are reported, by its title."""
    scores: dict[str, list[float]] = {}
    for each in reports:
        scores.setdefault(each.task.name, []).append(each.score.value)
    return suite_averages(scores)


def _values(found: Score) -> dict[str, Any]:
    metrics = {}
    for name, each in found.metrics.items():
        metrics[name] = {
            "value": each.value,
            "standard_error": each.standard_error,
            "reason": each.reason,
        }
    return {"score": found.value, "standard_error": found.standard_error, "metrics": metrics}
