"""Signals: the first SIGINT, SIGTERM or SIGUSR1 ends the program; immediate repeats are ignored.

The first of several signals determines the exit code. A later signal interrupts again, in case work
hangs. SIGUSR1 is a cluster's preemption warning, for which the exit code requests a restart.
"""

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Self

INTERRUPTED, PREEMPTED = 130, 75
"""Exit codes; the second is EX_TEMPFAIL of sysexits.h, which requests a restart."""
WARNING: int | None = getattr(signal, "SIGUSR1", None)
"""Signal of a preemption warning; None if the system has none."""
SIGNALS = tuple(
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGUSR1") if hasattr(signal, name)
)
_IN_A_ROW_S = 2.0


class _Interruption:
    """Signal handler: raise KeyboardInterrupt, unless for a repeat or after the work is done."""

    def __init__(self) -> None:
        self.is_over = False
        self.was_raised = False
        self.number: int = signal.SIGINT
        """Signal that determines the exit code."""
        self._last = -float("inf")

    def __call__(self, number: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if self.is_over or now - self._last < _IN_A_ROW_S:
            return
        self._last = now
        self.was_raised = True
        self.number = number
        raise KeyboardInterrupt

    @property
    def code(self) -> int:
        """Exit code of the interrupted program."""
        return PREEMPTED if self.number == WARNING else INTERRUPTED

    def note(self) -> None:
        """Mark a signal as handled: immediate repeats are ignored."""
        self._last = time.monotonic()


interruption = _Interruption()
"""Interruption of this process; signals are per process."""


def take_over() -> dict[signal.Signals, Any]:
    """Make ``SIGNALS`` raise KeyboardInterrupt in the main thread; return the former handlers.

    The result is empty if they are already taken over, and outside the main thread.
    """
    if signal.getsignal(signal.SIGINT) is interruption:
        return {}
    interruption.__init__()  # type: ignore[misc]
    try:
        return {number: signal.signal(number, interruption) for number in SIGNALS}
    except ValueError:  # not the main thread, which handles signals
        return {}


@contextmanager
def interruptible() -> Iterator[None]:
    """Make ``SIGNALS`` raise KeyboardInterrupt within this context."""
    previous = take_over()
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if previous:
            interruption.is_over = False


def ignore_from_now_on() -> None:
    """Ignore signals from now on, since the exit code is determined."""
    interruption.is_over = True
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)


class GracefulStop:
    """Context in which the first SIGINT, SIGTERM or SIGUSR1 sets ``requested``.

    ``is_warned`` is set by a cluster's SIGUSR1. A second SIGINT interrupts at once. An earlier
    interruption that a library swallowed counts as a request.
    """

    def __init__(self) -> None:
        self.requested = False
        self.is_warned = False
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        """Handle the signals, in the main thread only."""
        for number in SIGNALS:
            try:
                self._previous[number] = signal.signal(number, self._on_signal)
            except ValueError:  # not the main thread, which handles signals
                break
        if self._previous.get(signal.SIGINT) is interruption:
            self.requested = interruption.was_raised
            self.is_warned = self.requested and interruption.number == WARNING
        return self

    def __exit__(self, *_: object) -> None:
        if self.requested:
            interruption.note()
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            interruption(number, frame)
        if not self.requested:
            self.is_warned = number == WARNING
        self.requested = True
