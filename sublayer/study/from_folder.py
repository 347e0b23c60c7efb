"""The results of a comparison from its folder, finished or not, without training anything."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sublayer.config.layering.overrides import override_layer
from sublayer.config.layering.run_recipe import recipe_of
from sublayer.counts import count
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.parsing import parse_toml, read_json_object
from sublayer.objective.families import family_of
from sublayer.objective.metric import Metric
from sublayer.statistics.looks import Looks, fixed
from sublayer.study.arms import split_values
from sublayer.study.chain.from_folder import results_of_chain
from sublayer.study.collect import collect_results
from sublayer.study.definition import Study
from sublayer.study.ended_runs import find_ended, of_seeds
from sublayer.study.execution.arm_runs import ArmRuns
from sublayer.study.findings.samples import kept_samples
from sublayer.study.folder import arm_folder
from sublayer.study.inspection.arms import with_layers
from sublayer.study.items.collecting import collect_items
from sublayer.study.judging import Looking
from sublayer.study.plan_file import PLAN, Plan, read_plan, study_of
from sublayer.study.recorded import recorded_measures
from sublayer.study.report.notes import list_notes
from sublayer.study.results import RESULTS, Results
from sublayer.study.scoring import Scoring
from sublayer.study.sealed_runs import sealing_of
from sublayer.study.stopping import look_reached
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
    n_trials += len(plan.extended)
    metric = _metric(folder, plan, earlier)
    arms = []
    without = []
    for position, settled in enumerate(plan.settled):
        place = arm_folder(folder, position, settled.name)
        own = varied.get(settled.name)
        found = find_ended(place, settled.name, plan, n_trials, own, metric)
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
    reported = tuple(plan.reported_seeds)
    n_tuning = len(plan.asked.tuning_seeds)
    if plan.asked.looks:
        looking = Looking(
            Looks(tuple(plan.asked.looks), is_sequential=True), reported, n_tuning=n_tuning
        )
        names = [each.name for each in plan.settled]
        items, _ = collect_items(arms)
        reached = look_reached(study, arms, items, names, plan.asked.seeds, looking)
        n_seeds, missing = reached.look, reached.n_missing
        looking = replace(looking, is_unfinished=not reached.is_judged)
    else:
        arms = [of_seeds(each, plan.asked.seeds.compared(n_seeds)) for each in arms]
        missing = n_seeds * len(plan.settled) - sum(len(each.outcomes) for each in arms)
        looking = Looking(fixed(n_seeds), reported, is_unfinished=missing > 0, n_tuning=n_tuning)
        items, _ = collect_items(arms)
    results = collect_results(
        study,
        study.match,
        n_seeds,
        arms,
        recorded_measures(),
        command=command,
        items=items,
        looking=looking,
        n_awaited=n_awaited,
    )
    shown = with_layers(kept_samples(results.arms, arms), arms, study.inspecting)
    results = replace(results, arms=shown, sealing=sealing_of(folder))
    if not missing and earlier.get("planned_seeds") == n_seeds and "looks" in earlier:
        return replace(results, notes=tuple(earlier.get("notes", ())))
    notes = list_notes(
        results,
        study,
        arms,
        items,
        tune=plan.asked.tune,
        trials=_trials(plan.asked.tune, plan.extended) if plan.asked.tune else (),
        n_tuning=n_tuning,
        layers=about.layer_notes if about else (),
        texts=about.text_notes if about else (),
        jobs=plan.jobs,
        clusters=plan.clusters,
        looks=plan.reported_seeds,
    )
    if missing:
        notes = (_unfinished(plan, arms, missing), *notes)
    return replace(results, notes=notes)


def _earlier(folder: Path) -> dict[str, Any]:
    try:
        return read_json_object(folder / RESULTS, CheckpointError)
    except FileNotFoundError:
        return {}


def _metric(folder: Path, plan: Plan, earlier: Mapping[str, Any]) -> Metric | None:
    """Return the metric that trials are chosen by; None: their loss, as was before seeds tuned."""
    if plan.asked.tuning_seeds == [0]:
        return None
    place = str(folder / PLAN)
    text = next(iter(plan.asked.recipes.values()))
    recipe = recipe_of(parse_toml(text, place, ConfigError), place)
    metrics = family_of(recipe.objective).metrics
    named = (plan.about.metric if plan.about else "") or earlier.get("metric")
    return next((each for each in metrics if each.name == named), metrics[0])


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


def _trials(tune: Sequence[str], extended: Sequence[float]) -> list[Trial]:
    """Return the trials that ``field=a,b`` texts ask for, numbers as numbers, and those beyond."""
    fields = [text.partition("=")[0].strip() for text in tune]
    values = [split_values(text.partition("=")[2]) for text in tune]
    trials = []
    for each in itertools.product(*values):
        texts = [f"{field}={value}" for field, value in zip(fields, each, strict=True)]
        trials.append(Trial("", override_layer(texts, "tune").values))
    return [*trials, *(Trial("", {fields[0]: value}) for value in extended)]


def _most_seeds(arms: Sequence[ArmRuns]) -> int:
    return max(len(each.outcomes) for each in arms)


def _unfinished(plan: Plan, arms: Sequence[ArmRuns], n_missing: int) -> str:
    """Say how many runs are missing, and what makes them."""
    ended = sum(len(each.outcomes) for each in arms)
    text = f"Unfinished: {ended} of {count(ended + n_missing, 'run')} have ended."
    absent = [each.name for each in plan.settled]
    for each in arms:
        absent.remove(each.matched_arm.arm.name)
    if absent:
        text += f" No run has ended of {', '.join(absent)}."
    if plan.command:
        text += f" To resume: {plan.command}"
    return text
