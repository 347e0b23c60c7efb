"""The results of a study, read from its folder, finished or not, without training anything."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sublayer.config.layering.layers import LoadedRecipe
from sublayer.config.layering.run_recipe import recipe_of
from sublayer.counts import count
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.parsing import parse_toml, read_json_object
from sublayer.objective.families import family_of
from sublayer.objective.metric import Metric
from sublayer.objective.supervised.scores import REMEDY
from sublayer.statistics.looks import Looks, fixed
from sublayer.study.arm_runs import ArmRuns, of_seeds, read_arms
from sublayer.study.arms import Arm, Trial, planned_trials
from sublayer.study.budget.match import Rule
from sublayer.study.budget.words import time_caveats
from sublayer.study.collect import Runs, collect_chain, collect_results, read_baselines
from sublayer.study.columns import Column, list_columns, primary_column
from sublayer.study.definition import Study
from sublayer.study.findings.reproduction import list_differing_machines
from sublayer.study.findings.samples import kept_samples, with_layers
from sublayer.study.finished_runs import recorded_measures
from sublayer.study.items import collect_items
from sublayer.study.jobs.run import Outcome, read_outcome
from sublayer.study.notes import edges, list_caveats, list_notes
from sublayer.study.plan_file import PLAN, Plan, read_plan, sealing_of, study_of
from sublayer.study.results import RESULTS, Results
from sublayer.study.scoring import Scoring
from sublayer.study.stage_runs import Gathering, Kept, read_chain_file
from sublayer.study.stages import explain_nesting, is_within
from sublayer.study.verdicts import Looking, look_reached
from sublayer.tasks.metrics.points import points


def results_of_folder(folder: Path, *, command: str = "") -> Results:
    """Build the results of the comparison in a folder, of the runs that have ended.

    What it lacks is said in the first note. With a ``command``, which makes the results again, all
    notes are new; without, those that a finished study has are kept. Raises ConfigError where the
    folder is damaged, or
    where the baseline has no run that has ended, and CheckpointError where a run is damaged.
    """
    plan = read_plan(folder)
    earlier = {} if command else _earlier(folder)
    command = command or earlier.get("reproduction", {}).get("command") or plan.command
    if plan.asked.stages is not None:
        return results_of_chain(folder, plan, command)
    about = plan.about
    arms = [
        each for each in read_arms(folder, plan, _metric(folder, plan, earlier)) if each.outcomes
    ]
    begun = [each.matched_arm.arm.name for each in arms]
    without = [each.name for each in plan.settled if each.name not in begun]
    if plan.settled[0].name in without:
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
        items = collect_items(arms)
        reached = look_reached(study, arms, items, names, plan.asked.seeds, looking)
        n_seeds, missing = reached.look, reached.n_missing
        looking = replace(looking, is_unfinished=not reached.is_judged)
    else:
        arms = [of_seeds(each, plan.asked.seeds.compared(n_seeds)) for each in arms]
        missing = n_seeds * len(plan.settled) - sum(len(each.outcomes) for each in arms)
        looking = Looking(fixed(n_seeds), reported, is_unfinished=missing > 0, n_tuning=n_tuning)
        items = collect_items(arms)
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
        trials=planned_trials(plan.asked.tune, plan.extended),
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


def explain_stage_choices(
    runs: Runs, trials: Mapping[str, Sequence[Trial]], tuning_number: int
) -> tuple[str, ...]:
    """Say of each arm and stage what it chose, what others scored, and where that is an edge.

    ``tuning_number`` is the seed of the trials. Empty where nothing was tuned.
    """
    notes = []
    for (arm, stage), own in runs.items():
        if not own.tried:
            continue
        scored = [
            f"{name}: {'failed' if score is None else points(score)}"
            for name, score in own.tried.items()
        ]
        text = (
            f"{arm}, {stage}: {own.trial.name} chosen by the score on held-out training examples "
            f"(seed {tuning_number}); {', '.join(scored)}."
        )
        notes.append(" ".join([text, *edges(own.trial, trials[stage], own.tried)]))
    return tuple(notes)


def explain_collapses(results: Results) -> tuple[str, ...]:
    """Say which arms' runs answer nothing, in how many of them: what they score is no skill."""
    card = results.scorecard
    if card is None:
        return ()
    said = []
    for row in card.rows:
        for column in card.columns:
            cell = row.cells.get(column.name)
            if cell is not None and cell.n_collapsed:
                said.append(f"{cell.n_collapsed} of {cell.n_runs} of {row.name} on {column.label}")
    if not said:
        return ()
    return (
        f"Collapsed runs, which give the same answer to every example: {'; '.join(said)}. A "
        f"difference from such a mean is no difference in skill. What helps: {REMEDY}.",
    )


def find_columns(study: Study, kept: Kept) -> tuple[list[Column], Column]:
    """Return the columns of a chain's scores, and the one that decides.

    Raises ConfigError as ``list_columns`` and ``primary_column`` do.
    """
    columns = list_columns(study.name, kept.chain, kept.parts, kept.kinds)
    return columns, primary_column(study.name, columns, study.metric)


