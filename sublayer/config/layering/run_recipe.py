"""A run's ``recipe.toml``: the recipe as it ran, and which of its values were derived."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from sublayer.config.data import DataConfig
from sublayer.config.fields.catalog import HEADINGS
from sublayer.config.fields.renames import current_name, with_current_names
from sublayer.config.layering.settings import Layer, Setting, check_keys
from sublayer.config.layering.sources import layer_of, read_toml
from sublayer.config.layering.validate import build
from sublayer.config.recipe import Recipe
from sublayer.config.resolved import ResolvedRecipe, as_resolved
from sublayer.errors import ConfigError

DERIVED = "derived"
"""The list of a run's recipe that names what followed from other settings; also their origin."""


def dump_recipe(
    recipe: Recipe,
    derived: Sequence[str] = (),
    lengthened: Sequence[Mapping[str, int | str]] = (),
    *,
    as_run: bool = False,
) -> str:
    """Format a recipe as TOML, without the fields that are unset.

    ``derived`` names the fields (``train.steps``) that were derived: a new run on this one's base
    derives them anew. ``lengthened`` is what the run keeps of each time that it got another length.
    ``as_run``: without the tokenizer of a recipe with ``init.run``, which has the start's.
    """
    headings: dict[str, Any] = {}
    tables: dict[str, Any] = {}
    for name, content in recipe.model_dump().items():
        if name not in HEADINGS:
            tables[name] = _plain(content)
        elif content:
            headings[name] = content
    if as_run and recipe.init.run is not None and recipe.data.tokenizer == DataConfig().tokenizer:
        del tables["data"]["tokenizer"]
    if lengthened:
        tables["lengthened"] = [dict(each) for each in lengthened]
    return tomli_w.dumps({**headings, DERIVED: list(derived), **tables})


def read_run_recipe(path: Path) -> ResolvedRecipe:
    """Read a run's ``recipe.toml`` as it ran, derived values included.

    Fields have their current names. Raises ConfigError where the file is missing, is not a recipe
    or leaves something open.
    """
    try:
        return as_resolved(read_recipe(path))
    except ValidationError as error:
        raise ConfigError(f"{path} is not the recipe of a run: {_first(error)}") from None


def read_recipe(path: Path) -> Recipe:
    """Read what ``dump_recipe`` wrote. Raises ConfigError where the file is missing or is none."""
    return recipe_of(read_toml(path), f"run {path.parent}")


def recipe_of(written: Mapping[str, Any], origin: str) -> Recipe:
    """Build the recipe that ``dump_recipe`` wrote as TOML; fields that came since are default.

    ``origin`` says where it stands. Raises ConfigError where it is none.
    """
    # With the list of what was derived, those values would be left out.
    table = {name: content for name, content in written.items() if name != DERIVED}
    values = with_current_names(layer_of(table, origin).values)
    layer = Layer(origin, values)
    check_keys(layer)
    return build({key: Setting(value, origin) for key, value in layer.values.items()})


def read_derived(path: Path) -> list[str]:
    """Read from a run's ``recipe.toml`` which of its fields were derived, by their current names.

    Raises ConfigError where the file is missing or is none.
    """
    listed = read_toml(path).get(DERIVED, [])
    return [current_name(str(key)) for key in listed] if isinstance(listed, list) else []


def _first(error: ValidationError) -> str:
    """Return the first of pydantic's messages, without the kind of error in front."""
    first = error.errors()[0]
    message = str(first["msg"])
    return message.removeprefix("Value error, ")


def _plain(value: Any) -> Any:
    """Return a value as TOML has it: without what is unset, and with lists for tuples."""
    if isinstance(value, tuple):
        return list(value)
    if not isinstance(value, dict):
        return value
    return {name: _plain(content) for name, content in value.items() if content is not None}
