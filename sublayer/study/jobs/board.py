"""Progress of a comparison's runs on standard error: live bars on a terminal, lines in a pipe."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self, TextIO

from sublayer.system.stages import (
    Clock,
    console_of,
    format_seconds,
    live_lines,
    print_line,
    print_wrapped,
    start_ticking,
)
from sublayer.system.terminal import is_live, lasting_stderr
from sublayer.training.log import Progress, Status

if TYPE_CHECKING:
    from rich.console import Group

_FIRST_ESTIMATE_S = 2.0
"""Seconds until the first estimate of the remaining time."""
_LEAST_WORK = 0.01
"""Minimum share of a run for an estimate of the pace."""
_LEAST_PAUSE_S, _MOST_PAUSE_S = 5.0, 60.0
"""Seconds between lines in a pipe, if no run ends: a twentieth of the time so far, within these."""
_LOOK_S = 0.5


@dataclass
class _BoardRow:
    """An active run."""

    begun: float
    stage: str = "starting"
    """Its stage; "" while it trains."""
    status: Status | None = None
    first: tuple[float, int] = (0.0, 0)
    """Time and step of its first status."""

    @property
    def fraction(self) -> float:
        return 0.0 if self.status is None else self.status.step / self.status.steps

    @property
    def where(self) -> str:
        status = self.status
        if status is None or self.stage:
            return self.stage
        return f"step {status.step:,}/{status.steps:,}, loss {status.loss:.4f}"

    def left_s(self, now: float) -> float | None:
        """Return the seconds for its remaining steps; None until known."""
        at, first = self.first
        if self.status is None or self.status.step <= first:
            return None
        return (now - at) / (self.status.step - first) * (self.status.steps - self.status.step)


class Board(ABC):
    """Display of a comparison's runs by label; entered while some are active, repeatedly.

    ``done`` of ``total`` runs are done. The pace counts only work done here, not runs of earlier
    commands.
    """

    def __init__(self, total: int, stream: TextIO, clock: Clock = time.monotonic) -> None:
        self.total = total
        self.done = 0
        self._left = float(total)
        """Remaining work, in runs."""
        self._worked = 0.0
        self._begun: float | None = None
        self._stream = stream
        self._clock = clock
        self._rows: dict[str, _BoardRow] = {}
        self._warned: set[str] = set()

    def find(self) -> None:
        """Count a run done earlier."""
        self.done += 1
        self._left -= 1.0

    def _work(self, share: float) -> None:
        """Count a share of a run done now; the first starts the clock."""
        self._left -= share
        if self._begun is None:
            self._begun = self._clock()
        else:
            self._worked += share

    def describe(self) -> str:
        """Format the progress, as ``3/80, about 12:03 to go``."""
        elapsed = 0.0 if self._begun is None else self._clock() - self._begun
        if elapsed < _FIRST_ESTIMATE_S or self._worked < _LEAST_WORK or self.done == self.total:
            return f"{self.done}/{self.total}"
        left_s = elapsed / self._worked * self._left
        return f"{self.done}/{self.total}, about {format_seconds(left_s)} to go"

    @abstractmethod
    def __enter__(self) -> Self:
        """Start showing."""

    @abstractmethod
    def __exit__(self, *_: object) -> None:
        """Stop showing."""

    def begin(self, label: str) -> None:
        """Show that a run has started."""
        self._rows[label] = _BoardRow(self._clock())

    def update(self, label: str, status: Status) -> None:
        """Show the status of a run; cheap."""
        row = self._rows[label]
        before = status.step - 1 if row.status is None else row.status.step
        if row.status is None:
            row.first = self._clock(), status.step
            self._left -= before / status.steps  # made earlier
        self._work((status.step - before) / status.steps)
        row.status = status
        row.stage = ""

    def stage(self, label: str, text: str) -> None:
        """Show the stage of a run; "" while it trains."""
        row = self._rows[label]
        if text or row.status is not None:
            row.stage = text

    def finish(self, label: str, text: str, where: str = "") -> None:
        """Count a finished run, and print its outcome."""
        row = self._rows.pop(label, None)
        if row is not None:
            where = f", after {format_seconds(self._clock() - row.begun)}{where}"
        self._work(1.0 - (0.0 if row is None else row.fraction))
        self.done += 1
        self.ended(f"{label}: {text}{where}")

    def drop(self, label: str) -> None:
        """Remove an unfinished run from the display."""
        row = self._rows.pop(label, None)
        if row is not None:
            self._left += row.fraction

    def warn(self, label: str, text: str) -> None:
        """Print a warning, unless another run has printed it."""
        if text not in self._warned:
            self._warned.add(text)
            self.note(f"{label}: {text}")

    @abstractmethod
    def ended(self, text: str) -> None:
        """Print the outcome of a run."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Print a permanent line."""


