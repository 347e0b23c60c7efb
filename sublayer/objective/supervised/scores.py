"""Scores of a split by model and baselines, collapsed runs, and their tables on the terminal."""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from statistics import fmean
from typing import Any

import numpy as np

from sublayer.config.objective import SupervisedObjective
from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data
from sublayer.data.store import Split
from sublayer.data.tasks.batches import TaskPart, TaskSplit, of_tasks
from sublayer.evaluation.items import Digest, Items, ItemTable, Processes
from sublayer.files.storage import as_typed
from sublayer.numbers import count, interval_ends
from sublayer.objective.base import Effort, Scored
from sublayer.objective.supervised.heads import (
    AskedSplit,
    recipe_rule,
)
from sublayer.objective.supervised.text import SCORED, Writing, text_loss, write_part
from sublayer.system.terminal import stage
from sublayer.tables import table
from sublayer.tasks.baselines import BASELINES
from sublayer.tasks.metrics import METRICS
from sublayer.tasks.registry import AVERAGES, wording_of
from sublayer.tasks.scoring import (
    ByAnswerable,
    TaskScore,
    best_threshold,
    by_answerable,
    points,
    score,
    signed_points,
    with_threshold,
)
from sublayer.tasks.task import Example, Prediction, Task
from sublayer.text_model import TextModel


def task_scores(
    text_model: TextModel, split: Split, recipe: Recipe, effort: Effort, processes: Processes
) -> Scored:
    """Score a model on all examples of a split: mean loss, score, and metrics.

    With several parts the score is their mean, and score names are prefixed with the part. On
    held-out examples the no-answer threshold of best F1 is selected, and becomes part of the
    model's task.
    """
    examples = of_tasks(split)
    spec = text_model.task
    assert spec is not None, "a fine-tuned model answers a task"
    model = text_model.model
    rule = recipe_rule(recipe, examples)
    selects = split.name == "valid" and spec.threshold is not None
    if selects:
        # All answers are given, to select the threshold.
        spec = spec.with_threshold(math.inf)
    predictions, loss = answer_split(AskedSplit(model, examples, rule, spec, processes))
    if selects:
        part = examples.parts[0]
        _, threshold = best_threshold(part.examples, predictions)
        text_model.task = spec.with_threshold(threshold)
        predictions = with_threshold(predictions, threshold)
    scores: dict[str, Any] = {"loss": loss}
    values = []
    for part, answers in examples.by_part(predictions):
        result = score(part.examples, answers, part.task.metrics)
        values.append(result.value)
        prefix = "" if len(examples.parts) == 1 else f"{part_name(part, examples.parts)}/"
        scores[f"{prefix}score"] = result.value
        for name, metric in result.metrics.items():
            scores[f"{prefix}{name}"] = metric.value
    scores["score"] = math.fsum(values) / len(values)
    return Scored(scores, items=None)


def answer_split(request: AskedSplit, writing: Writing = SCORED) -> tuple[list[Prediction], float]:
    """Answer all examples of a split, in order; return answers and mean loss."""
    spec, parts = request.spec, request.split.parts
    if spec.format != "text":
        is_span = spec.format == "pair" and parts[0].task.kind == "span"
        answers, losses = request.answer_questions() if is_span else request.answer_examples()
        if is_span and spec.threshold is not None:
            answers = with_threshold(answers, spec.threshold)
        return answers, math.fsum(losses) / len(losses)
    written: list[Prediction] = []
    nats, n_tokens = 0.0, 0
    for part in parts:
        nats_of_part, n_of_part, begun = text_loss(request, part, looks=writing.is_scored)
        written += write_part(request, part, writing, begun)
        nats += nats_of_part
        n_tokens += n_of_part
    return written, nats / n_tokens if n_tokens else math.nan


def part_name(part: TaskPart, parts: tuple[TaskPart, ...]) -> str:
    """Name a part among others: by its task, or by its split within a task."""
    names = [other.task.name for other in parts]
    return name_part(part.task.name, part.published, names.count(part.task.name))


def name_part(task: str, published: str, n_parts: int) -> str:
    """Name a part of a task with ``n_parts`` parts."""
    return f"{task}_{published.removeprefix('dev_')}" if n_parts > 1 else task


def trained_examples(data: Data) -> dict[str, list[Example]]:
    """Return the examples of training, by task."""
    return {part.task.name: part.distinct_examples for part in of_tasks(data.train).parts}


