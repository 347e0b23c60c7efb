"""The results of a chain from its folder, finished or not: nothing is trained, no text is read."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from sublayer.config.layering.layers import LoadedRecipe
from sublayer.config.layering.run_recipe import recipe_of
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.files.parsing import parse_toml
from sublayer.study.arms import Arm
from sublayer.study.chain.collect import Runs
from sublayer.study.chain.gathering import Gathering
from sublayer.study.chain.kept import Kept, read_chain_file
from sublayer.study.chain.reporting import chain_results
from sublayer.study.execution.one_run import read_outcome
from sublayer.study.plan_file import PLAN, Plan, study_of
from sublayer.study.results import Results


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
    note = _unfinished(missing, sum(kept.n_runs.values()), plan.command)
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


def _unfinished(missing: Mapping[str, int], total: int, command: str) -> str:
    ended = total - sum(missing.values())
    each = ", ".join(f"{n_runs:,} of {stage}" for stage, n_runs in missing.items())
    text = f"Unfinished: {ended:,} of {count(total, 'run')} have ended; missing are {each}."
    return f"{text} To resume: {command}" if command else text
