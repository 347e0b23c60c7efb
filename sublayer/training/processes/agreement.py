"""That processes which train together were started alike."""

import hashlib
from importlib.metadata import version
from pathlib import Path

import numpy as np
import torch

from sublayer.config.recipe import Recipe
from sublayer.errors import ConfigError
from sublayer.training.processes.world import World

_DIGEST_BYTES = 6
"""As many as a float64 holds without loss."""


def check_agreement(world: World, recipe: Recipe, folder: Path) -> None:
    """Raise ConfigError in all processes unless they have one recipe, version and folder.

    All enter; the first has made the folder.
    """
    if world.size == 1:
        return
    versions = f"sublayer {version('sublayer')}, PyTorch {torch.__version__}"
    check_same(world, versions, "other versions", f"install the same on all nodes, here {versions}")
    recipe_json = recipe.model_dump_json()
    check_same(world, recipe_json, "another recipe", "give all processes the same settings")
    sees = np.array([float(folder.is_dir())])
    blind = [rank for rank, (sees,) in enumerate(_rows(world, sees)) if not sees]
    if blind:
        raise ConfigError(
            f"process {blind[0]} does not see {folder}, which the first has made: give a folder "
            "that all nodes share"
        )


def check_same(world: World, text: str, what: str, remedy: str) -> None:
    """Raise ConfigError in all processes where one has another ``text`` than the first; all enter.

    ``what`` and ``remedy`` are part of what it says.
    """
    digest = hashlib.blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()
    own = np.array([float(int.from_bytes(digest, "little"))])
    first, *others = [float(number) for (number,) in _rows(world, own)]
    for rank, number in enumerate(others, 1):
        if number != first:
            raise ConfigError(f"process {rank} has {what} than the first: {remedy}")


def _rows(world: World, own: np.ndarray) -> list[np.ndarray]:
    return world.gather([own], world.size)
