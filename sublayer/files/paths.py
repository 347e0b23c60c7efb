"""A user's paths made usable: the home folder for ``~``, and links followed."""

import os.path
from pathlib import Path

from sublayer.errors import ConfigError


def expanded(path: str | os.PathLike[str]) -> Path:
    """Expand a leading ``~`` to the home folder; raise ConfigError for an unknown user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(
            f"{os.fspath(path)!r} begins with the name of a user who has no home folder here"
        ) from None


def resolved(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path with links resolved; where they form a loop, the path itself."""
    return Path(os.path.realpath(path))
