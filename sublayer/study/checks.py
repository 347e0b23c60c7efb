"""The refusals of a comparison: before it reads a text, before it trains, and at its end."""

import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sublayer.config.load import vary
from sublayer.config.messages import choice_error
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import NO_TEST, holds_out
from sublayer.config.sources import shipped_recipes
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError, DataError
from sublayer.files.storage import describe_absence
from sublayer.objective.metric import Metric
from sublayer.runs.start_check import check_start
from sublayer.statistics.looks import Looks
from sublayer.study.arms import Arm
from sublayer.study.budget.expected import run_disk, scored_disk
from sublayer.study.budget.match import ORIGIN
from sublayer.study.chain_file import Kept
from sublayer.study.columns import Column, study_metrics
from sublayer.study.definition import Overrides, Study, is_run
from sublayer.study.finished import RUNS
from sublayer.study.inspection import sample_of
from sublayer.study.options import Options, command_line
from sublayer.study.plan_file import PLAN
from sublayer.study.question import check_seeds
from sublayer.study.stage_recipes import StageRecipes
from sublayer.study.stages import PRETRAINING, Chain, Stage, check_numbers
from sublayer.study.study_file import DEVIATION
from sublayer.system.launch import n_launched
from sublayer.system.memory import format_bytes
from sublayer.tasks.registry import TASKS, locate_files


def check_runs(sources: Sequence[str], overrides: Overrides, options: Options) -> None:
    """Refuse options without effect on existing runs, and sources that are no runs beside one."""
    run = next(source for source in sources if is_run(source))
    for source in sources:
        if not Path(source).exists() and source not in shipped_recipes():
            raise ConfigError(f"{describe_absence(source)}: name a run that has ended")
        if (Path(source) / PLAN).is_file() or (Path(source) / RUNS).is_file():
            raise ConfigError(
                f"{source} is a comparison: sublayer report {shlex.quote(source)} shows it; to "
                "compare runs, name their own folders"
            )
        if not is_run(source):
            raise ConfigError(
                f"{run} is a run and {source} is not: compare recipes, or runs that have ended"
            )
    given = command_line([], overrides, replace(options, device=None)).split()[2:]
    if given:
        raise ConfigError(f"runs that exist are compared as they are: leave out {' '.join(given)}")


def check_study(study: Study, looks: Looks) -> None:
    """Raise ConfigError where a study, or the number of its seeds, is nothing to compare."""
    metric, *others = study_metrics(study)
    names = [other.name for other in others]
    arms = [arm.name for arm in study.arms]
    for title, scores in study.published.items():
        if title not in arms:
            raise ConfigError(choice_error(f"{study.name}: published", title, arms))
        for name in scores:
            of, _, what = name.partition(":")
            is_deviation = what == DEVIATION and of in scores
            if name not in (metric.name, *names) and not is_deviation:
                known = [metric.name, *names]
                raise ConfigError(choice_error(f"{study.name}: published of {title}", name, known))
    _check_question(study, metric, names)
    for arm in study.arms:
        patience = arm.loaded.recipe.train.patience
        if patience is not None and study.match != "none":
            raise ConfigError(
                f"arm {arm.name}: train.patience = {patience} ends runs at steps of their own, and "
                f"budgets are matched by {study.match}: leave it out, or give --match none"
            )
    check_seeds(looks.planned[-1])
    if len(study.arms) < 2:
        raise ConfigError(
            f"{study.name} alone has nothing to be compared with: "
            "say what varies, --vary model.ffn=gelu,swiglu, or name further recipes, or runs "
            "beside a run"
        )
    _check_arms(study)


def _check_arms(study: Study) -> None:
    """Raise ConfigError where arms cannot be trained by a comparison, whatever its stages."""
    for arm in study.arms:
        check_start(arm.loaded, "compare")
    if n_launched() > 1:
        raise ConfigError("compare runs in one process: start it without torchrun")
    if study.arms[0].loaded.origins.get("train.seed") == "command line":
        first = ", or from --first-seed on" if study.chain is None else ""
        raise ConfigError(
            "train.seed has no effect on a comparison: its seeds are 0 to N - 1, with --seeds N"
            f"{first}"
        )


