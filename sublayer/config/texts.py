"""What no text of a setting or of a command line may be: what files, terminals and other programs do not take."""

import os.path
from pathlib import Path

from sublayer.config.limits import LONGEST_TEXT
from sublayer.errors import ConfigError


def text_problem(text: str) -> str | None:
    """Say what is wrong with a text as such; None for an ordinary one."""
    if len(text) > LONGEST_TEXT:
        return f"has {len(text):,} characters: give at most {LONGEST_TEXT:,}"
    if "\0" in text:
        return "has a null character, which no text or path has: leave it out"
    if any("\ud800" <= character <= "\udfff" for character in text):
        return "is not UTF-8: write it, or rename the file, in characters that are"
    return None


def expanded(path: str | os.PathLike[str]) -> Path:
    """Return a path with the home folder for a leading ``~``. Raises ConfigError where that names no user."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"{os.fspath(path)!r} begins with the name of a user who has no home folder here") from None


def resolved(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path without symbolic links; of links that go in a circle, the path as it is."""
    return Path(os.path.realpath(path))
