"""Absolute paths in a recipe, so that a run means the same from every folder."""

import os

from sublayer.config.data import DataConfig
from sublayer.config.recipe import Recipe
from sublayer.config.text.corpora import HUB, Sources
from sublayer.config.text.tokenizers import is_tokenizer_file
from sublayer.config.text.watched import WATCHED
from sublayer.files.paths import expanded

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
