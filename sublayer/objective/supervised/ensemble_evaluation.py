"""Evaluation of several fine-tuned runs as one: ``sublayer evaluate RUN RUN ...``."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from sublayer.data.tasks.batches import TaskPart, TaskSplit, of_tasks
from sublayer.errors import ConfigError, DataError
from sublayer.objective.evaluation import Evaluation
from sublayer.objective.supervised.answering import asked_of
from sublayer.objective.supervised.ensemble import (
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
    TaskScoring,
    asked_scoring,
    asked_spec,
    check_same_rows,
    compare_with,
    own_data,
    selected_by,
)
from sublayer.objective.supervised.scores import BaselineScores, average_reports, report_split
from sublayer.system.stages import stage
from sublayer.tasks.scoring import score
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.unanswerable import best_threshold, with_threshold


def evaluate_ensemble(requests: Sequence[Evaluation], *, chooses: bool) -> dict[str, Any]:
    """Score the average of several runs, and each run, on the same examples.

    With ``chooses`` members are selected greedily on rows held out of train; otherwise all runs are
    members. Raises ConfigError where runs answer differently, or no held-out rows are left
    unscored, DataError where they are scored on different rows.
    """
    first = requests[0]
    if chooses and first.split == "valid":
        raise ConfigError(
            "--choose chooses members by what was held out, and --split valid scores that: leave "
            "one of them out"
        )
    names = [str(request.run) for request in requests]
    runs = _prepare(requests, names)
    split = runs[0].scoring.split
    members: Sequence[int] = range(len(runs))
    choice: dict[str, Any] | None = None
    if chooses:
        members, threshold, choice = _choose(runs, names)
    answers = [run.answer(run.scoring.split) for run in runs]
    chosen = [answers[number] for number in members]
    if not chooses:
        threshold = mean_threshold(chosen)
    predictions = combine(split.parts, chosen, threshold)
    reports = report_split(split, BaselineScores(lambda: runs[0].scoring.train), predictions)
    result: dict[str, Any] = {
        "tasks": [report.to_json() for report in reports],
        "averages": average_reports(reports),
        "members": [
            run.to_json(given, is_member=number in members)
            for number, (run, given) in enumerate(zip(runs, answers, strict=True))
        ],
        "threshold": threshold,
        "choice": choice,
        "part": first.split,
        "notes": list(dict.fromkeys(note for run in runs for note in run.scoring.notes)),
        "runs": names,
    }
    against = first.options.get("against")
    if against is not None:
        result["against"] = compare_with(first, split, predictions, against)
    return result


@dataclass(frozen=True)
class _MemberRun:
    """A run, with the examples in its format."""

    request: Evaluation
    spec: TaskSpec
    scoring: TaskScoring

    def answer(self, split: TaskSplit) -> MemberAnswers:
        """Answer a split encoded for the run."""
        request = self.request
        with stage(f"answering by {request.run}"):
            progress = request.progress("answered", "batches")
            model = request.text_model
            return member_answers(
                asked_of(model, split, self.spec, request.batch, progress=progress)
            )

    def to_json(self, answers: MemberAnswers, *, is_member: bool) -> dict[str, Any]:
        """Return the single run's scores, as JSON."""
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


def _prepare(requests: Sequence[Evaluation], names: Sequence[str]) -> list[_MemberRun]:
    """Read the scored examples of each run."""
    specs = []
    for request in requests:
        options = dict(request.options)
        task = request.text_model.task
        if task is not None and task.format != "text":
            # Only models of the text format have a choice of ``answer``.
            options.pop("answer", None)
        specs.append(asked_spec(replace(request, options=options)))
    check_members(names, specs)
    check_heads(names, [request.text_model for request in requests])
    runs = [
        _MemberRun(request, spec, asked_scoring(request))
        for request, spec in zip(requests, specs, strict=True)
    ]
    _check_same(runs, [run.scoring.split for run in runs], "is scored on")
    return runs


def _check_same(runs: Sequence[_MemberRun], splits: Sequence[TaskSplit], what: str) -> None:
    """Raise DataError where runs have other rows than the first."""
    first = runs[0].request.run
    sets, *others = ([f"{p.task.name} {p.published}" for p in split.parts] for split in splits)
    for run, split, names in zip(runs[1:], splits[1:], others, strict=True):
        if names != sets:
            raise DataError(
                f"{run.request.run} {what} {', '.join(names)}, and {first} {', '.join(sets)}: take "
                "models of the same data, in the same order"
            )
        for part, other in zip(splits[0].parts, split.parts, strict=True):
            check_same_rows(first, part, run.request.run, other, what)


class UnseenRows(NamedTuple):
    """Selection rows: held-out rows, without scored ones."""

    parts: Sequence[TaskPart]
    places: Sequence[Sequence[int]]
    """Of each part's examples those that choose, by their places in it."""

    @property
    def n_rows(self) -> int:
        """Count the selection rows."""
        return sum(map(len, self.places))

    def score(self, members: Sequence[MemberAnswers]) -> tuple[float, float | None]:
        """Score an ensemble: the mean over parts, and its no-answer threshold.

        The threshold is the best one, as after training; None without one.
        """
        threshold = mean_threshold(members)
        all_predictions = combine(self.parts, members, None)
        values = []
        first = 0
        for part, places in zip(self.parts, self.places, strict=True):
            examples = [part.examples[index] for index in places]
            predictions = [all_predictions[first + index] for index in places]
            first += len(part.examples)
            if threshold is not None:
                threshold = best_threshold(examples, predictions).threshold
                predictions = with_threshold(predictions, threshold)
            values.append(score(examples, predictions, part.task.metrics).value)
        return mean(values), threshold


def unseen_rows(
    held_out: Sequence[TaskPart], scored: Sequence[TaskPart], run: object
) -> UnseenRows:
    """Drop held-out rows whose texts are scored.

    Raises DataError where no row of a part remains, as where the development set selects.
    """
    texts = {example.texts for part in scored for example in part.examples}
    all_places = []
    for part in held_out:
        places = [index for index, e in enumerate(part.examples) if e.texts not in texts]
        if not places:
            raise DataError(
                f"{run} held nothing of {part.task.title} out that is not scored, too: members are "
                "chosen by other rows (data.select = held-out in training), or leave --choose out"
            )
        all_places.append(places)
    return UnseenRows(held_out, all_places)


def _choose(
    runs: Sequence[_MemberRun], names: Sequence[str]
) -> tuple[Sequence[int], float | None, dict[str, Any]]:
    """Select members on held-out rows; return them, the best threshold, and the selection."""
    held = []
    for run in runs:
        data = own_data(run.request, "valid")
        assert data.valid is not None, "tasks hold examples out"
        held.append(of_tasks(data.valid))
    _check_same(runs, held, "held out")
    rows = unseen_rows(held[0].parts, runs[0].scoring.split.parts, runs[0].request.run)
    answers = [run.answer(split) for run, split in zip(runs, held, strict=True)]

    def scored(members: Sequence[int]) -> tuple[float, float | None]:
        return rows.score([answers[number] for number in members])

    with stage("choosing members"):
        choice = choose(len(runs), lambda members: scored(members)[0])
    described = {
        "how": "greedy",
        "rows": rows.n_rows,
        "rows_left_out": sum(len(part.examples) for part in rows.parts) - rows.n_rows,
        "ensembles": choice.n_tried,
        "score": choice.score,
        "members": [names[number] for number in choice.members],
        "steps": [{"run": names[s.member], "score": s.score} for s in choice.steps],
    }
    return choice.members, scored(choice.members)[1], described
