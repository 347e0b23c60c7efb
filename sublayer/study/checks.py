"""Refusals of a comparison: before it reads a text, before it trains, and at its end."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sublayer.config.data import NO_TEST, holds_out
from sublayer.config.layers import shipped_recipes
from sublayer.config.load import vary
from sublayer.config.messages import check_choice
from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError, DataError, check_rules
from sublayer.files.storage import describe_absence
from sublayer.objective.metric import Metric
from sublayer.runs.start_check import check_start
from sublayer.study.arms import Arm
from sublayer.study.budget.expected import run_disk
from sublayer.study.budget.match import ORIGIN
from sublayer.study.chain_file import Kept
from sublayer.study.columns import study_metrics
from sublayer.study.definition import Overrides, Study, is_run
from sublayer.study.inspection import sample_of
from sublayer.study.options import Options, command_line
from sublayer.study.stage_recipes import StageRecipes
from sublayer.study.stages import Chain
from sublayer.study.study_file import DEVIATION
from sublayer.system.launch import n_launched
from sublayer.system.memory import format_bytes
from sublayer.tasks.registry import TASKS, locate_files


def check_runs(sources: Sequence[str], overrides: Overrides, options: Options) -> None:
    """Refuse options without effect on existing runs, and other sources next to runs."""
    run = next(source for source in sources if is_run(source))
    for source in sources:
        if not Path(source).exists() and source not in shipped_recipes():
            raise ConfigError(f"{describe_absence(source)}: name a run that has ended")
        check_rules(
            "",
            (
                not is_run(source),
                f"{run} is a run and {source} is not: compare recipes, or the folders of runs that "
                "have ended; sublayer report shows a comparison",
            ),
        )
    given = command_line([], overrides, replace(options, device=None)).split()[2:]
    given += ["--resume"] if options.resume else []
    check_rules(
        "", (given, f"runs that exist are compared as they are: leave out {' '.join(given)}")
    )


def check_study(study: Study, *, n_trials: int = 1) -> None:
    """Raise ConfigError for a study without a valid comparison, before a text is read.

    Raises DataError if ``--data`` lacks the files of a task. ``n_trials`` tune each arm.
    """
    arms, chain = [arm.name for arm in study.arms], study.chain
    seeds = "0 to N - 1, with --seeds N" + (", or from --first-seed on" if chain is None else "")
    if chain is None:
        _check_metrics(study, arms)
    check_rules(
        "",
        (
            len(arms) < 2,
            f"{study.name} alone has nothing to be compared with: say what varies, --vary "
            "model.ffn=gelu,swiglu, or name further recipes, or runs beside a run",
        ),
        (n_launched() > 1, "compare runs in one process: start it without torchrun"),
        (
            study.arms[0].loaded.origins.get("train.seed") == "command line",
            f"train.seed has no effect on a comparison: its seeds are {seeds}",
        ),
    )
    for arm in study.arms:
        check_start(arm.loaded, "compare")
        data, split = arm.loaded.recipe.data, study.scoring.split
        uses = [("the study, which is scored on it,", split), ("--tune", "valid")]
        for use, needed in uses if n_trials > 1 else uses[:1]:
            check_rules(
                f"{use} needs a {needed} split",
                (
                    not holds_out(data, needed),
                    f"data.split = {data.split} has none: give such as 98/1/1",
                ),
            )
    if chain is not None:
        _check_stages(study, chain)


def _check_metrics(study: Study, arms: Sequence[str]) -> None:
    """Raise ConfigError if arms of a plain study lack its metrics."""
    metric, *others = study_metrics(study)
    names = [metric.name, *(other.name for other in others)]
    for title, scores in study.published.items():
        check_choice(f"{study.name}: published: ", "arm", title, arms)
        deviations = [f"{name}:{DEVIATION}" for name in names if name in scores]
        for name in scores:
            check_choice(
                f"{study.name}: published of {title}: ", "metric", name, names + deviations
            )
    check_question(study, metric, names[1:])
    for arm in study.arms:
        patience = arm.loaded.recipe.train.patience
        check_rules(
            f"arm {arm.name}",
            (
                patience is not None and study.match != "none",
                f"train.patience = {patience} ends runs at steps of their own, and budgets are "
                f"matched by {study.match}: leave it out, or give --match none",
            ),
        )


_OF_RUNS = {
    "train.seed": "every arm has the same: give their number with --seeds and --finetunings",
    "train.minutes": "each of its runs would have another length: give train.epochs or train.steps",
    "init.run": "it starts from the stage before it: leave it out",
}
"""Settings that no stage may have, and the reasons."""


def _check_stages(study: Study, chain: Chain) -> None:
    for stage in chain.stages:
        try:
            for name in stage.tasks if chain.data is not None else ():
                locate_files(TASKS[name], chain.data)
        except DataError as error:
            raise DataError(f"stage {stage.name}: {error}") from None
        for arm in study.arms:
            settings = chain.settings_of(arm.name, stage)
            check_rules(
                f"{study.name}: stage {stage.name}",
                *((key in settings, f"it has {key}: {why}") for key, why in _OF_RUNS.items()),
            )


def check_texts(study: Study, data: Mapping[str, Data]) -> None:
    """Raise ConfigError if an arm's text has nothing in the scored split.

    Raises DataError if the split has nothing for the study's metric, or is too short for its
    inspection.
    """
    for text in data.values():
        if study.scoring.find(text) is None:
            raise ConfigError(f"the text of {' and '.join(text.train.sources)} {NO_TEST}")
    metric = study_metrics(study)[0]
    for arm in study.arms:
        split = study.scoring.split_of(data[arm.name])
        if study.metric is not None and not metric.has_items(split):
            raise DataError(f"metric = {metric.name}: {metric.items}")
        if study.inspecting is not None:
            sample_of(arm.loaded.recipe, split, study.inspecting)


def check_question(study: Study, metric: Metric, others: Sequence[str]) -> None:
    """Raise ConfigError for a margin or spread in another unit, and verdicts on no metric.

    ``others`` are the names of metrics or columns besides the deciding one.
    """
    study.question.margin_of(study.name, metric)
    study.question.spread_of(study.name, metric)
    for name in study.question.also:
        check_choice(f"{study.name}: also: ", "further metric", name, others)


def check_disk(
    recipes: StageRecipes,
    arms: Sequence[Arm],
    data: Mapping[str, Data],
    kept: Kept,
    folder: Path,
    jobs: int,
) -> None:
    """Raise ConfigError if the models of all runs do not fit on the disk.

    ``jobs`` runs in parallel also have checkpoints. Files of the same runs are not counted twice.
    """
    needed, largest = 0, 0
    for stage, planned in planned_recipes(recipes, arms, data, kept).items():
        peaks, scored = zip(*(run_disk(*sized) for sized in planned), strict=True)
        largest = max(largest, *peaks)
        needed += kept.n_runs[stage] * max(scored)
    needed += min(jobs, sum(kept.n_runs.values())) * largest
    folders = set(kept.folders(folder).values())
    files = (path for run in folders for path in run.rglob("*") if path.is_file())
    needed -= sum(path.stat().st_size for path in files)
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise ConfigError(
            f"the models of all runs take {format_bytes(needed)} of disk, and {format_bytes(free)} "
            "are free: give another --out, fewer --seeds or --finetunings"
        )


def planned_recipes(
    recipes: StageRecipes, arms: Sequence[Arm], data: Mapping[str, Data], kept: Kept
) -> dict[str, list[tuple[Recipe, int]]]:
    """Return the arms' recipes of each training stage, with their vocabulary sizes.

    Threads are the arm's settled ones.
    """
    planned: dict[str, list[tuple[Recipe, int]]] = {}
    for stage in kept.n_runs:
        if recipes.chain.stage(stage).ensemble:
            continue  # it keeps only scores
        for arm in arms:
            if stage in kept.keys[arm.name]:
                threads = {"train.threads": arm.loaded.recipe.train.threads}
                recipe = vary(recipes.planned(arm.name, stage), threads, origin=ORIGIN).recipe
                size = data[arm.name].tokenizer.vocab_size
                planned.setdefault(stage, []).append((recipe, size))
    return planned
