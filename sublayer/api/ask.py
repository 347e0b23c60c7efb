"""A command asked from Python: its options checked as the command line's, its result returned."""

import json
from collections.abc import Callable, Mapping, Sequence
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from sublayer.commands.shared.arguments import check_arguments, check_values
from sublayer.commands.shared.base import Answer, answers_kept

PathOrText = str | PathLike[str]
"""A run, a checkpoint or a folder: its path, or the run itself."""

Overrides = Sequence[str] | Mapping[str, Any]
"""``key=value`` texts, or values by field."""


def ask(command: Callable[..., None], **values: Any) -> Answer:
    """Run a command and return what it found; options that are None are its defaults.

    Settings may be a mapping of fields to values. Raises the errors of :mod:`sublayer.errors`.
    """
    given = {name: value for name, value in values.items() if value is not None}
    settings = given.pop("settings", None)
    check_arguments(command, given)
    check_values(command, given)
    if settings:
        given["settings"] = settings
    return kept(command, **given, as_json=True)


def kept(function: Callable[..., None], *arguments: Any, **values: Any) -> Answer:
    """Run what emits a single result, and return that."""
    with answers_kept() as answers:
        function(*arguments, **values)
    (answer,) = answers
    return answer


def as_path(target: PathOrText) -> Path:
    """Return the path of a run, checkpoint or folder."""
    return Path(fspath(target))


def as_paths(targets: PathOrText | Sequence[PathOrText]) -> list[Path]:
    """Return the paths of one run, checkpoint or folder, or of several."""
    if isinstance(targets, str | PathLike):
        return [as_path(targets)]
    return [as_path(target) for target in targets]


def as_words(overrides: Sequence[str] | Mapping[str, Any] | None) -> list[str]:
    """Return settings as the ``field=value`` texts of a command line."""
    if not isinstance(overrides, Mapping):
        return list(overrides or ())
    words = []
    for key, value in overrides.items():
        text = value if isinstance(value, str) else json.dumps(value)
        words.append(f"{key}={text}")
    return words
