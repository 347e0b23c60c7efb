"""Load a recipe: merge its layers, drop or refuse settings without effect and contradictions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from sublayer.config.catalog import HEADINGS, keys
from sublayer.config.contradictions import check_recipe
from sublayer.config.layers import Layer, Setting, build, merge
from sublayer.config.messages import show
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import warmup_steps
from sublayer.config.rules import Idle, first_idle, has_value, value_of
from sublayer.config.run_recipe import dump_recipe, read_run_recipe
from sublayer.config.sources import find_source, override_layer, read_layers
from sublayer.config.start import Start, check_kind, describe_start, with_start
from sublayer.errors import ConfigError


@dataclass(frozen=True)
class Settled:
    """Merged layers in which each setting has an effect, and their recipe."""

    recipe: Recipe
    settings: Mapping[str, Setting]
    notes: tuple[str, ...]
    """Notes on dropped settings, a line each."""


def settle(layers: Sequence[Layer]) -> Settled:
    """Merge layers, without the settings that a later layer than their own made idle.

    Raises ConfigError for a setting that never had an effect: its own layer, or an earlier one,
    leaves it none; and as ``merge`` and ``build`` do.
    """
    settings = merge(layers)
    notes: list[str] = []
    while True:
        recipe = build(settings)
        idle = first_idle(recipe, settings)
        if idle is None:
            return Settled(recipe, settings, tuple(notes))
        last = max(n for n, layer in enumerate(layers) if idle.key in layer.values)
        if not _had_effect(idle.key, layers[: last + 1], is_last=last == len(layers) - 1):
            raise idle.error(recipe, settings)
        # What follows in the loop is a recipe with one setting less, so it ends.
        del settings[idle.key]
        notes.append(_note(idle, recipe, layers[last + 1 :]))


def _had_effect(key: str, layers: Sequence[Layer], *, is_last: bool) -> bool:
    """Return whether a field had an effect where its own layer was the last."""
    if is_last:
        return False
    try:
        return key in settle(layers).settings
    except ConfigError:
        return False


def _note(idle: Idle, recipe: Recipe, later: Sequence[Layer]) -> str:
    changed = [key for key in idle.use.deciders if any(key in layer.values for layer in later)]
    deciders = changed or idle.use.deciders
    reasons = " and ".join(f"{key} = {show(value_of(key, recipe))}" for key in deciders)
    origin = idle.setting.origin
    source = "the command line" if origin == "command line" else origin
    given = f"{idle.key} = {show(idle.setting.value)} of {source}"
    return f"{given} has no effect with {reasons}: dropped"


__all__ = ["LoadedRecipe", "dump_recipe", "load_recipe", "read_run_recipe", "vary"]


@dataclass(frozen=True)
class LoadedRecipe:
    """A checked recipe with the origin of each of its values."""

    recipe: Recipe
    origins: Mapping[str, str]
    """``table.field`` to ``default``, ``recipe gpt``, ``run runs/a``, ``command line`` and more."""
    name: str
    """The recipe's, for naming a run after it."""
    layers: tuple[Layer, ...]
    """Layers that were merged, the base first."""
    run: Path | None = None
    """The folder of the run that it is the recipe of; None: it was not read from a run's folder."""
    start: Start | None = None
    """The model that ``init.run`` names; None: none, or none that can be read."""
    notes: tuple[str, ...] = ()
    """Notes on effects of the layers that a user would not expect, and on settings that were
    dropped, a line each."""


def load_recipe(
    source: str | PathLike[str],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    origin: str = "command line",
) -> LoadedRecipe:
    """Load a recipe, with overrides.

    ``source`` is the name of a shipped recipe, or the path of a .toml file or of a finished run.
    ``overrides`` are ``key=value`` texts, or values by key; ``origin`` says who gave them. Settings
    of an earlier layer that a later one makes idle are dropped, and ``notes`` say so. Raises
    ConfigError, in one line, for the first thing that has no meaning or no effect.
    """
    recipe_source = find_source(fspath(source))
    layers = read_layers(recipe_source)
    if overrides:
        layers.append(override_layer(overrides, origin))
    return replace(load_layers(layers, recipe_source.name), run=recipe_source.run)


def vary(
    loaded: LoadedRecipe, overrides: Sequence[str] | Mapping[str, Any], *, origin: str = "vary"
) -> LoadedRecipe:
    """Return a loaded recipe with one more layer of overrides.

    The layer is an arm of a study, or a value that was derived. Raises ConfigError as
    ``load_recipe`` does.
    """
    layer = override_layer(overrides, origin)
    return load_layers([*loaded.layers, layer], loaded.name)


def load_layers(layers: Sequence[Layer], name: str) -> LoadedRecipe:
    """Merge layers, the base first, into a checked recipe. Raises as ``load_recipe`` does."""
    started = with_start(layers)
    settled = settle(started.layers)
    recipe = settled.recipe
    check_kind(started, recipe)
    check_recipe(recipe)
    if recipe.train.steps is not None:
        warmup_steps(recipe.optimizer, recipe.train.steps)
        recipe.train.check_keep_steps(recipe.train.steps)
    known = [key for key in keys() if has_value(key, recipe)]
    origins = dict.fromkeys((*HEADINGS, *known), "default")
    origins |= {key: setting.origin for key, setting in settled.settings.items()}
    notes = (*describe_start(started, recipe), *settled.notes)
    return LoadedRecipe(recipe, origins, name, tuple(layers), start=started.start, notes=notes)
