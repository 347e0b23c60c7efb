"""A run's ``recipe.toml``: the recipe as it ran, and which of its values were derived."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tomli_w

from sublayer.config.catalog import HEADINGS
from sublayer.config.recipe import Recipe
from sublayer.config.settings import Layer, Setting, check_keys
from sublayer.config.sources import layer_of, read_toml
from sublayer.config.validate import build


def dump_recipe(recipe: Recipe, derived: Sequence[str] = ()) -> str:
    """Write a recipe as TOML, fields that are unset left out.

    ``derived`` names the fields (``train.steps``) that were derived: a new run on this one's base derives them anew.
    """
    tables = {name: _plain(content) for name, content in recipe.model_dump().items()}
    headings = {name: tables[name] for name in HEADINGS if tables[name]}
    rest = {name: content for name, content in tables.items() if name not in HEADINGS}
    return tomli_w.dumps({**headings, "derived": list(derived), **rest})


def read_run_recipe(path: Path) -> Recipe:
    """Read a run's ``recipe.toml`` exactly as it ran, derived values included.

    Raises ConfigError where the file is missing or is not a recipe.
    """
    table = {name: content for name, content in read_toml(path).items() if name != "derived"}
    layer: Layer = layer_of(table, f"run {path.parent}")
    check_keys(layer)
    return build({key: Setting(value, layer.origin) for key, value in layer.values.items()})


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _plain(content) for name, content in value.items() if content is not None}
    return list(value) if isinstance(value, tuple) else value
