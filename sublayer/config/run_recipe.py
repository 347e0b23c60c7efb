"""A run's ``recipe.toml``: the recipe as it ran, its derived values named, its paths absolute."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from sublayer.config.catalog import HEADINGS, current_name, with_current_names
from sublayer.config.data import DataConfig
from sublayer.config.layers import Layer, Setting, build, check_keys
from sublayer.config.recipe import Recipe, ResolvedRecipe, as_resolved
from sublayer.config.sources import layer_of, read_toml
from sublayer.config.texts import HUB, WATCHED, Sources, is_tokenizer_file
from sublayer.errors import ConfigError
from sublayer.files.paths import expanded

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
    # With the list of derived fields, their values would be left out.
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
    """Return a value as TOML has it: without unset fields, and with lists for tuples."""
    if isinstance(value, tuple):
        return list(value)
    if not isinstance(value, dict):
        return value
    return {name: _plain(content) for name, content in value.items() if content is not None}


_PATHS = tuple(name for name in DataConfig.model_fields if name.endswith("_path"))
_SCORED = ("valid_path", "test_path")
"""Those that may name a corpus."""


def absolute_paths(recipe: Recipe) -> Recipe:
    """Return a recipe with every relative path made absolute from the working directory.

    Data sets of the hub and URLs are no paths, and stay. Raises ConfigError for a ``~`` of an
    unknown user.
    """
    data = recipe.data
    found: dict[str, object] = {"path": _sources(data.path)}
    for name in _PATHS:
        path = getattr(data, name)
        found[name] = path if name in _SCORED and path in WATCHED else _path(path)
    if isinstance(data.watch, dict):
        found["watch"] = {name: _absolute(path) for name, path in data.watch.items()}
    if is_tokenizer_file(data.tokenizer):
        found["tokenizer"] = _absolute(data.tokenizer)
    run = _path(recipe.init.run)
    tables: dict[str, object] = {
        "data": data.model_copy(update=found),
        "init": recipe.init.model_copy(update={"run": run}),
    }
    if isinstance(recipe.train.probes, dict):
        probes = {name: _absolute(folder) for name, folder in recipe.train.probes.items()}
        tables["train"] = recipe.train.model_copy(update={"probes": probes})
    return recipe.model_copy(update=tables)


def _sources(sources: Sources | None) -> Sources | None:
    if isinstance(sources, dict):
        return {_absolute(path): weight for path, weight in sources.items()}
    if isinstance(sources, tuple):
        return tuple(_absolute(path) for path in sources)
    return _path(sources)


def _path(path: str | None) -> str | None:
    return None if path is None else _absolute(path)


def _absolute(path: str) -> str:
    if path.startswith(HUB) or "://" in path:
        return path
    absolute = expanded(path).absolute()
    return os.path.normpath(absolute)
