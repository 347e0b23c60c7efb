"""The comparison that is asked for: a study, a recipe and what varies, or several recipes."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sublayer.config.fields.applicability import is_idle
from sublayer.config.fields.catalog import HEADINGS
from sublayer.config.fields.messages import setting_in_words, show_path
from sublayer.config.layering.layers import LoadedRecipe
from sublayer.config.layering.run_recipe import DERIVED
from sublayer.config.layering.sources import RUN_RECIPE
from sublayer.config.limits import MOST_ARMS
from sublayer.config.resolve_train import MEASURED
from sublayer.errors import ConfigError
from sublayer.study.arms import Arm, check_distinct
from sublayer.study.definition import Overrides, Study, find_study, load_base, load_study
from sublayer.study.names import name_arms

_NOT_SAID = (
    "model",
    "train.seed",
    "train.threads",
    "train.micro_batch_sequences",
    "train.checkpoint_steps",
    "train.keep_checkpoints",
    "train.keep_steps",
    "train.log_steps",
    *HEADINGS,
)
"""What arms are compared by, and what is the same for all of them or changes no number."""


def split_words(source: str, words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Split a command line's words into what is compared and ``key=value`` settings.

    ``source`` is the first word. Paths of runs may have an equals sign. All before the first
    setting is compared; what comes after it is a setting, or a mistake that says so where it is
    read.
    """
    sources = [source]
    for index, word in enumerate(words):
        if "=" in word and not Path(word).exists():
            return sources, list(words[index:])
        sources.append(word)
    return sources, []


def load_asked(
    sources: Sequence[str],
    overrides: Overrides = (),
    *,
    vary_texts: Sequence[str] = (),
    scale: str | None = None,
) -> Study:
    """Load a study, a recipe with ``--vary`` texts, or several recipes as arms.

    Of several recipes the first is the baseline, and overrides go to all. Raises ConfigError as
    ``load_study`` does, and where several are no recipes, have one name, or are varied too.
    """
    if len(sources) == 1:
        return load_study(sources[0], overrides, vary_texts=vary_texts, scale=scale)
    if len(sources) > MOST_ARMS:
        raise ConfigError(f"{len(sources)} recipes are too many arms: give at most {MOST_ARMS}")
    _check_recipes(sources, vary_texts, scale)
    arms: list[Arm] = []
    for source in sources:
        loaded = load_base(source, overrides)
        if any(arm.name == loaded.name for arm in arms):
            raise ConfigError(
                f"two arms are named {loaded.name}: give each recipe once, rename one file"
            )
        arms.append(Arm(loaded.name, loaded, {}))
    check_distinct(arms)
    names = [arm.name for arm in arms]
    *others, last = names
    return Study(
        name=name_arms(names),
        title=f"{', '.join(others)} and {last}",
        source="",
        match="parameters",
        n_seeds=None,
        arms=tuple(arms),
        caveats=tuple(other_settings(arms)),
    )


def is_run(source: str) -> bool:
    """Return whether a word names the folder of a run."""
    return (Path(source) / RUN_RECIPE).is_file()


def _check_recipes(sources: Sequence[str], vary_texts: Sequence[str], scale: str | None) -> None:
    if vary_texts:
        raise ConfigError(
            f"--vary varies one recipe, and {len(sources)} are compared: leave it out, or give one"
        )
    for source in sources:
        if find_study(source) is not None:
            raise ConfigError(f"{source} is a study with arms of its own: compare it alone")
    if scale is not None:
        raise ConfigError(
            f"--scale {scale} chooses the recipe of a study, and these are recipes: leave it out"
        )


def other_settings(arms: Sequence[Arm]) -> Iterator[str]:
    """Say of each arm what differs from the baseline's beside the model."""
    baseline = arms[0]
    before = _settings(baseline.loaded)
    for arm in arms[1:]:
        own = _settings(arm.loaded)
        following = _derived(baseline.loaded) & _derived(arm.loaded)
        changes = []
        # Of other kinds of optimizers or objectives, the kind stands for what only one has.
        for key in sorted(before.keys() & own.keys()):
            if before[key] != own[key] and key not in following:
                told = setting_in_words(key, own[key])
                changes.append(f"{told} ({baseline.name}: {show_path(before[key])})")
        if changes:
            yield (
                f"{arm.name} differs from {baseline.name} not only in the model, so verdicts are "
                f"not about the model alone: {', '.join(changes)}."
            )


def _derived(loaded: LoadedRecipe) -> set[str]:
    """Return which fields of a run's recipe followed from others."""
    origins = loaded.origins.items()
    return {key for key, origin in origins if origin == DERIVED and key not in MEASURED}


def _settings(loaded: LoadedRecipe) -> dict[str, Any]:
    """Return the settings of a recipe that have an effect, but the model's, by ``table.field``."""
    settings = {}
    for table, fields in loaded.recipe.model_dump(mode="json").items():
        if table in _NOT_SAID:
            continue
        for name, value in fields.items():
            key = f"{table}.{name}"
            if key not in _NOT_SAID and not is_idle(key, loaded.recipe):
                settings[key] = value
    return settings
