"""The score of a part of a task, beside what needs no model: the majority, a model of words."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sublayer.counts import count
from sublayer.data.tasks.task_split import TaskSplit
from sublayer.objective.supervised.baselines import BaselineScores
from sublayer.objective.supervised.collapse import find_collapse
from sublayer.objective.supervised.scores import part_name
from sublayer.tables import table
from sublayer.tasks.baselines.table import BASELINES
from sublayer.tasks.metrics.averages import suite_averages
from sublayer.tasks.metrics.points import points
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


def render_averages(averages: Mapping[str, float]) -> list[str]:
    """Format the averages of suites, a line each."""
    return [f"average of {title}: {points(value)}" for title, value in averages.items()]


def render_reports(reports: Sequence[Mapping[str, Any]]) -> str:
    """Format reports, as ``to_json`` gives them, as a table and what follows from it."""
    rows = []
    notes = []
    beside = [name for name in BASELINES if any(name in each["baselines"] for each in reports)]
    # Without baselines the columns say that they are missing.
    beside = beside or ["majority", "words"]
    for each in reports:
        parts = [
            f"{METRICS[name].title} {points(found['value'])}"
            for name, found in each["metrics"].items()
        ]
        baselines = {name: found["score"] for name, found in each["baselines"].items()}
        rows.append(
            (
                each["title"],
                f"{each['examples']:,}",
                with_error(each["score"], each["standard_error"]),
                ", ".join(parts),
                *(points(baselines[name]) if name in baselines else "" for name in beside),
            )
        )
        notes += _notes(each, *_strongest(baselines))
    header = ["task", "examples", "score", "metrics", *beside]
    return "\n".join([table(header, rows, right=[1, 2, *range(4, len(header))]), *notes])


def render_baselines(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Say what each baseline of reports is, with the tasks where it is not the same for all."""
    lines = []
    for name in BASELINES:
        titles: dict[str, list[str]] = {}
        for each in reports:
            if name in each["baselines"]:
                described = each["baselines"][name]["description"]
                titles.setdefault(described, []).append(each["title"])
        for described, own in titles.items():
            which = "" if len(titles) == 1 else f" of {', '.join(dict.fromkeys(own))}"
            lines.append(f"{name}{which}: {described}")
    return lines


def _strongest(baselines: Mapping[str, float]) -> tuple[str, float | None]:
    """Return the baseline that a score is compared with, and its score: words, or copying."""
    if "copy" in baselines:
        return "copy, which returns the text unchanged", baselines["copy"]
    return "words, which knows nothing but words", baselines.get("words")


def _notes(each: Mapping[str, Any], beside: str, words: float | None) -> list[str]:
    notes = []
    title = each["title"]
    if each["collapse"]:
        notes.append(f"{title}: the run collapsed: {each['collapse']}")
    error = each["standard_error"] or 0.0
    if words is None:
        notes.append(f"{title}: no training rows are here, from which the baselines would learn")
    elif each["score"] < words:
        notes.append(f"{title}: below {beside}")
    elif each["score"] - words < 2 * error:
        notes.append(
            f"{title}: less than two standard errors above {beside.partition(',')[0]}: too few "
            "examples to tell"
        )
    if each["outside"]:
        notes.append(f"{title}: {each['outside']:,} answers are none of the labels, and wrong")
    for key, said in (("answerable", "with an answer"), ("unanswerable", "without one")):
        if key in each:
            apart = each[key]
            notes.append(
                f"{title}: {count(apart['n'], 'question')} {said}: EM {points(apart['exact'])}, "
                f"F1 {points(apart['f1'])}"
            )
    for name, metric in each["metrics"].items():
        if metric["reason"]:
            notes.append(f"{title}: {METRICS[name].title} is 0: {metric['reason']}")
    return notes


def with_error(value: float, error: float | None) -> str:
    """Format a score with its standard error, where it has one."""
    return points(value) if error is None else f"{points(value)} ± {points(error)}"


def _values(found: Score) -> dict[str, Any]:
    metrics = {}
    for name, each in found.metrics.items():
        metrics[name] = {
            "value": each.value,
            "standard_error": each.standard_error,
            "reason": each.reason,
        }
    return {"score": found.value, "standard_error": found.standard_error, "metrics": metrics}
