"""What a comparison refuses: before it reads a text, before it trains, and at its end."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from sublayer.config.fields.messages import choice_error
from sublayer.config.held_out import NO_TEST, holds_out
from sublayer.config.layering.sources import shipped_recipes
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError, DataError, TrainingError
from sublayer.runs.start_check import check_start
from sublayer.statistics.looks import Looks
from sublayer.study.asked import is_run
from sublayer.study.definition import Overrides, Study
from sublayer.study.finished_runs import RUNS
from sublayer.study.inspection.run import sample_of
from sublayer.study.metrics import study_metrics
from sublayer.study.options import Options, command_line
from sublayer.study.plan_file import PLAN
from sublayer.study.results import Results
from sublayer.study.seeds import check_seeds
from sublayer.study.study_file import DEVIATION
from sublayer.system.launch import n_launched


def check_runs(sources: Sequence[str], overrides: Overrides, options: Options) -> None:
    """Refuse what has no effect on runs that exist, and what is no run beside one."""
    run = next(source for source in sources if is_run(source))
    for source in sources:
        if not Path(source).exists() and source not in shipped_recipes():
            raise ConfigError(f"{source} does not exist: name a run that has ended")
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
    study.question.margin_of(study.name, metric)
    study.question.spread_of(study.name, metric)
    names = [other.name for other in others]
    arms = [arm.name for arm in study.arms]
    for title, own in study.published.items():
        if title not in arms:
            raise ConfigError(choice_error(f"{study.name}: published", title, arms))
        for name in own:
            of, _, what = name.partition(":")
            is_deviation = what == DEVIATION and of in own
            if name not in (metric.name, *names) and not is_deviation:
                known = [metric.name, *names]
                raise ConfigError(choice_error(f"{study.name}: published of {title}", name, known))
    for name in study.question.also:
        if name not in names:
            raise ConfigError(choice_error(f"{study.name}: also", name, names))
    for arm in study.arms:
        check_start(arm.loaded, "compare")
        patience = arm.loaded.recipe.train.patience
        if patience is not None and study.match != "none":
            raise ConfigError(
                f"arm {arm.name}: train.patience = {patience} ends runs at steps of their own, and "
                f"budgets are matched by {study.match}: leave it out, or give --match none"
            )
    if n_launched() > 1:
        raise ConfigError("compare runs in one process: start it without torchrun")
    check_seeds(looks.planned[-1])
    if len(study.arms) < 2:
        raise ConfigError(
            f"{study.name} alone has nothing to be compared with: "
            "say what varies, --vary model.ffn=gelu,swiglu, or name further recipes, or runs "
            "beside a run"
        )
    if study.arms[0].loaded.origins.get("train.seed") == "command line":
        raise ConfigError(
            "train.seed has no effect on a comparison: its seeds are 0 to N - 1, with --seeds N, "
            "or from --first-seed on"
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


def check_held_out(study: Study, data: Mapping[str, Data]) -> None:
    """Raise ConfigError where an arm's text left nothing for the split that scores."""
    for each in data.values():
        if study.scoring.find(each) is None:
            raise ConfigError(f"the text of {' and '.join(each.train.sources)} {NO_TEST}")


def check_pairs(study: Study, data: Mapping[str, Data]) -> None:
    """Raise DataError where a split has nothing that the study's own metric is of."""
    if study.metric is None:
        return
    metric = study_metrics(study)[0]
    for arm in study.arms:
        if not metric.has_items(study.scoring.split_of(data[arm.name])):
            raise DataError(f"metric = {metric.name}: {metric.items}")


def check_windows(study: Study, data: Mapping[str, Data]) -> None:
    """Raise DataError where a split that is scored is too short for what the study inspects."""
    if study.inspecting is None:
        return
    for arm in study.arms:
        split = study.scoring.split_of(data[arm.name])
        sample_of(arm.loaded.recipe, split, study.inspecting)


def check_compared(results: Results, report: Path) -> None:
    """Raise TrainingError where so much failed that nothing is compared with the baseline."""
    differences = results.differences
    if results.has_verdicts:
        # Ranks tell something where not all runs failed.
        has_values = any(arm.values for arm in results.arms)
        is_compared = has_values and any(
            each.low is not None or each.by_ranks for each in differences
        )
        needed = "two seeds that finished, as the baseline has,"
    else:
        is_compared = any(difference.mean is not None for difference in differences)
        needed = "a seed that finished beside the baseline's"
    if not is_compared:
        raise TrainingError(f"no arm has {needed}: see {report}")
