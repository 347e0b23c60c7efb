"""Where the cache is: the folder of all that can be made again."""

import os
from pathlib import Path

from sublayer.config.texts import expanded


def cache_folder(cache: Path | None = None) -> Path:
    """Return the folder of all that can be made again: the one asked for, else SUBLAYER_CACHE, else ~/.cache/sublayer.

    Raises ConfigError where that is in the home folder of nobody.
    """
    if cache is not None:
        return cache
    return expanded(os.environ.get("SUBLAYER_CACHE") or "~/.cache/sublayer")
