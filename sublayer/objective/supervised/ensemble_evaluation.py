"""Evaluation of several fine-tuned runs as one: ``sublayer evaluate RUN RUN ...``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sublayer.data.tasks.batches import TaskPart, TaskSplit
from sublayer.errors import ConfigError, DataError
from sublayer.objective.evaluation import Evaluation
from sublayer.objective.supervised.answering import model_rule
from sublayer.objective.supervised.ensemble import (
    Choice,
    MemberAnswers,
    check_heads,
    check_members,
    choose,
    combine,
    mean,
    mean_threshold,
    member_answers,
)
from sublayer.objective.supervised.evaluation import (
    Answered,
    Scoring,
    asked_scoring,
    asked_spec,
    check_same_rows,
    compare_with,
    held_out,
    selected_by,
)
from sublayer.objective.supervised.scores import BaselineScores, average_reports, report_split
from sublayer.system.stages import stage
from sublayer.tasks.scoring import score
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.text_metrics import best_thresholds, with_threshold


def evaluate_ensemble(requests: Sequence[Evaluation], *, chooses: bool) -> dict[str, Any]:
    """Score the average of several runs, and each by itself, on the same examples.

    With ``chooses`` members are chosen greedily by the rows held out of train; without it all are
    members. Raises ConfigError where runs do not answer the same, or nothing was held out that is
    not scored, and DataError where they are not scored on the same rows.
    """
    first = requests[0]
    if chooses and first.split == "valid":
        raise ConfigError(
            "--choose chooses members by what was held out, and --split valid scores that: leave "
            "one of them out"
        )
    runs = _prepare_runs(requests, chooses=chooses)
    split = runs[0].scoring.split
    choice = _choose(runs) if chooses else None
    answers = [run.answer(run.scoring.split) for run in runs]
    members = range(len(runs)) if choice is None else choice.choice.members
    chosen = [answers[number] for number in members]
    threshold = mean_threshold(chosen) if choice is None else choice.threshold
    predictions = combine(split.parts, chosen, threshold)
    reports = report_split(split, BaselineScores(lambda: runs[0].scoring.train), predictions)
    names = [str(run.request.run) for run in runs]
    result: dict[str, Any] = {
        "tasks": [report.to_json() for report in reports],
        "averages": average_reports(reports),
        "members": [
            run.to_json(given, is_member=number in members)
            for number, (run, given) in enumerate(zip(runs, answers, strict=True))
        ],
        "threshold": threshold,
        "choice": None if choice is None else choice.to_json(names),
        "part": first.split,
        "notes": list(dict.fromkeys(note for run in runs for note in run.scoring.notes)),
        "runs": names,
    }
    against = first.options.get("against")
    if against is not None:
        ours = Answered(runs[0].scoring, predictions, float("nan"))
        result["against"] = compare_with(first, ours, against)
    return result


@dataclass(frozen=True)
class _Run:
    """A run, and the examples as it reads them."""

    request: Evaluation
    spec: TaskSpec
    scoring: Scoring
    held_out: TaskSplit | None
    """The examples held out of its training; None where no members are chosen."""

    def answer(self, split: TaskSplit) -> MemberAnswers:
        """Answer a split that is encoded for the run."""
        model = self.request.model
        rule = replace(model_rule(self.request.text_model, split), n_rows=self.request.batch)
        with stage(f"answering by {self.request.run}"):
            progress = self.request.progress("answered", "batches")
            return member_answers(model, split, rule, self.spec, progress)

    def to_json(self, answers: MemberAnswers, *, is_member: bool) -> dict[str, Any]:
        """Return the scores of the run alone, as JSON."""
        split = self.scoring.split
        predictions = combine(split.parts, [answers], answers.threshold)
        unscored = BaselineScores(lambda: self.scoring.train, are_scored=False)
        tasks = [report.to_json() for report in report_split(split, unscored, predictions)]
        for task in tasks:
            del task["baselines"]
        return {
            "run": str(self.request.run),
            "is_member": is_member,
            "selected_by": selected_by(self.request),
            "tasks": tasks,
        }


def _prepare_runs(requests: Sequence[Evaluation], *, chooses: bool) -> list[_Run]:
    """Read the examples on which each run is scored, and with ``chooses`` those it held out."""
    specs = []
    for request in requests:
        options = dict(request.options)
        task = request.text_model.task
        if task is not None and task.format != "text":
            # A model that reads no text has no way to answer by it.
            options.pop("answer", None)
        specs.append(asked_spec(replace(request, options=options)))
    names = [str(request.run) for request in requests]
    check_members(names, specs)
    check_heads(names, [request.text_model for request in requests])
    runs = []
    for request, spec in zip(requests, specs, strict=True):
        held = held_out(request) if chooses else None
        runs.append(_Run(request, spec, asked_scoring(request), held))
    first = runs[0]
    for run in runs[1:]:
        _check_same(first, run, first.scoring.split, run.scoring.split, "is scored on")
        if first.held_out is not None and run.held_out is not None:
            _check_same(first, run, first.held_out, run.held_out, "held out")
    return runs


def _check_same(first: _Run, other: _Run, mine: TaskSplit, theirs: TaskSplit, what: str) -> None:
    sets, other_sets = (
        [f"{part.task.name} {part.published}" for part in split.parts] for split in (mine, theirs)
    )
    if sets != other_sets:
        raise DataError(
            f"{other.request.run} {what} {', '.join(other_sets)}, and {first.request.run} "
            f"{', '.join(sets)}: take models of the same data, in the same order"
        )
    for part, their_part in zip(mine.parts, theirs.parts, strict=True):
        check_same_rows(first.request.run, part, other.request.run, their_part, what)


class HeldOutScore(NamedTuple):
    """The score of an ensemble on rows that were held out."""

    score: float
    threshold: float | None
    """The threshold of no answer that gives it, as after training; None where there is none."""


@dataclass(frozen=True)
class UnseenRows:
    """The rows by which members are chosen: those held out, without any that is scored."""

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
        all_predictions = combine(self.parts, members, None)
        values = []
        first = 0
        for part, places in zip(self.parts, self.places, strict=True):
            examples = [part.examples[place] for place in places]
            predictions = [all_predictions[first + place] for place in places]
            first += len(part.examples)
            if threshold is not None:
                threshold = best_thresholds(examples, predictions).f1.threshold
                predictions = with_threshold(predictions, threshold)
            values.append(score(examples, predictions, part.task.metrics).value)
        return HeldOutScore(mean(values), threshold)


def unseen_rows(
    held_out: Sequence[TaskPart], scored: Sequence[TaskPart], run: object
) -> UnseenRows:
    """Leave out the rows of those held out whose texts are scored.

    Raises DataError where nothing of a part remains, as where the development set selects.
    """
    texts = {example.texts for part in scored for example in part.examples}
    all_places = []
    for part in held_out:
        places = [place for place, e in enumerate(part.examples) if e.texts not in texts]
        if not places:
            raise DataError(
                f"{run} held nothing of {part.task.title} out that is not scored, too: members are "
                "chosen by other rows (data.select = held-out in training), or leave --choose out"
            )
        all_places.append(places)
    return UnseenRows(held_out, all_places)


@dataclass(frozen=True)
class _Chosen:
    choice: Choice
    threshold: float | None
    """Of no answer, the best for the chosen members on the rows that chose them."""
    rows: UnseenRows

    def to_json(self, names: Sequence[str]) -> dict[str, Any]:
        return {
            "how": "greedy",
            "rows": self.rows.n_rows,
            "rows_left_out": self.rows.n_left_out,
            "ensembles": self.choice.n_tried,
            "score": self.choice.score,
            "members": [names[number] for number in self.choice.members],
            "steps": [{"run": names[s.member], "score": s.score} for s in self.choice.steps],
        }


def _choose(runs: Sequence[_Run]) -> _Chosen:
    held = [run.held_out for run in runs if run.held_out is not None]
    rows = unseen_rows(held[0].parts, runs[0].scoring.split.parts, runs[0].request.run)
    answers = [run.answer(split) for run, split in zip(runs, held, strict=True)]

    def scored(members: Sequence[int]) -> HeldOutScore:
        return rows.score([answers[number] for number in members])

    with stage("choosing members"):
        choice = choose(len(runs), lambda members: scored(members).score)
    return _Chosen(choice, scored(choice.members).threshold, rows)
