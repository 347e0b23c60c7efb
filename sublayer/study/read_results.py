"""The results of a study, read from its folder, finished or not, without training anything."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sublayer.config.recipe import ResolvedRecipe
from sublayer.config.run_recipe import recipe_of
from sublayer.counts import count
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.parsing import parse_toml, read_json_object
from sublayer.objective.families import family_of
from sublayer.objective.metric import Metric
from sublayer.statistics.looks import Looks, fixed
from sublayer.study.arms import Arm, planned_trials
from sublayer.study.chain_file import Kept, read_chain_file
from sublayer.study.collect import collect_results, read_baselines
from sublayer.study.columns import Column, list_columns, metric_columns, primary_column
from sublayer.study.definition import Study
from sublayer.study.evidence import Looking, StudyJudge
from sublayer.study.notes import (
    explain_collapses,
    explain_stage_choices,
    list_caveats,
    list_differing_machines,
    list_notes,
    time_caveats,
)
from sublayer.study.plan_file import PLAN, Plan, read_plan, sealing_of, study_of
from sublayer.study.results import RESULTS, Results
from sublayer.study.runs import asked_arms, describe_arm, of_seeds, read_runs
from sublayer.study.samples import with_kept
from sublayer.study.scoring import Scoring
from sublayer.study.stages import PRETRAINING, explain_nesting, is_within, n_compared
from sublayer.study.verdicts import look_reached


def results_of_folder(folder: Path, *, command: str = "") -> Results:
    """Build the results of the comparison in a folder, of the runs that have ended.

    Missing runs are named in the first note. With a ``command``, which makes the results again, all
    notes are new; without, those that a finished study has are kept. No text is read. Raises
    ConfigError where the folder is damaged, or where the baseline has no run that has ended, and
    CheckpointError where a run is damaged.
    """
    plan = read_plan(folder)
    earlier = {} if command else _earlier(folder)
    command = command or earlier.get("reproduction", {}).get("command") or plan.command
    if plan.asked.stages is None:
        return _results_of_arms(folder, plan, earlier, command)
    return _results_of_stages(folder, plan, command)


def _results_of_arms(folder: Path, plan: Plan, earlier: Mapping[str, Any], command: str) -> Results:
    """Build the results of a study whose runs are one training each."""
    about, asked = plan.about, plan.asked
    arms, runs = read_runs(folder, plan, _metric(folder, plan, earlier))
    arms = [arm for arm in arms if isinstance(arm.loaded.recipe, ResolvedRecipe)]
    runs = {(arm.name, PRETRAINING): runs[arm.name, PRETRAINING] for arm in arms}
    begun = [arm.name for arm in arms]
    without = [each.name for each in plan.settled if each.name not in begun]
    _check_baseline(folder, plan, begun)
    most = max(len(stage_runs.outcomes) for stage_runs in runs.values())
    n_seeds = plan.planned_seeds or earlier.get("planned_seeds") or most
    study = _study(folder, plan, earlier, arms)
    # An arm against itself is compared with none.
    against = about.against if about else {}
    n_awaited = sum(against.get(name) != name for name in without)
    looks = Looks(tuple(asked.looks), is_sequential=True) if asked.looks else fixed(n_seeds)
    n_tuning = len(asked.tuning_seeds)
    looking = Looking(looks, tuple(plan.reported_seeds), n_tuning=n_tuning)
    if asked.looks:
        names = [each.name for each in plan.settled]
        reached = look_reached(study, runs, names, asked.seeds, looking)
        n_seeds, missing, is_unfinished = reached.look, reached.n_missing, not reached.is_judged
    else:
        runs = of_seeds(runs, asked.seeds.compared(n_seeds))
        n_made = sum(len(stage_runs.outcomes) for stage_runs in runs.values())
        missing = n_seeds * len(plan.settled) - n_made
        is_unfinished = missing > 0
    columns = metric_columns(study)
    looking = replace(looking, is_unfinished=is_unfinished)
    judge = StudyJudge(study, columns, runs, n_seeds, looking, n_awaited)
    facts = [describe_arm(arm) for arm in arms]
    results = collect_results(judge, facts, columns[0], command=command)
    shown = with_kept(results.arms, runs, study.inspecting)
    results = replace(results, arms=shown, sealing=sealing_of(folder))
    if not missing and earlier.get("planned_seeds") == n_seeds and "looks" in earlier:
        return replace(results, notes=tuple(earlier.get("notes", ())))
    trials = planned_trials(asked.tune, plan.extended)
    notes = list_notes(results, study, runs, plan, trials)
    if missing:
        n_made = sum(len(stage_runs.outcomes) for stage_runs in runs.values())
        lacks = f"No run has ended of {', '.join(without)}." if without else ""
        notes = (_unfinished(n_made, missing, ".", lacks, plan), *notes)
    return replace(results, notes=notes)


def _results_of_stages(folder: Path, plan: Plan, command: str) -> Results:
    """Build the results of a study with stages; raise ConfigError where a score is damaged too."""
    kept, about = read_chain_file(folder, plan), plan.about
    assert about is not None, "it is written before what is kept of a chain"
    finder, chain = kept.finder(folder), kept.chain
    for stage in chain.stages:
        finder.choose(stage.name)
    runs = finder.gathered()
    _check_baseline(folder, plan, {arm for (arm, _), own in runs.items() if any(own.scored())})
    study = replace(study_of(plan, about, asked_arms(folder, plan)), chain=chain)
    n_ended = finder.n_ended()
    missing = {stage: n - n_ended.get(stage, 0) for stage, n in kept.n_runs.items()}
    missing = {stage: n for stage, n in missing.items() if n > 0}
    columns, primary = find_columns(study, kept)
    within = chain.n_seeds if is_within(chain, kept.n_seeds) else 0
    n_seeds = n_compared(chain, kept.n_seeds)
    taken = () if within else tuple(plan.reported_seeds)
    looking = Looking(fixed(n_seeds), taken, is_unfinished=bool(missing))
    judge = StudyJudge(study, columns, runs, n_seeds, looking, within=within)
    baselines = read_baselines(folder, kept.baselines, columns)
    results = collect_results(judge, kept.arms, primary, command=command, baselines=baselines)
    machines = {
        f"{arm}, {stage}": [outcome for _, outcome in stage_runs.seeded()]
        for (arm, stage), stage_runs in runs.items()
    }
    notes = [
        explain_nesting(chain, kept.n_seeds),
        *study.caveats,
        *about.layer_notes,
        *kept.cuts.values(),
        *explain_stage_choices(runs, kept.trials, kept.tuning_number),
        *explain_collapses(results),
        *time_caveats(results),
        *list_caveats(
            (),
            metric=results.metric,
            jobs=plan.jobs,
            clusters=plan.clusters,
            machines=list_differing_machines(machines),
        ),
    ]
    if missing:
        n_missing = sum(missing.values())
        of_stages = ", ".join(f"{n_runs:,} of {stage}" for stage, n_runs in missing.items())
        n_made = sum(kept.n_runs.values()) - n_missing
        notes.insert(0, _unfinished(n_made, n_missing, f"; missing are {of_stages}.", "", plan))
    return replace(results, notes=tuple(notes), sealing=sealing_of(folder, kept.stage_texts))


def _check_baseline(folder: Path, plan: Plan, begun: Collection[str]) -> None:
    baseline = plan.settled[0].name
    if baseline not in begun:
        raise ConfigError(
            f"{folder}: no run of the baseline, {baseline}, has ended: "
            "there is nothing to report yet"
        )


def _unfinished(n_ended: int, n_missing: int, which: str, lacks: str, plan: Plan) -> str:
    """Say how many runs are missing, and the command that makes them."""
    text = f"Unfinished: {n_ended:,} of {count(n_ended + n_missing, 'run')} have ended{which}"
    resume = f"To resume: {plan.command}" if plan.command else ""
    return " ".join(filter(None, [text, lacks, resume]))


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
    return next((metric for metric in metrics if metric.name == named), metrics[0])


def _study(folder: Path, plan: Plan, earlier: Mapping[str, Any], arms: Sequence[Arm]) -> Study:
    """Return the study as it was kept, or as its results have it."""
    own = tuple(arms)
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


def find_columns(study: Study, kept: Kept) -> tuple[list[Column], Column]:
    """Return the columns of a chain's scores, and the one that decides.

    Raises ConfigError as ``list_columns`` and ``primary_column`` do.
    """
    columns = list_columns(study.name, kept.chain, kept.parts, kept.kinds)
    return columns, primary_column(study.name, columns, study.metric)
