"""Load a recipe: its layers, merged, checked, each value with its origin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from typing import Any

from sublayer.config.catalog import HEADINGS, TABLES, keys
from sublayer.config.idle import check_idle
from sublayer.config.kinds import check_objective
from sublayer.config.length import resolve_optimizer
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import resolve_model
from sublayer.config.settings import Layer, merge
from sublayer.config.sources import find_source, override_layer, read_layers
from sublayer.config.validate import build
from sublayer.config.written import dump_recipe, read_run_recipe

__all__ = ["LoadedRecipe", "dump_recipe", "load_recipe", "read_run_recipe", "vary"]


@dataclass(frozen=True)
class LoadedRecipe:
    """A checked recipe with the origin of each of its values.

    ``origins`` maps ``table.field`` to ``default``, ``recipe gpt``, ``recipe ./x.toml``, ``run runs/a``,
    ``command line`` or ``vary``; ``name`` is the recipe's, for naming a run after it; ``layers`` are what was merged.
    """

    recipe: Recipe
    origins: Mapping[str, str]
    name: str
    layers: tuple[Layer, ...]


def load_recipe(
    source: str | PathLike[str], overrides: Sequence[str] | Mapping[str, Any] = (), *, origin: str = "command line"
) -> LoadedRecipe:
    """Load a shipped recipe by name, a .toml file or a finished run by path, with settings laid over it.

    ``overrides`` are ``key=value`` texts, or values by key; ``origin`` says who gave them.
    Raises ConfigError, in one line, for the first thing that has no meaning or no effect.
    """
    found = find_source(fspath(source))
    layers = read_layers(found)
    if overrides:
        layers.append(override_layer(overrides, origin))
    return _load(layers, found.name)


def vary(loaded: LoadedRecipe, overrides: Sequence[str] | Mapping[str, Any], *, origin: str = "vary") -> LoadedRecipe:
    """Lay one more layer of settings over a loaded recipe: an arm of a study, or a value that was derived.

    Raises ConfigError as ``load_recipe`` does.
    """
    return _load([*loaded.layers, override_layer(overrides, origin)], loaded.name)


def _load(layers: Sequence[Layer], name: str) -> LoadedRecipe:
    settings = merge(layers)
    recipe = build(settings)
    _check_contradictions(recipe)
    check_idle(recipe, settings)
    origins = {key: settings[key].origin if key in settings else "default" for key in _keys(recipe)}
    return LoadedRecipe(recipe, origins, name, tuple(layers))


def _check_contradictions(recipe: Recipe) -> None:
    # What the settings alone tell; sizes that only the data has are checked when a run resolves them.
    resolve_model(recipe.model, vocab_size=recipe.data.vocab_size or 1, context=recipe.data.context)
    check_objective(recipe)
    if recipe.train.steps is not None:
        resolve_optimizer(recipe.optimizer, steps=recipe.train.steps)


def _keys(recipe: Recipe) -> list[str]:
    known = {f"{table}.{name}" for table in TABLES for name in type(getattr(recipe, table)).model_fields}
    return [*HEADINGS, *(key for key in keys() if key in known)]