class BaselineScores:
    """Scores of the baselines.

    They learn from the examples that ``read_train`` returns by task, read on first use; tasks
    without examples have no baselines. With ``are_scored`` False only the examples are available.
    """

    def __init__(
        self,
        read_train: Callable[[], Mapping[str, Sequence[Example]]],
        *,
        are_scored: bool = True,
    ) -> None:
        self._read_train = cache(read_train)
        self._are_scored = are_scored
        self._scores: dict[tuple[str, str], Mapping[str, TaskScore]] = {}

    def learned_from(self, part: TaskPart) -> Sequence[Example]:
        """Return the training examples of a part's task."""
        return self._read_train().get(part.task.name, ())

    def of(self, part: TaskPart) -> Mapping[str, TaskScore]:
        """Return the baselines' scores on a part, by name."""
        key = part.task.name, part.published
        if key not in self._scores:
            task, train = part.task, self.learned_from(part)
            scores = {}
            for name, baseline in BASELINES.items() if train and self._are_scored else ():
                if task.kind in baseline.kinds:
                    with stage(f"scoring the baseline {name} of {task.title}"):
                        predictions = baseline.predict(task, train, part.examples)
                    scores[name] = score(part.examples, predictions, task.metrics)
            self._scores[key] = scores
        return self._scores[key]


REMEDY = "a lower optimizer.lr, a longer warm-up (optimizer.warmup_share), more train.steps"
_SAME = 1e-3
"""Share of the range of numbers: predictions that differ by less count as equal."""
_SHOWN = 40
"""Most characters shown of an answer."""


def find_collapse(
    task: Task,
    examples: Sequence[Example],
    predictions: Sequence[Prediction],
    train: Sequence[Example],
    loss: float | None,
) -> str:
    """Describe why a run collapsed; empty if it did not.

    ``predictions`` are for all scored ``examples``; ``loss`` is the mean training loss at the end,
    in the units of ``answer_losses``, None where unknown. A single answer for all is no collapse
    where it is always correct.
    """
    # The single answer given to all, in words; empty where answers differ.
    answer = ""
    labels = {prediction.label for prediction in predictions}
    numbers = [label for label in labels if label is not None]
    if task.kind in ("span", "text"):
        texts = {prediction.text for prediction in predictions}
        if len(texts) == 1:
            [text] = texts
            answer = repr(text[:_SHOWN] + ("..." if len(text) > _SHOWN else ""))
    elif not numbers:
        answer = "no number" if task.kind == "number" else "none of the labels"
    elif task.kind == "number":
        low, high = task.numbers
        are_alike = max(numbers) - min(numbers) < _SAME * (high - low)
        if len(numbers) == len(labels) and are_alike:
            answer = f"{numbers[0]:.2f}"
    elif len(labels) == 1:
        index = int(numbers[0])
        answer = f"choice {index + 1}" if task.kind == "choice" else task.labels[index]
    golds = {
        example.answers[0].text if example.label is None and example.answers else example.label
        for example in examples
    }
    if answer and len(golds) > 1 and len(predictions) > 1:
        noun = "questions" if task.kind == "span" else "examples"
        return f"it answers {answer} to all {noun}"
    floor = frequency_loss(task, train)
    if loss is not None and floor is not None and not loss < floor:
        return (
            f"its training loss, {loss:.3f}, is not below {floor:.3f}, the loss of predicting the "
            "labels' frequencies"
        )
    return ""


def frequency_loss(task: Task, train: Sequence[Example]) -> float | None:
    """Compute the mean loss of predicting the labels' frequencies, or the mean of numbers.

    None for spans, and for constant labels, with a loss of 0. In nats; for numbers half the squared
    error on the scale of -1 to 1. Choices are equally likely.
    """
    labelled = [example for example in train if example.label is not None]
    if not labelled or task.kind == "span":
        return None
    if task.kind == "choice":
        return math.fsum(math.log(len(example.choices)) for example in labelled) / len(labelled)
    labels = [float(example.label or 0.0) for example in labelled]
    if len(set(labels)) == 1:
        return None
    if task.kind == "number":
        low, high = task.numbers
        mean = math.fsum(labels) / len(labels)
        spread = math.fsum((2 * (label - mean) / (high - low)) ** 2 for label in labels)
        return spread / len(labels) / 2
    counts = Counter(labels)
    shares = [n / len(labels) for n in counts.values()]
    return -math.fsum(share * math.log(share) for share in shares)


def answer_loss(
    train: TaskSplit, objective: SupervisedObjective, loss: float | None
) -> float | None:
    """Return the mean loss of an answer, from the final mean training loss.

    For written answers the training loss is per token, and is multiplied by the tokens of an
    answer: a model that knows only the labels' frequencies has the same loss over all tokens as
    over the label. None for several tasks, or texts other than labels. ``loss`` None gives None.
    """
    if loss is None or objective.format != "text":
        return loss
    [part, *others] = train.parts
    if others or part.task.kind != "classes" or not wording_of(part.task).has_ranks:
        return None
    encoded = part.encoded
    # The target is the last text of a row, plus an end.
    targets = encoded.text_lengths[encoded.row_starts[1:] - 1] + 1
    return loss * float(np.minimum(targets, objective.target_length).mean())


