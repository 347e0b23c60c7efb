"""Users' paths: expanded, resolved, and shown as typed."""

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
    """Return the absolute path with links resolved; the path itself for a loop of links."""
    return Path(os.path.realpath(path))


def describe_runs_within(folder: str | os.PathLike[str]) -> str:
    """Name a run in a comparison's folder, to end an error message; empty for other folders."""
    runs = sorted(recipe.parent for recipe in Path(folder).glob("arms/**/recipe.toml"))
    if not runs:
        return ""
    return f"; it is a comparison, which has runs: name one, such as {as_typed(str(runs[0]))}"


def as_typed(name: str) -> str:
    """Return a path below the current folder as a relative one; others unchanged.

    Applies to both files of a name ``A and B``.
    """
    return " and ".join(map(_below_here, name.split(" and ")))


def _below_here(name: str) -> str:
    path = Path(name)
    if path.is_absolute() and path.is_relative_to(Path.cwd()):
        return str(path.relative_to(Path.cwd()))
    return name