def chain_results(
    study: Study,
    kept: Kept,
    runs: Runs,
    folder: Path,
    *,
    rule: Rule,
    command: str,
    layer_notes: Sequence[str],
    looks: Sequence[int],
    jobs: Sequence[int],
    clusters: Sequence[str],
    is_unfinished: bool = False,
) -> Results:
    """Build the results of a chain; ``study`` has the recipes of its arms.

    ``looks`` are the numbers of seeds of its reports, in order, ``jobs`` those of runs that were
    made at a time, ``clusters`` the kinds of clusters that made runs. Raises ConfigError where what
    the baselines scored is damaged.
    """
    columns, primary = find_columns(study, kept)
    results = collect_chain(
        study,
        rule,
        kept.n_seeds,
        kept.arms,
        runs,
        columns,
        primary,
        read_baselines(folder, kept.baselines, columns),
        command=command,
        looks=() if is_within(kept.chain, kept.n_seeds) else looks,
        is_unfinished=is_unfinished,
    )
    notes = [explain_nesting(kept.chain, kept.n_seeds), *study.caveats, *layer_notes]
    notes += kept.cuts.values()
    notes += explain_stage_choices(runs, kept.trials, kept.tuning_number)
    notes += explain_collapses(results)
    notes += time_caveats(results)
    notes += list_caveats(
        (),
        metric=results.metric,
        jobs=jobs,
        clusters=clusters,
        machines=list_differing_machines(_outcomes(runs)),
    )
    return replace(results, notes=tuple(notes), sealing=sealing_of(folder, kept.stage_texts))


def _outcomes(runs: Runs) -> dict[str, list[Outcome]]:
    """Return the outcomes of all seeds by arm and stage."""
    return {
        f"{arm}, {name}": [outcome for seed in own.outcomes.values() for outcome in seed]
        for (arm, name), own in runs.items()
    }


def results_of_chain(folder: Path, plan: Plan, command: str) -> Results:
    """Build the results of the chain in a folder, of the runs that have ended.

    ``plan`` is what its ``study.toml`` holds, ``command`` makes the study again. What it lacks is
    said in the first note. Raises ConfigError where the folder is damaged, or where the baseline
    has no run that has ended, and CheckpointError where a run is damaged.
    """
    kept = read_chain_file(folder, plan)
    assert plan.about is not None, "it is written before what is kept of a chain"
    gathering = _gathering(folder, kept)
    runs = gathering.gathered()
    baseline = kept.arms[0].name
    if not _has_ended(baseline, runs):
        raise ConfigError(
            f"{folder}: no run of the baseline, {baseline}, has ended: there is nothing to report "
            "yet"
        )
    study = replace(study_of(plan, plan.about, _arms(folder, plan)), chain=kept.chain)
    ended = gathering.n_ended()
    missing = {stage: n_runs - ended.get(stage, 0) for stage, n_runs in kept.n_runs.items()}
    missing = {stage: n_runs for stage, n_runs in missing.items() if n_runs > 0}
    results = chain_results(
        study,
        kept,
        runs,
        folder,
        rule=plan.asked.match,
        command=command,
        layer_notes=plan.about.layer_notes,
        looks=plan.reported_seeds,
        jobs=plan.jobs,
        clusters=plan.clusters,
        is_unfinished=bool(missing),
    )
    if not missing:
        return results
    note = _unfinished_stages(missing, sum(kept.n_runs.values()), plan.command)
    return replace(results, notes=(note, *results.notes))


def _gathering(folder: Path, kept: Kept) -> Gathering:
    """Find the runs in a folder, and what they chose."""
    gathering = Gathering(kept, folder, read_outcome)
    for stage in kept.chain.stages:
        gathering.choose(stage)
    return gathering


def _has_ended(arm: str, runs: Runs) -> bool:
    own = [each for (name, _), each in runs.items() if name == arm]
    return any(
        outcome.test is not None
        for each in own
        for outcomes in each.outcomes.values()
        for outcome in outcomes
    )


def _arms(folder: Path, plan: Plan) -> list[Arm]:
    """Return the arms as they were asked for."""
    place = str(folder / PLAN)
    arms = []
    for name, text in plan.asked.recipes.items():
        recipe = recipe_of(parse_toml(text, place, ConfigError), place)
        arms.append(Arm(name, LoadedRecipe(recipe, {}, name, ()), {}))
    return arms


def _unfinished_stages(missing: Mapping[str, int], total: int, command: str) -> str:
    ended = total - sum(missing.values())
    each = ", ".join(f"{n_runs:,} of {stage}" for stage, n_runs in missing.items())
    text = f"Unfinished: {ended:,} of {count(total, 'run')} have ended; missing are {each}."
    return f"{text} To resume: {command}" if command else text
