"""Errors, one class per remedy; the nearest valid word; optional libraries."""

from collections.abc import Iterable
from importlib import import_module
from typing import Any


class SublayerError(Exception):
    """Base of the errors that a user can mend; the message is one line that says how.

    Names and values in it may come from a damaged file: characters that a terminal would act on are
    shown escaped.
    """

    def __init__(self, message: str) -> None:
        super().__init__(one_line(message))


class ConfigError(SublayerError):
    """A recipe, an override or a command line has a setting without a meaning: change it."""


class FolderHeld(ConfigError):
    """Another process works in the folder: wait for it, or name another folder."""


class DataError(SublayerError):
    """A text, a tokenizer or a corpus cannot be used as asked: change or move the file."""


class CheckpointError(SublayerError):
    """A run, a checkpoint or an imported model cannot be read or does not fit: name another."""


class TrainingError(SublayerError):
    """Training cannot continue, as where the loss is not finite.

    Change the recipe, or continue from the last good checkpoint.
    """


class SaidElsewhere(TrainingError):
    """Training ends in this process, for a reason that another one says."""


class Interrupted(SublayerError):
    """Training was interrupted by a signal, after saving a checkpoint."""


class Preempted(Interrupted):
    """Training made way, after saving a checkpoint, for other work of the cluster."""


def check_rules(where: str, *rules: tuple[object, str]) -> None:
    """Raise ConfigError for the first broken rule: the rule's message behind the place, if any.

    A rule is a condition, true where it is broken, and its message.
    """
    for is_broken, message in rules:
        if is_broken:
            raise ConfigError(f"{where}: {message}" if where else message)


def one_line(text: str) -> str:
    """Return a text as one line of printable characters, others escaped."""
    line = " ".join(text.split())
    if line.isprintable():
        return line
    characters = []
    for character in line:
        if character.isprintable():
            characters.append(character)
        else:
            escaped = character.encode("unicode_escape").decode()
            characters.append(escaped)
    return "".join(characters)


LONGEST_WORD = 80
"""Characters of the longest compared word; a longer one is slow to compare, and no typo."""


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that the word probably means, if any is near.

    Near is a ratio of difflib's of at least 0.6 where the word is a part of the choice or has the
    same letters, and of 0.65 where both begin alike: ``width`` is no slip for ``watch``.
    """
    from difflib import SequenceMatcher, get_close_matches

    if len(word) > LONGEST_WORD:
        return None
    for choice in get_close_matches(word, list(choices), n=5, cutoff=0.6):
        typed, meant = word.lower(), choice.lower()
        is_part = len(typed) > 3 and typed in meant
        if is_part or sorted(typed) == sorted(meant):
            return choice
        if typed[:1] == meant[:1] and SequenceMatcher(None, meant, typed).ratio() >= 0.65:
            return choice
    return None


def nearest_hint(word: str, choices: Iterable[str]) -> str:
    """Format the probable choice for the end of a message; empty for none."""
    near = nearest(word, choices)
    return f": did you mean {near}?" if near else ""


def extra_module(name: str, what: str, extra: str = "data") -> Any:
    """Import an optional library; raise DataError if it is missing.

    ``what`` names its use in the error, ``extra`` the extra that installs it.
    """
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise DataError(f"{what} need {error.name}: pip install 'sublayer[{extra}]'") from error
