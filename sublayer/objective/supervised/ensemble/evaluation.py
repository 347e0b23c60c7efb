"""What ``sublayer evaluate`` does with several fine-tuned runs: score them as one."""

from collections.abc import Sequence
from typing import Any

from sublayer.errors import ConfigError
from sublayer.objective.evaluation import Evaluation
from sublayer.objective.supervised.against import compare_with
from sublayer.objective.supervised.baselines import BaselineScores
from sublayer.objective.supervised.ensemble.answers import MemberAnswers, combine, mean_threshold
from sublayer.objective.supervised.ensemble.choosing import MOST_FOR_ALL, Choice, How, choose
from sublayer.objective.supervised.ensemble.scoring import Run, prepare_runs
from sublayer.objective.supervised.ensemble.unseen import Unseen, unseen_rows
from sublayer.objective.supervised.evaluation import selected_by
from sublayer.objective.supervised.report import average_reports, report_split
from sublayer.objective.supervised.scoring import Answered
from sublayer.system.stages import stage


def evaluate_ensemble(requests: Sequence[Evaluation], how: How | None) -> dict[str, Any]:
    """Score the average of several runs, and each by itself, on the same examples.

    ``how`` has members chosen among them by what was held out of train; without it all are members.
    Raises ConfigError where runs do not answer the same, or nothing was held out that is not
    scored, and DataError where they are not scored on the same rows.
    """
    first = requests[0]
    _check_choosing(first, len(requests), how)
    runs = prepare_runs(requests, chooses=how is not None)
    split = runs[0].scoring.split
    unseen = None if how is None else _unseen(runs)
    choice, threshold = None, None
    if how is not None and unseen is not None:
        choice, threshold = _choose(runs, unseen, how)
    answers = [run.answer(run.scoring.split) for run in runs]
    members = range(len(runs)) if choice is None else choice.members
    chosen = [answers[number] for number in members]
    if choice is None:
        threshold = mean_threshold(chosen)
    predictions = combine(split.parts, chosen, threshold)
    baselines = BaselineScores(lambda: runs[0].scoring.train)
    reports = report_split(split, baselines, predictions)
    result: dict[str, Any] = {
        "tasks": [each.to_json() for each in reports],
        "averages": average_reports(reports),
        "members": [
            _member(run, own, number in members)
            for number, (run, own) in enumerate(zip(runs, answers, strict=True))
        ],
        "threshold": threshold,
        "choice": _described(choice, how, runs, unseen),
        "part": first.split,
        "notes": list(dict.fromkeys(note for run in runs for note in run.scoring.notes)),
        "runs": [str(run.asked.run) for run in runs],
    }
    against = first.options.get("against")
    if against is not None:
        ours = Answered(runs[0].scoring, predictions, float("nan"))
        result["against"] = compare_with(first, ours, against)
    return result


def _check_choosing(asked: Evaluation, n_runs: int, how: How | None) -> None:
    if how is None:
        return
    if asked.split == "valid":
        raise ConfigError(
            "--choose chooses members by what was held out, and --split valid scores that: leave "
            "one of them out"
        )
    if how == "all" and n_runs > MOST_FOR_ALL:
        raise ConfigError(
            f"--choose all tries every ensemble of {MOST_FOR_ALL} runs at most, and these are "
            f"{n_runs}: take --choose greedy"
        )


def _unseen(runs: Sequence[Run]) -> Unseen:
    first = runs[0]
    assert first.held_out is not None, "it is read where members are chosen"
    return unseen_rows(first.held_out.parts, first.scoring.split.parts, first.asked.run)


def _choose(runs: Sequence[Run], unseen: Unseen, how: How) -> tuple[Choice, float | None]:
    """Return the choice, and the threshold of no answer that is the best for it."""
    answers = []
    for run in runs:
        assert run.held_out is not None, "it is read where members are chosen"
        answers.append(run.answer(run.held_out))

    def scored(members: Sequence[int]) -> Any:
        return unseen.score([answers[number] for number in members])

    with stage("choosing members"):
        choice = choose(len(runs), lambda members: scored(members).score, how)
    return choice, scored(choice.members).threshold


def _member(run: Run, own: MemberAnswers, is_member: bool) -> dict[str, Any]:
    """Return what a run scores alone, on the same examples."""
    split = run.scoring.split
    predictions = combine(split.parts, [own], own.threshold)
    unscored = BaselineScores(lambda: run.scoring.train, are_scored=False)
    tasks = []
    for each in report_split(split, unscored, predictions):
        said = each.to_json()
        del said["baselines"]
        tasks.append(said)
    return {
        "run": str(run.asked.run),
        "is_member": is_member,
        "selected_by": selected_by(run.asked),
        "tasks": tasks,
    }


def _described(
    choice: Choice | None, how: How | None, runs: Sequence[Run], unseen: Unseen | None
) -> dict[str, Any] | None:
    if choice is None or unseen is None:
        return None
    names = [str(run.asked.run) for run in runs]
    return {
        "how": how,
        "rows": unseen.n_rows,
        "rows_left_out": unseen.n_left_out,
        "ensembles": choice.n_tried,
        "score": choice.score,
        "members": [names[number] for number in choice.members],
        "steps": [{"run": names[step.member], "score": step.score} for step in choice.steps],
    }
