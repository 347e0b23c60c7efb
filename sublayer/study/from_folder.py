"""The results of a comparison from its folder, finished or not, without training anything."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sublayer.config.layering.layers import LoadedRecipe
from sublayer.config.layering.overrides import override_layer
from sublayer.counts import count
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.parsing import read_json_object
from sublayer.runs.folder import RunFolder
from sublayer.study.arms import Arm, split_values
from sublayer.study.budget.budget import MatchedArm
from sublayer.study.chain.from_folder import results_of_chain
from sublayer.study.collect import collect_items, collect_results, scored_elsewhere
from sublayer.study.definition import Study
from sublayer.study.execution.arm_runs import ArmRuns
from sublayer.study.execution.one_run import Outcome, read_outcome
from sublayer.study.findings.samples import kept_samples
from sublayer.study.folder import arm_folder
from sublayer.study.plan_file import Plan, read_plan, study_of
from sublayer.study.recorded import recorded_measures
from sublayer.study.report.budget_words import time_caveats
from sublayer.study.report.caveats import explain_one_seed, list_caveats
from sublayer.study.report.choices import chosen_by_validation, explain_choices
from sublayer.study.results import RESULTS, Results
from sublayer.study.scoring import Scoring
from sublayer.study.tuning import Trial


def results_of_folder(folder: Path) -> Results:
    """Build the results of the comparison in a folder, of the runs that have ended.

    What it lacks is said in the first note. Raises ConfigError where the folder is damaged, or
    where the baseline has no run that has ended, and CheckpointError where a run is damaged.
    """
    plan = read_plan(folder)
    earlier = _earlier(folder)
    command = earlier.get("reproduction", {}).get("command") or plan.command
    if plan.asked.stages is not None:
        return results_of_chain(folder, plan, command)
    about = plan.about
    varied: Mapping[str, Mapping[str, Any]] = about.varied if about else {}
    n_trials = math.prod(len(split_values(text.partition("=")[2])) for text in plan.asked.tune)
    arms = []
    without = []
    for position, settled in enumerate(plan.settled):
        place = arm_folder(folder, position, settled.name)
        found = _find_runs(place, settled.name, plan, n_trials, varied.get(settled.name))
        if found is None:
            without.append(settled.name)
            continue
        matched_arm = replace(
            found.matched_arm, matched=tuple(settled.matched), mismatch=settled.residual
        )
        arms.append(replace(found, matched_arm=matched_arm))
    if plan.settled[0].name in without or not arms:
        raise ConfigError(
            f"{folder}: no run of the baseline, {plan.settled[0].name}, has ended: "
            "there is nothing to report yet"
        )
    n_seeds = plan.planned_seeds or earlier.get("planned_seeds") or _most_seeds(arms)
    study = _study(folder, plan, earlier, arms)
    # An arm against itself is compared with none.
    against = about.against if about else {}
    n_awaited = sum(against.get(name) != name for name in without)
    results = collect_results(
        study,
        study.match,
        n_seeds,
        arms,
        recorded_measures(),
        command=command,
        n_awaited=n_awaited,
    )
    results = replace(results, arms=kept_samples(results.arms, arms))
    missing = n_seeds * len(plan.settled) - sum(len(each.outcomes) for each in arms)
    if not missing and earlier.get("planned_seeds") == n_seeds:
        return replace(results, notes=tuple(earlier.get("notes", ())))
    return replace(results, notes=_notes(results, study, plan, arms, missing))


def _earlier(folder: Path) -> dict[str, Any]:
    try:
        return read_json_object(folder / RESULTS, CheckpointError)
    except FileNotFoundError:
        return {}


def _study(folder: Path, plan: Plan, earlier: Mapping[str, Any], arms: Sequence[ArmRuns]) -> Study:
    """Return what the study is, as it was kept, or as its results have it."""
    own = tuple(each.matched_arm.arm for each in arms)
    if plan.about is not None:
        return study_of(plan, plan.about, own)
    scoring = Scoring.model_validate(plan.asked.score or {})
    against = {}
    compared = {each["arm"]: each["baseline"] for each in earlier.get("differences", ())}
    for arm in own[1:]:
        # An arm without a difference is a control: it is compared with none.
        other = compared.get(arm.name, arm.name) if compared else own[0].name
        if other != own[0].name:
            against[arm.name] = other
    own = tuple(replace(arm, against=against.get(arm.name)) for arm in own)
    name = earlier.get("name") or folder.absolute().name
    title = earlier.get("title", "")
    metric = earlier.get("metric")
    return Study(name, title, "", plan.asked.match, None, own, metric=metric, scoring=scoring)


def _find_runs(
    place: Path, name: str, plan: Plan, n_trials: int, varied: Mapping[str, Any] | None
) -> ArmRuns | None:
    """Return the runs of an arm that have ended; None where none has, or trials are missing."""
    fields = [text.partition("=")[0].strip() for text in plan.asked.tune]
    chosen = place
    losses: dict[str, float | None] = {}
    if fields:
        tried = [each for each in sorted(place.glob("*")) if (each / "seed-0").is_dir()]
        first = [(each, read_outcome(each / "seed-0")) for each in tried]
        if len([outcome for _, outcome in first if outcome is not None]) < n_trials:
            return None
        scored = [
            (float(outcome.record["valid"]["loss"]), each)
            for each, outcome in first
            if outcome is not None and outcome.record is not None
        ]
        if not scored:
            return None
        chosen = min(scored)[1]
        found = {each.name: loss for loss, each in scored}
        losses = {each.name: found.get(each.name) for each in tried}
    outcomes: dict[int, Outcome] = {}
    for path in sorted(chosen.glob("seed-*"), key=lambda each: int(each.name[5:])):
        outcome = read_outcome(path)
        if outcome is not None:
            outcomes[int(path.name[5:])] = outcome
    ended = [each.path for each in outcomes.values() if each.record is not None]
    if not ended:
        return None
    recipe = RunFolder(ended[0]).recipe()
    arm = Arm(name, LoadedRecipe(recipe, {}, name, ()), varied or {}, is_varied=bool(varied))
    tuned = {field: _value(recipe, field) for field in fields}
    return ArmRuns(MatchedArm(arm, {}, (), 0.0), Trial(chosen.name, tuned), outcomes, losses)


def _value(recipe: Any, field: str) -> Any:
    table, _, name = field.partition(".")
    return getattr(getattr(recipe, table), name)


def _trials(tune: Sequence[str]) -> list[Trial]:
    """Return the trials that ``field=a,b`` texts ask for, numbers as numbers."""
    fields = [text.partition("=")[0].strip() for text in tune]
    values = [split_values(text.partition("=")[2]) for text in tune]
    trials = []
    for each in itertools.product(*values):
        texts = [f"{field}={value}" for field, value in zip(fields, each, strict=True)]
        trials.append(Trial("", override_layer(texts, "tune").values))
    return trials


def _most_seeds(arms: Sequence[ArmRuns]) -> int:
    return max(max(each.outcomes) + 1 for each in arms)


def _notes(
    results: Results, study: Study, plan: Plan, arms: Sequence[ArmRuns], missing: int
) -> tuple[str, ...]:
    notes = []
    if missing > 0:
        ended = results.n_seeds * len(plan.settled) - missing
        text = f"Unfinished: {ended} of {count(ended + missing, 'run')} of all seeds have ended."
        absent = [each.name for each in plan.settled]
        for each in arms:
            absent.remove(each.matched_arm.arm.name)
        if absent:
            text += f" Not one of {', '.join(absent)} has."
        if plan.command:
            text += f" This resumes it: {plan.command}"
        notes.append(text)
    notes += study.caveats
    if plan.about is not None:
        notes += plan.about.layer_notes
    if not results.has_verdicts:
        notes.append(explain_one_seed(results, plan.reported_seeds))
    if plan.asked.tune:
        notes += explain_choices(arms, _trials(plan.asked.tune))
    notes += time_caveats(results)
    items, _ = collect_items(arms)
    elsewhere = scored_elsewhere(items, results.baseline, results.metric, study.against)
    notes += list_caveats(
        sorted({*plan.reported_seeds, results.n_seeds}),
        plan.about.text_notes if plan.about is not None else (),
        n_seeds=results.n_seeds,
        n_comparisons=results.n_comparisons if results.differences else 0,
        metric=results.metric,
        elsewhere=elsewhere,
        jobs=plan.jobs,
        scoring=study.scoring,
        chosen=chosen_by_validation(study.arms, plan.asked.tune),
    )
    return tuple(notes)
