"""Stages of work: what is being done is shown while it lasts, so that the program is never silent.

``stage`` says what is done, ``note`` prints a line that stays. Both go to one display: a status
line on a terminal, lines in a pipe, or whatever ``shown_by`` puts in their place.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from sublayer.system.launch import is_first_launched
from sublayer.system.stage_displays import HeardStages, PlainStages, Stages, say_nothing
from sublayer.system.status_line import StatusLine
from sublayer.system.terminal import is_live, lasting_stderr

_replacements: list[Stages] = []
"""What ``shown_by`` has put in place, the newest last."""
_own: tuple[TextIO, Stages] | None = None
"""The display of this process, and the standard error that it was made for."""


@contextmanager
def stage(text: str) -> Iterator[None]:
    """Show what is being done while it lasts."""
    shown = display()
    entered = shown.begin(text)
    try:
        yield
    finally:
        shown.end(entered)


def note(text: str) -> None:
    """Print a line that stays on standard error."""
    display().note(text)


def display() -> Stages:
    """Return where stages and notes are shown now."""
    global _own
    if _replacements:
        return _replacements[-1]
    # Whoever calls this program as a library, or tests it, may put another stream in place.
    if _own is None or (_own[0] is not sys.stderr and _own[1].is_idle):
        _own = sys.stderr, _choose()
    return _own[1]


@contextmanager
def shown_by(stages: Stages) -> Iterator[None]:
    """Show stages and notes elsewhere within this context."""
    _replacements.append(stages)
    try:
        yield
    finally:
        _replacements.remove(stages)


def _choose() -> Stages:
    if not is_first_launched():
        return HeardStages(say_nothing, _print)  # of several processes the first one talks
    stream = lasting_stderr()
    if is_live(stream):
        return StatusLine(stream)
    return PlainStages(_print)


def _print(text: str) -> None:
    print(text, file=lasting_stderr(), flush=True)
