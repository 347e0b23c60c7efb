"""The score of a part of a task, beside what needs no model: the majority, a model of words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sublayer.counts import count
from sublayer.data.tasks.task_split import TaskPart, TaskSplit
from sublayer.objective.supervised.collapse import find_collapse
from sublayer.objective.supervised.scores import part_name
from sublayer.system.stages import stage
from sublayer.tables import table
from sublayer.tasks.baselines.table import BASELINES
from sublayer.tasks.example import Example
from sublayer.tasks.metrics.score import Score, score
from sublayer.tasks.metrics.table import METRICS
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
            "baselines": {name: _values(each) for name, each in self.baselines.items()},
            "collapse": self.collapse,
            **self._answerable(),
        }

    def _answerable(self) -> dict[str, Any]:
        names = {True: "answerable", False: "unanswerable"}
        return {names[kind]: asdict(each) for kind, each in self.by_answerable.items()}


def report_part(
    part: TaskPart,
    name: str,
    predictions: Sequence[Prediction],
    train: Sequence[Example],
    loss: float | None = None,
) -> PartReport:
    """Score the predictions of a part, and those of the baselines, which learn from ``train``.

    ``loss`` is that of training at its end, where it is known, by which a collapse is found.
    """
    metrics = part.task.metrics
    baselines = {}
    for baseline in BASELINES.values() if train else ():
        with stage(f"scoring the baseline {baseline.name} of {part.task.title}"):
            own = baseline.predict(part.task, train, part.examples)
        baselines[baseline.name] = score(part.examples, own, metrics)
    apart = by_answerable(part.examples, predictions) if part.task.has_unanswerable else {}
    return PartReport(
        name=name,
        task=part.task,
        split=part.published,
        score=score(part.examples, predictions, metrics),
        baselines=baselines,
        collapse=find_collapse(part.task, part.examples, predictions, train, loss),
        by_answerable=apart,
    )


def report_split(
    split: TaskSplit,
    train: Mapping[str, Sequence[Example]],
    predictions: Sequence[Prediction],
    loss: float | None = None,
) -> list[PartReport]:
    """Report every part of a split, of which there are predictions in its order.

    ``train`` has by the task what baselines learn from; without any there are none.
    """
    reports = []
    first = 0
    for part in split.parts:
        own = predictions[first : first + len(part.encoded)]
        first += len(part.encoded)
        name = part_name(part, split.parts)
        reports.append(report_part(part, name, own, train.get(part.task.name, ()), loss))
    return reports


def render_reports(reports: Sequence[Mapping[str, Any]]) -> str:
    """Format reports, as ``to_json`` gives them, as a table and what follows from it."""
    rows = []
    notes = []
    for each in reports:
        parts = [_shown(name, value) for name, value in each["metrics"].items()]
        baselines = {name: found["score"] for name, found in each["baselines"].items()}
        rows.append(
            (
                each["title"],
                f"{each['examples']:,}",
                _with_error(each["score"], each["standard_error"]),
                ", ".join(parts),
                *(f"{100 * baselines[name]:.1f}" if baselines else "" for name in BASELINES),
            )
        )
        notes += _notes(each, baselines.get("words"))
    header = ["task", "examples", "score", "metrics", *BASELINES]
    return "\n".join([table(header, rows, right=[1, 2, 4, 5]), *notes])


def _notes(each: Mapping[str, Any], words: float | None) -> list[str]:
    notes = []
    title = each["title"]
    if each["collapse"]:
        notes.append(f"{title}: the run collapsed: {each['collapse']}")
    error = each["standard_error"] or 0.0
    if words is None:
        notes.append(f"{title}: no training rows are here, from which the baselines would learn")
    elif each["score"] < words:
        notes.append(f"{title}: below words, which knows nothing but words")
    elif each["score"] - words < 2 * error:
        notes.append(
            f"{title}: less than two standard errors above words: so few examples cannot tell"
        )
    if each["outside"]:
        notes.append(f"{title}: {each['outside']:,} answers are none of the labels, and wrong")
    for key, said in (("answerable", "with an answer"), ("unanswerable", "without one")):
        if key in each:
            apart = each[key]
            notes.append(
                f"{title}: {count(apart['n'], 'question')} {said}: EM {100 * apart['exact']:.1f}, "
                f"F1 {100 * apart['f1']:.1f}"
            )
    for name, metric in each["metrics"].items():
        if metric["reason"]:
            notes.append(f"{title}: {METRICS[name].title} is 0: {metric['reason']}")
    return notes


def _shown(name: str, metric: Mapping[str, Any]) -> str:
    return f"{METRICS[name].title} {100 * metric['value']:.1f}"


def _with_error(value: float, error: float | None) -> str:
    shown = f"{100 * value:.1f}"
    return shown if error is None else f"{shown} ± {100 * error:.1f}"


def _values(found: Score) -> dict[str, Any]:
    metrics = {}
    for name, each in found.metrics.items():
        metrics[name] = {
            "value": each.value,
            "standard_error": each.standard_error,
            "reason": each.reason,
        }
    return {"score": found.value, "standard_error": found.standard_error, "metrics": metrics}
