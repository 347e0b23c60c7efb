"""The cache folder, for all that can be made again."""

import os
from pathlib import Path

from sublayer.files.paths import expanded


def cache_folder(cache: Path | None = None) -> Path:
    """Return the cache folder: ``cache``, else SUBLAYER_CACHE, else ~/.cache/sublayer.

    An empty SUBLAYER_CACHE is as none. The folder may not exist yet. Raises ConfigError where that
    is in the home folder of nobody.
    """
    if cache is not None:
        return cache
    named = os.environ.get("SUBLAYER_CACHE")
    return expanded(named or "~/.cache/sublayer")