@dataclass(frozen=True)
class PartReport:
    """Scores of a model and baselines on a part."""

    name: str
    task: Task
    split: str
    """Split as published, such as ``dev_matched``."""
    score: TaskScore
    baselines: Mapping[str, TaskScore]
    collapse: str
    """Why the model collapsed; empty where it did not."""
    by_answerable: Mapping[bool, ByAnswerable] = field(default_factory=dict)
    """Scores of answerable (True) and unanswerable (False) questions."""

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
                name: {"description": BASELINES[name].describe(self.task), **_values(result)}
                for name, result in self.baselines.items()
            },
            "collapse": self.collapse,
            **{
                "answerable" if kind else "unanswerable": asdict(result)
                for kind, result in self.by_answerable.items()
            },
        }


def report_split(
    split: TaskSplit,
    baselines: BaselineScores,
    predictions: Sequence[Prediction],
    loss: float | None = None,
) -> list[PartReport]:
    """Report every part of a split, from predictions in its order.

    ``loss``: the final training loss, if known, to detect a collapse.
    """
    reports = []
    for part, answers in split.by_part(predictions):
        task, examples = part.task, part.examples
        reports.append(
            PartReport(
                name=part_name(part, split.parts),
                task=task,
                split=part.published,
                score=score(examples, answers, task.metrics),
                baselines=baselines.of(part),
                collapse=find_collapse(task, examples, answers, baselines.learned_from(part), loss),
                by_answerable=by_answerable(examples, answers) if task.has_unanswerable else {},
            )
        )
    return reports


def average_reports(reports: Sequence[PartReport]) -> dict[str, float]:
    """Average the scores over each complete suite, by title.

    A task's score is the mean over its sets: for MNLI over matched and mismatched.
    """
    scores: dict[str, list[float]] = {}
    for report in reports:
        scores.setdefault(report.task.name, []).append(report.score.value)
    of_tasks = {task: fmean(values) for task, values in scores.items()}
    return {
        title: fmean(of_tasks[task] for task in tasks)
        for title, tasks in AVERAGES.items()
        if of_tasks.keys() >= set(tasks)
    }


def _values(result: TaskScore) -> dict[str, Any]:
    metrics = {name: asdict(metric) for name, metric in result.metrics.items()}
    return {"score": result.value, "standard_error": result.standard_error, "metrics": metrics}


SCORE = "score"
"""Column of the mean of a task's metrics; each metric has a column with its own name."""


def task_items(split: TaskSplit, reports: Sequence[PartReport]) -> Items:
    """Return the derivatives of all parts' scores by example, or group.

    ``reports`` are of the split's parts, in order. A row is the derivative of a score with respect
    to the example's weight, from pseudo-values (Efron 1982, the jackknife).
    """
    tables = {}
    for part, report in zip(split.parts, reports, strict=True):
        digest = Digest(report.name, part.digest)
        digest.add(np.unique(part.encoded.numbers))
        columns = {}
        for name, influences in report.score.influences.items():
            finite = np.where(np.isfinite(influences), influences, 0.0)
            columns[name or SCORE] = finite / len(finite)
        tables[report.name] = ItemTable(
            unit=f"{report.task.title}: an example, or those of one group",
            digest=digest.hexdigest(),
            columns=columns,
            documents=None,
        )
    return Items(split.name, split.store.sha256, tables)