def check_splits(study: Study, *, n_trials: int) -> None:
    """Raise ConfigError where ``data.split`` has no split that scores, or chooses among trials."""
    for arm in study.arms:
        data = arm.loaded.recipe.data
        if study.scoring.split == "valid" and not holds_out(data, "valid"):
            raise ConfigError(
                f"score.split = valid needs a validation split, of which data.split = {data.split} "
                "has none: give a split such as 98/1/1"
            )
        if not holds_out(data, "test") and study.scoring.split == "test":
            raise ConfigError(f"data.split = {data.split} {NO_TEST}")
        if n_trials > 1 and not holds_out(data, "valid"):
            raise ConfigError(
                f"--tune chooses by a validation split, of which data.split = {data.split} has "
                "none: give a split such as 98/1/1"
            )


def check_texts(study: Study, data: Mapping[str, Data]) -> None:
    """Raise ConfigError where an arm's text left nothing for the split that scores.

    Raises DataError where that has nothing that the study's own metric is of, or is too short for
    the study's inspection.
    """
    for text in data.values():
        if study.scoring.find(text) is None:
            raise ConfigError(f"the text of {' and '.join(text.train.sources)} {NO_TEST}")
    splits = {arm.name: study.scoring.split_of(data[arm.name]) for arm in study.arms}
    if study.metric is not None:
        metric = study_metrics(study)[0]
        if not all(map(metric.has_items, splits.values())):
            raise DataError(f"metric = {metric.name}: {metric.items}")
    if study.inspecting is not None:
        for arm in study.arms:
            sample_of(arm.loaded.recipe, splits[arm.name], study.inspecting)


def check_chain(study: Study, n_seeds: int) -> None:
    """Raise ConfigError where a chain, or the number of its seeds, is nothing to compare.

    Raises DataError where ``--data`` lacks the files of a task: before a text is read.
    """
    chain = study.chain
    assert chain is not None, "a study without stages is none of chains"
    check_numbers(chain, n_seeds)
    study.question.check_arms(study.name, [arm.name for arm in study.arms])
    _check_arms(study)
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
    names = [column.name for column in columns if column is not primary]
    _check_question(study, primary.metric, names)


def _check_question(study: Study, metric: Metric, others: Sequence[str]) -> None:
    study.question.margin_of(study.name, metric)
    study.question.spread_of(study.name, metric)
    for name in study.question.also:
        if name not in others:
            raise ConfigError(choice_error(f"{study.name}: also", name, others))


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
    arms: Sequence[Arm],
    data: Mapping[str, Data],
    kept: Kept,
    folder: Path,
    jobs: int,
) -> None:
    """Raise ConfigError where the models of all runs do not fit on the disk.

    ``jobs`` runs at a time have checkpoints beside. Files of the same runs are not
    counted twice.
    """
    needed, largest = 0, 0
    for stage, planned in planned_recipes(recipes, arms, data, kept).items():
        models = [scored_disk(recipe, vocab_size) for recipe, vocab_size in planned]
        largest = max(largest, *(run_disk(recipe, vocab_size) for recipe, vocab_size in planned))
        needed += kept.n_runs[stage] * max(models)
    needed += min(jobs, sum(kept.n_runs.values())) * largest
    folders = set(kept.folders(folder).values())
    files = (path for run in folders for path in run.rglob("*") if path.is_file())
    written = sum(path.stat().st_size for path in files)
    free = shutil.disk_usage(folder).free
    if needed - written > free:
        raise ConfigError(
            f"the models of all runs take {format_bytes(needed - written)} of disk, and "
            f"{format_bytes(free)} are free: give another --out, fewer --seeds or --finetunings"
        )


def planned_recipes(
    recipes: StageRecipes, arms: Sequence[Arm], data: Mapping[str, Data], kept: Kept
) -> dict[str, list[tuple[Recipe, int]]]:
    """Return the arms' recipes of each stage that trains, with the sizes of their vocabularies.

    Threads are those that were settled for the arm.
    """
    planned: dict[str, list[tuple[Recipe, int]]] = {}
    for stage in kept.n_runs:
        if stage != PRETRAINING and recipes.chain.stage(stage).ensemble:
            continue  # it leaves scores alone
        for arm in arms:
            name = arm.name
            if stage not in kept.keys[name]:
                continue
            threads = {"train.threads": arm.loaded.recipe.train.threads}
            recipe = vary(recipes.planned(name, stage), threads, origin=ORIGIN).recipe
            planned.setdefault(stage, []).append((recipe, data[name].tokenizer.vocab_size))
    return planned
