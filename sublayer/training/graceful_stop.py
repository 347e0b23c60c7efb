"""Ctrl-C, SIGTERM and SIGUSR1 as a request to save and stop, looked at between steps."""

import signal
from types import FrameType, TracebackType
from typing import Self

from sublayer.system.signals import SIGNALS, WARNING, interruption


class GracefulStop:
    """A context in which the first SIGINT, SIGTERM or SIGUSR1 sets ``requested``.

    ``is_warned`` is set by SIGUSR1, as a cluster sends it. A second SIGINT interrupts at once. An
    interruption before, of which a library made nothing, is such a request too.
    """

    def __init__(self) -> None:
        self.requested = False
        self.is_warned = False
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        """Handle the signals, where this is the main thread of the program."""
        for number in SIGNALS:
            try:
                self._previous[number] = signal.signal(number, self._on_signal)
            except ValueError:  # not the main thread: whoever owns it decides
                break
        if self._previous.get(signal.SIGINT) is interruption:
            self.requested = interruption.was_raised
            self.is_warned = self.requested and interruption.number == WARNING
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Restore the handlers that were there before."""
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
