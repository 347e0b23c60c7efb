"""What a chain refuses before anything is trained."""

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from sublayer.config.fields.messages import choice_error
from sublayer.config.layering.layers import vary
from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError, DataError
from sublayer.runs.start_check import check_start
from sublayer.study.budget.capacity import run_disk, scored_disk
from sublayer.study.budget.match import ORIGIN, MatchedArm
from sublayer.study.chain.columns import Column
from sublayer.study.chain.kept import Kept
from sublayer.study.chain.recipes import StageRecipes
from sublayer.study.chain.stages import PRETRAINING, Chain, Stage, check_numbers
from sublayer.study.definition import Study
from sublayer.system.launch import n_launched
from sublayer.system.memory import format_bytes
from sublayer.tasks.registry import TASKS, locate_files


def check_chain(study: Study, n_seeds: int) -> None:
    """Raise ConfigError where a chain, or the number of its seeds, is nothing to compare.

    Raises DataError where ``--data`` lacks the files of a task: before a text is read.
    """
    chain = study.chain
    assert chain is not None, "a study without stages is none of chains"
    for arm in study.arms:
        check_start(arm.loaded, "compare")
    if n_launched() > 1:
        raise ConfigError("compare runs in one process: start it without torchrun")
    check_numbers(chain, n_seeds)
    study.question.check_arms(study.name, [arm.name for arm in study.arms])
    if study.arms[0].loaded.origins.get("train.seed") == "command line":
        raise ConfigError(
            "train.seed has no effect on a comparison: its seeds are 0 to N - 1, with --seeds N"
        )
    for stage in chain.stages:
        _check_files(chain, stage)
        for arm in study.arms:
            settings = chain.settings_of(arm.name, stage)
            if "train.seed" in settings:
                raise ConfigError(
                    f"{study.name}: stage {stage.name} has train.seed, which every arm has the "
                    f"same of: give their number with --seeds and --finetunings"
                )
            if "train.minutes" in settings:
                raise ConfigError(
                    f"{study.name}: stage {stage.name} has train.minutes, which would give each of "
                    "its runs another length: give train.epochs or train.steps"
                )
            if "init.run" in settings:
                raise ConfigError(
                    f"{study.name}: stage {stage.name} has init.run, which is what {stage.after} "
                    "leaves: leave it out"
                )


def check_question(study: Study, columns: Sequence[Column], primary: Column) -> None:
    """Raise ConfigError for a margin or spread in another unit, and verdicts on no column."""
    study.question.margin_of(study.name, primary.metric)
    study.question.spread_of(study.name, primary.metric)
    names = [column.name for column in columns if column is not primary]
    for name in study.question.also:
        if name not in names:
            raise ConfigError(choice_error(f"{study.name}: also", name, names))


def _check_files(chain: Chain, stage: Stage) -> None:
    if chain.data is None:
        return
    try:
        for name in stage.tasks:
            locate_files(TASKS[name], chain.data)
    except DataError as error:
        raise DataError(f"stage {stage.name}: {error}") from None


def check_disk(
    recipes: StageRecipes,
    arms: Sequence[MatchedArm],
    data: Mapping[str, Data],
    kept: Kept,
    folder: Path,
    jobs: int,
) -> None:
    """Raise ConfigError where the models of all runs do not fit on the disk.

    ``jobs`` runs at a time have checkpoints beside. What is there already of the same runs is not
    counted twice.
    """
    keys = kept.stage_keys
    needed, largest = 0, 0
    for stage, planned in planned_recipes(recipes, arms, data, kept).items():
        models = [scored_disk(recipe, vocab_size) for recipe, vocab_size in planned]
        largest = max(largest, *(run_disk(recipe, vocab_size) for recipe, vocab_size in planned))
        needed += kept.n_runs[stage] * max(models)
    needed += min(jobs, sum(kept.n_runs.values())) * largest
    own = {keys.folder(folder, arm, stage) for arm, stage in keys.by_stage}
    files = (path for each in own for path in each.rglob("*") if path.is_file())
    written = sum(path.stat().st_size for path in files)
    free = shutil.disk_usage(folder).free
    if needed - written > free:
        raise ConfigError(
            f"the models of all runs take {format_bytes(needed - written)} of disk, and "
            f"{format_bytes(free)} are free: give another --out, fewer --seeds or --finetunings"
        )


def planned_recipes(
    recipes: StageRecipes, arms: Sequence[MatchedArm], data: Mapping[str, Data], kept: Kept
) -> dict[str, list[tuple[Recipe, int]]]:
    """Return the arms' recipes of each stage that trains, with the sizes of their vocabularies.

    Threads are those that were settled for the arm.
    """
    planned: dict[str, list[tuple[Recipe, int]]] = {}
    for stage in kept.n_runs:
        if stage != PRETRAINING and recipes.chain.stage(stage).ensemble:
            continue  # it leaves scores alone
        for arm in arms:
            name = arm.arm.name
            if (name, stage) not in kept.stage_keys.by_stage:
                continue
            threads = {"train.threads": arm.loaded.recipe.train.threads}
            recipe = vary(recipes.planned(name, stage), threads, origin=ORIGIN).recipe
            planned.setdefault(stage, []).append((recipe, data[name].tokenizer.vocab_size))
    return planned