def render_tasks(result: Mapping[str, Any]) -> str:
    """Format the scores of a model, or of an ensemble, for the terminal."""
    runs = result.get("members", ())
    lines = []
    if runs:
        n_members = sum(run["is_member"] for run in runs)
        chosen = "" if n_members == len(runs) else f", chosen from {len(runs)} runs"
        lines.append(f"the average of {count(n_members, 'run')}{chosen}:")
    lines += [render_reports(result["tasks"]), *render_averages(result["averages"])]
    lines += render_baselines(result["tasks"])
    if runs:
        titles = [task["title"] for task in result["tasks"]]
        rows = []
        for run in runs:
            scores = [with_error(task["score"], task["standard_error"]) for task in run["tasks"]]
            collapsed = "collapsed" if any(task["collapse"] for task in run["tasks"]) else ""
            member = "member" if run["is_member"] else "left out"
            rows.append((as_typed(run["run"]), *scores, member, collapsed))
        right = [number for number, _ in enumerate(titles, 1)]
        lines += [
            "each run alone, on the same examples:",
            table(["run", *titles, "", ""], rows, right=right),
        ]
        if choice := result["choice"]:
            steps = ", then ".join(
                f"{as_typed(step['run'])} ({points(step['score'])})" for step in choice["steps"]
            )
            lines.append(
                f"chosen one by one by the score on {count(choice['rows'], 'row')} held out of "
                f"train, which is biased upwards by the choice: {steps}"
            )
            if choice["rows_left_out"]:
                left_out = count(choice["rows_left_out"], "row")
                lines.append(f"held out, but scored, and so excluded from the choice: {left_out}")
    by_dev = [run for run in runs or (result,) if str(run["selected_by"]).startswith("dev")]
    if result["part"] == "valid":
        lines.append(
            "scored on held-out rows that chose the checkpoint, which biases the score upwards"
        )
    elif by_dev:
        names = ", ".join(as_typed(run["run"]) for run in by_dev)
        lines.append(
            "the development set chose the checkpoint that it scores (data.select = "
            f"{by_dev[0]['selected_by']}), as in the papers, which biases the score upwards "
            f"({names})"
        )
    lines += result["notes"]
    if "against" in result:
        lines.append(f"against {result['against']['run']}, on the same examples:")
        for task in result["against"]["tasks"]:
            low, high = interval_ends([100 * end for end in task["interval"]], 1)
            verdict = "more than chance" if task["is_decided"] else "cannot tell"
            line = (
                f"{task['title']}: {points(task['value'])} and {points(task['other'])}, difference "
                f"{signed_points(task['difference'])}, 95% CI {low} to {high}: {verdict}"
            )
            if task["p_mcnemar"] is not None:
                line += (
                    f"; {task['n_only_first']:,} right only here, {task['n_only_other']:,} only "
                    f"there, McNemar's p = {task['p_mcnemar']:.2g}"
                )
            lines.append(line)
    return "\n".join(lines)


def render_reports(reports: Sequence[Mapping[str, Any]]) -> str:
    """Format reports from ``to_json`` as a table with conclusions."""
    rows = []
    notes = []
    beside = [name for name in BASELINES if any(name in report["baselines"] for report in reports)]
    # Without baselines the columns show their absence.
    beside = beside or ["majority", "words"]
    for report in reports:
        parts = [
            f"{METRICS[name].title} {points(score['value'])}"
            for name, score in report["metrics"].items()
        ]
        baselines = {name: score["score"] for name, score in report["baselines"].items()}
        rows.append(
            (
                report["title"],
                f"{report['examples']:,}",
                with_error(report["score"], report["standard_error"]),
                ", ".join(parts),
                *(points(baselines[name]) if name in baselines else "" for name in beside),
            )
        )
        if "copy" in baselines:
            notes += _notes(report, "copy, which returns the text unchanged", baselines["copy"])
        else:
            strongest = "words, a linear model of words"
            notes += _notes(report, strongest, baselines.get("words"))
    header = ["task", "examples", "score", "metrics", *beside]
    return "\n".join([table(header, rows, right=[1, 2, *range(4, len(header))]), *notes])


def _notes(report: Mapping[str, Any], beside: str, words: float | None) -> list[str]:
    notes = []
    title = report["title"]
    if report["collapse"]:
        notes.append(f"{title}: the run collapsed: {report['collapse']}")
    error = report["standard_error"] or 0.0
    if words is None:
        notes.append(f"{title}: no training rows, which the baselines learn from")
    elif report["score"] < words:
        notes.append(f"{title}: below {beside}")
    elif report["score"] - words < 2 * error:
        notes.append(
            f"{title}: less than two standard errors above {beside.partition(',')[0]}: too few "
            "examples to tell"
        )
    if report["outside"]:
        notes.append(
            f"{title}: {report['outside']:,} answers are outside the labels, and count as wrong"
        )
    for key, kind in (("answerable", "with an answer"), ("unanswerable", "without one")):
        if key in report:
            apart = report[key]
            notes.append(
                f"{title}: {count(apart['n'], 'question')} {kind}: EM {points(apart['exact'])}, "
                f"F1 {points(apart['f1'])}"
            )
    for name, metric in report["metrics"].items():
        if metric["reason"]:
            notes.append(f"{title}: {METRICS[name].title} is 0: {metric['reason']}")
    return notes


def render_averages(averages: Mapping[str, float]) -> list[str]:
    """Format the averages of suites, a line each."""
    return [f"average of {title}: {points(value)}" for title, value in averages.items()]


def render_baselines(reports: Sequence[Mapping[str, Any]]) -> list[str]:
    """Describe the baselines of reports, with tasks where they differ."""
    lines = []
    for name in BASELINES:
        titles: dict[str, list[str]] = {}
        for report in reports:
            if name in report["baselines"]:
                described = report["baselines"][name]["description"]
                titles.setdefault(described, []).append(report["title"])
        for described, names in titles.items():
            which = "" if len(titles) == 1 else f" of {', '.join(dict.fromkeys(names))}"
            lines.append(f"{name}{which}: {described}")
    return lines


def with_error(value: float, error: float | None) -> str:
    """Format a score with its standard error, if any."""
    return points(value) if error is None else f"{points(value)} ± {points(error)}"
