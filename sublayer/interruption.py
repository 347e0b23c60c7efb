"""SIGINT and SIGTERM from the first moment to the last: the first ends the program, those right behind it say no more.

Of several signals in a row the first decides what the program ends with. A later one interrupts again, for what the
first left hanging.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

NUMBERS = (signal.SIGINT, signal.SIGTERM)
_IN_A_ROW_S = 2.0


class _Interruption:
    """Raises KeyboardInterrupt for a signal, unless it follows another or comes when all is done."""

    def __init__(self) -> None:
        self.is_over = False
        self.was_raised = False
        self._last = -float("inf")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.is_over or now - self._last < _IN_A_ROW_S:
            return
        self._last = now
        self.was_raised = True
        raise KeyboardInterrupt

    def note(self) -> None:
        """Take a signal as dealt with: those right behind it do nothing."""
        self._last = time.monotonic()


interruption = _Interruption()
"""That of this process, whose signals they are."""


def take_over() -> dict[signal.Signals, Any]:
    """Let both signals raise KeyboardInterrupt, where this is the main thread; return what they did before.

    Nothing is returned where they are taken over already.
    """
    if signal.getsignal(signal.SIGINT) is interruption:
        return {}
    interruption.__init__()  # type: ignore[misc]
    try:
        return {number: signal.signal(number, interruption) for number in NUMBERS}
    except ValueError:  # not the main thread: whoever owns it decides
        return {}


@contextmanager
def interruptible() -> Iterator[None]:
    """Let both signals raise KeyboardInterrupt in here."""
    previous = take_over()
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if previous:
            interruption.is_over = False


def ignore_from_now_on() -> None:
    """Let no signal change what the program ends with, which is decided."""
    interruption.is_over = True
    for number in NUMBERS:
        signal.signal(number, signal.SIG_IGN)
