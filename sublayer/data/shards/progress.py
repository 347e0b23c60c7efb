"""How far a text is, how fast it goes and how long it will take, as a line says it."""

import time

from sublayer.system.stage_displays import Clock, format_seconds
from sublayer.system.stages import display


class Progress:
    """Tells the innermost stage how many of ``n_bytes`` are done, of what was begun before too."""

    def __init__(self, doing: str, n_bytes: int, clock: Clock = time.monotonic) -> None:
        self._doing = doing
        self._n_bytes = n_bytes
        self._clock = clock
        self._begun = clock()
        self._n_done = 0
        self._n_before = 0

    def skip(self, n_bytes: int) -> None:
        """Count what an earlier preparation has done, by which no rate is measured."""
        self._n_done += n_bytes
        self._n_before += n_bytes
        self._begun = self._clock()

    def add(self, n_bytes: int) -> None:
        """Count what is done, and say it."""
        self._n_done += n_bytes
        fraction = min(1.0, self._n_done / max(1, self._n_bytes))
        display().change_innermost(self.line(), fraction)

    def line(self) -> str:
        """Return what is done, the rate, and how long the rest takes at that rate."""
        line = f"{self._doing}: {self._n_done / 1e6:,.0f} of {self._n_bytes / 1e6:,.0f} MB"
        elapsed_s = self._clock() - self._begun
        n_new = self._n_done - self._n_before
        if elapsed_s <= 0 or not n_new:
            return line
        per_s = n_new / elapsed_s
        left = format_seconds((self._n_bytes - self._n_done) / per_s)
        return f"{line}, {per_s / 1e6:,.1f} MB/s, {left} left"