class PlainBoard(Board):
    """A line for each finished run, and in between one line of all active runs."""

    def __init__(self, total: int, stream: TextIO, clock: Clock = time.monotonic) -> None:
        super().__init__(total, stream, clock)
        self._first = self._last = clock()

    def __enter__(self) -> Self:
        """Check every half second whether a line is due."""
        self._over = start_ticking(self.tick, _LOOK_S)
        return self

    def __exit__(self, *_: object) -> None:
        """Stop printing progress lines."""
        self._over.set()

    def ended(self, text: str) -> None:
        """Print it, after the number of finished runs."""
        self.note(f"[{self.describe()}] {text}")

    def note(self, text: str) -> None:
        """Print a line."""
        self._last = self._clock()
        print_line(text, self._stream)

    def tick(self) -> None:
        """Print a line if the last one is old enough."""
        now = self._clock()
        pause = min(_MOST_PAUSE_S, max(_LEAST_PAUSE_S, (now - self._first) / 20))
        if now - self._last >= pause and self._rows:
            running = [f"{label} ({row.where})" for label, row in list(self._rows.items())]
            self.ended(f"running {'; '.join(running)}")


class TerminalBoard(Board):
    """A bar for all runs, and one for each active run; removed at the end."""

    def __init__(self, total: int, stream: TextIO, clock: Clock = time.monotonic) -> None:
        super().__init__(total, stream, clock)
        self._ended = ""
        self._console = console_of(stream)

    def __enter__(self) -> Self:
        """Show the board."""
        self._live = live_lines(self._console, self._draw, per_second=4)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Remove the board."""
        self._live.stop()

    def ended(self, text: str) -> None:
        """Show it below the runs."""
        self._ended = text

    def note(self, text: str) -> None:
        """Print a text above the board."""
        print_wrapped(self._console, text)

    def _draw(self) -> "Group":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid("", "", "", padding=(0, 2, 0, 0))
        for column in (table.columns[0], table.columns[2]):
            column.no_wrap, column.overflow = True, "ellipsis"
        table.columns[1].width = max(4, min(20, self._console.width - 72))
        rows = list(self._rows.items())
        share = (self.done + sum(row.fraction for _, row in rows)) / self.total
        table.add_row("all runs", ProgressBar(1.0, share), self.describe())
        for label, row in rows:
            where, left_s = row.where, row.left_s(self._clock())
            if left_s is not None and not row.stage:
                where += f", {format_seconds(left_s)} left"
            table.add_row(Text(label), ProgressBar(1.0, row.fraction), Text(where))
        last = Text(self._ended, no_wrap=True, overflow="ellipsis")
        return Group(table, last) if self._ended else Group(table)


class BoardProgress(Progress):
    """The progress of a run in this process."""

    is_alone = False

    def __init__(self, board: Board, label: str) -> None:
        self._board = board
        self._label = label

    def update(self, status: Status) -> None:
        """Move the run's bar."""
        self._board.update(self._label, status)

    def note(self, text: str) -> None:
        """Print a line, after the run's label."""
        self._board.note(f"{self._label}: {text}")

    def warn(self, text: str) -> None:
        """Print a line, unless another run has printed it."""
        self._board.warn(self._label, text)


def default_board(total: int) -> Board:
    """Return a live board if standard error is a terminal, else plain lines."""
    stream = lasting_stderr()
    return (TerminalBoard if is_live(stream) else PlainBoard)(total, stream)
