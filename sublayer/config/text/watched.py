"""The texts that ``data.watch`` names: corpora, or paths under names of their own."""

import re

from sublayer.config.table import List
from sublayer.config.text.corpora import INTRINSIC
from sublayer.errors import ConfigError
from sublayer.nearest import LONGEST_WORD, nearest_hint

Watched = List | dict[str, str]
"""Corpora by name, or the path of each name."""

WATCHED = {"squad-dev": "squad", "race-dev": "race", INTRINSIC: "intrinsic"}
"""Corpora that can be watched, and what their scores are called by; the last is the first two."""
_SPLITS = ("train", "valid", "test")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,39}")


def check_watched(watch: Watched) -> None:
    """Raise ConfigError for what is no corpus and no path, and for what cannot name metrics."""
    if isinstance(watch, dict):
        for name, path in watch.items():
            if not _NAME.fullmatch(name):
                raise ConfigError(
                    f"data.watch: {name[:LONGEST_WORD]!r} cannot name metrics: give letters, "
                    "digits, '.', '_' and '-', at most 40"
                )
            if name in _SPLITS:
                raise ConfigError(
                    f"data.watch: {name} is the name of a split: give the text another"
                )
            if not path:
                raise ConfigError(f"data.watch: the path of {name} is empty; name a text")
        return
    for name in watch:
        if name not in WATCHED:
            raise ConfigError(
                f"data.watch = {name[:LONGEST_WORD]!r} is not one of {', '.join(WATCHED)}"
                f"{nearest_hint(name, WATCHED)}; a text of your own is {{name = path}}"
            )
    if len(set(watch)) != len(watch):
        raise ConfigError("data.watch names a corpus twice: leave one out")


def watched_texts(watch: Watched) -> dict[str, str]:
    """Return by the name that scores have what is watched: a corpus, or a path."""
    if isinstance(watch, dict):
        return dict(watch)
    return {WATCHED[name]: name for name in watch}
