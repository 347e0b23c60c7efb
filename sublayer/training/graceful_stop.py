"""Ctrl-C and SIGTERM as a request to save and stop, looked at between steps."""

import signal
from types import FrameType, TracebackType
from typing import Self

from sublayer.system.signals import SIGNALS, interruption


class GracefulStop:
    """A context in which the first SIGINT or SIGTERM sets ``requested``.

    A second SIGINT interrupts at once. An interruption before, of which a library made nothing, is
    such a request too.
    """

    def __init__(self) -> None:
        self.requested = False
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
        self.requested = True
