"""A recipe's paths made absolute, so that a run means the same from every folder."""

import os

from sublayer.config.data import HUB, DataConfig, Sources, is_tokenizer_file
from sublayer.config.recipe import Recipe
from sublayer.config.texts import expanded

_PATHS = tuple(name for name in DataConfig.model_fields if name.endswith("_path"))


def anchored(recipe: Recipe) -> Recipe:
    """Make every relative path of a recipe absolute, from the working directory."""
    tokenizer = recipe.data.tokenizer
    data = recipe.data.model_copy(
        update={
            "path": _sources(recipe.data.path),
            **{name: _path(getattr(recipe.data, name)) for name in _PATHS},
            "tokenizer": _absolute(tokenizer) if is_tokenizer_file(tokenizer) else tokenizer,
        }
    )
    init = recipe.init.model_copy(update={"run": _path(recipe.init.run)})
    return recipe.model_copy(update={"data": data, "init": init})


def _sources(sources: Sources | None) -> Sources | None:
    if isinstance(sources, dict):
        return {_absolute(path): weight for path, weight in sources.items()}
    if isinstance(sources, tuple):
        return tuple(_absolute(path) for path in sources)
    return _path(sources)


def _path(path: str | None) -> str | None:
    return None if path is None else _absolute(path)


def _absolute(path: str) -> str:
    if path.startswith(HUB):
        return path
    return os.path.normpath(expanded(path).absolute())
