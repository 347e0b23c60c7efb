"""Ctrl-C and SIGTERM as a request to save and stop, looked at between steps."""

import signal
from types import FrameType, TracebackType
from typing import Self


class InterruptWatch:
    """While entered, the first SIGINT or SIGTERM sets ``requested``; a second SIGINT interrupts at once."""

    def __init__(self) -> None:
        self.requested = False
        self._previous: dict[signal.Signals, object] = {}

    def __enter__(self) -> Self:
        """Take over the signals, where this is the main thread of the program."""
        for number in (signal.SIGINT, signal.SIGTERM):
            try:
                self._previous[number] = signal.signal(number, self._on_signal)
            except ValueError:  # not the main thread: whoever owns it decides
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Give the signals back."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]
        self._previous.clear()

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.requested and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.requested = True
