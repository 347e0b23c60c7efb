"""A run's ``recipe.toml``: the recipe as it ran, its derived values named, its paths absolute."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from sublayer.config.contradictions import check_tables
from sublayer.config.data import HUB, WATCHED, DataConfig, is_tokenizer_file
from sublayer.config.layers import Layer, Setting, build, check_keys, layer_of, read_toml, where
from sublayer.config.recipe import (
    HEADINGS,
    Recipe,
    ResolvedRecipe,
    as_resolved,
    current_name,
    with_current_names,
)
from sublayer.errors import ConfigError
from sublayer.files.storage import expanded

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
    derives them anew. ``lengthened`` are the run's records of the times that it got another length.
    ``as_run``: without the tokenizer of a recipe with ``init.run``, which has the start's.
    """
    written = {name: value for name, value in _plain(recipe.model_dump()).items() if value != ""}
    if as_run and recipe.init.run is not None and recipe.data.tokenizer == DataConfig().tokenizer:
        del written["data"]["tokenizer"]
    tables = {name: written.pop(name) for name in [*written] if name not in HEADINGS}
    if lengthened:
        tables["lengthened"] = [dict(record) for record in lengthened]
    return tomli_w.dumps({**written, DERIVED: list(derived), **tables})


def read_run_recipe(path: Path) -> ResolvedRecipe:
    """Read a run's ``recipe.toml`` as it ran, derived values included.

    Fields have their current names. Raises ConfigError where the file is missing, is not a recipe
    or leaves something open.
    """
    try:
        return as_resolved(read_recipe(path))
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{path} is not the recipe of a run: {reason}") from None


def read_recipe(path: Path) -> Recipe:
    """Read what ``dump_recipe`` wrote. Raises ConfigError where the file is missing or is none."""
    return recipe_of(read_toml(path), f"run {path.parent}")


def recipe_of(written: Mapping[str, Any], origin: str) -> Recipe:
    """Build the recipe that ``dump_recipe`` wrote as TOML; fields that came since are default.

    ``origin`` says where it stands. Raises ConfigError where it is none, or where fields of one of
    its tables contradict each other.
    """
    # With the list of derived fields, their values would be left out.
    table = {name: content for name, content in written.items() if name != DERIVED}
    layer = Layer(origin, with_current_names(layer_of(table, origin).values))
    check_keys(layer)
    recipe = build({key: Setting(value, origin) for key, value in layer.values.items()})
    try:
        check_tables(recipe)
    except ConfigError as error:
        raise ConfigError(f"{error}{where(origin)}") from None
    return recipe


def read_derived(path: Path) -> list[str]:
    """Read from a run's ``recipe.toml`` which of its fields were derived, by their current names.

    Raises ConfigError where the file is missing or is none.
    """
    listed = read_toml(path).get(DERIVED, [])
    return [current_name(str(key)) for key in listed] if isinstance(listed, list) else []


def _plain(value: Any) -> Any:
    """Return a value as TOML has it: without unset fields, and with lists for tuples."""
    if isinstance(value, tuple):
        return list(value)
    if not isinstance(value, dict):
        return value
    return {name: _plain(content) for name, content in value.items() if content is not None}


_SCORED = ("valid_path", "test_path")
"""Fields that may name a corpus."""


def absolute_paths(recipe: Recipe) -> Recipe:
    """Return a recipe with every relative path made absolute from the working directory.

    Data sets of the hub and URLs are no paths, and stay. Raises ConfigError for a ``~`` of an
    unknown user.
    """
    data = recipe.data
    paths = {name: getattr(data, name) for name in type(data).model_fields if name.endswith("path")}
    kept = {name for name in _SCORED if paths[name] in WATCHED}
    changes = {name: path if name in kept else _absolute(path) for name, path in paths.items()}
    if isinstance(data.watch, dict):
        changes["watch"] = _absolute(data.watch)
    if is_tokenizer_file(data.tokenizer):
        changes["tokenizer"] = _absolute(data.tokenizer)
    tables: dict[str, object] = {
        "data": data.model_copy(update=changes),
        "init": recipe.init.model_copy(update={"run": _absolute(recipe.init.run)}),
    }
    if isinstance(recipe.train.probes, dict):
        tables["train"] = recipe.train.model_copy(update={"probes": _absolute(recipe.train.probes)})
    return recipe.model_copy(update=tables)


def _absolute(paths: Any) -> Any:
    """Make a path absolute, those of a list, those with a weight, or those by name."""
    if isinstance(paths, tuple):
        return tuple(map(_absolute, paths))
    if isinstance(paths, dict):
        are_named = all(isinstance(value, str) for value in paths.values())
        return {
            name if are_named else _absolute(name): _absolute(value) if are_named else value
            for name, value in paths.items()
        }
    if paths is None or paths.startswith(HUB) or "://" in paths:
        return paths
    return os.path.normpath(expanded(paths).absolute())
