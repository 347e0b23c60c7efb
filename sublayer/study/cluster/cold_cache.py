"""Whether a node may have to prepare the text of a run itself, and what that takes."""

import os
from pathlib import Path

from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data
from sublayer.data.shards.cutting import SHARD_BYTES
from sublayer.data.shards.workers import MOST_PROCESSES, PROCESS_BYTES
from sublayer.files.cache_folder import cache_folder


def preparation_bytes(recipe: Recipe, data: Data | None, study: Path) -> int:
    """Return what a node takes to prepare a run's text; 0 where all nodes see that of here.

    It is prepared here before the first run. ``data`` are the recipe's, where they are known.
    """
    if recipe.data.tasks is not None or _is_seen_by_all(study):
        return 0
    n_processes = 1
    if data is None or any(split["bytes"] > SHARD_BYTES for split in data.sizes().values()):
        assert recipe.train.threads is not None, "a study settles the threads of its runs"
        n_processes = min(recipe.train.threads, MOST_PROCESSES)
    return n_processes * PROCESS_BYTES


def _is_seen_by_all(study: Path) -> bool:
    """Return whether the cache is on the file system of the study, under a name that is passed on.

    That file system all nodes share. Others may be shared too, which nobody here knows.
    """
    cache = cache_folder()
    if not os.environ.get("SUBLAYER_CACHE") or not cache.is_dir():
        return False
    return cache.stat().st_dev == study.stat().st_dev
