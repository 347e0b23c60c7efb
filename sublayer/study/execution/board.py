"""Show how several runs go at once, on standard error: live bars on a terminal, else lines."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Self, TextIO

from sublayer.system.stage_displays import format_seconds
from sublayer.system.streams import lasting_stderr
from sublayer.training.progress import Display, Status, describe

if TYPE_CHECKING:
    from rich.progress import TaskID

_PLAIN_SECONDS = 10.0
_STARTING = "starting"


@dataclass
class Tally:
    """How many of all runs are done, and how long they took; those found begun have no time."""

    total: int
    at_once: int
    done: int = 0
    seconds: list[float] = field(default_factory=list)

    def describe(self) -> str:
        """Format it, such as ``3/80, about 12:03 to go``."""
        left = self.total - self.done
        if not self.seconds or not left:
            return f"{self.done}/{self.total}"
        mean_s = sum(self.seconds) / len(self.seconds)
        left_s = mean_s * left / min(self.at_once, left)
        return f"{self.done}/{self.total}, about {format_seconds(left_s)} to go"


class Board(Display, ABC):
    """Something that shows the runs of a comparison by their labels."""

    tally: Tally

    @abstractmethod
    def begin(self, label: str) -> None:
        """Show that a run has started."""

    @abstractmethod
    def update(self, label: str, status: Status) -> None:
        """Show where a run stands."""

    @abstractmethod
    def stage(self, label: str, text: str) -> None:
        """Show what is done for a run; "" where it trains."""

    @abstractmethod
    def end(self, label: str) -> None:
        """Show a run no longer."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Print a line that stays."""

    @abstractmethod
    def refresh(self) -> None:
        """Show what has changed; called several times a second."""


class PlainBoard(Board):
    """A line every ten seconds with all that runs, beside the notes."""

    def __init__(self, tally: Tally, stream: TextIO | None = None) -> None:
        self.tally = tally
        self._stream = stream or lasting_stderr()
        self._running: dict[str, str] = {}
        self._last = time.monotonic()

    def begin(self, label: str) -> None:
        """Show that a run has started."""
        self._running[label] = _STARTING

    def update(self, label: str, status: Status) -> None:
        """Show where a run stands."""
        self._running[label] = f"step {status.step}/{status.steps}"

    def stage(self, label: str, text: str) -> None:
        """Show what is done for a run."""
        if text:
            self._running[label] = text

    def end(self, label: str) -> None:
        """Show a run no longer."""
        del self._running[label]

    def note(self, text: str) -> None:
        """Print a line."""
        self._last = time.monotonic()
        print(text, file=self._stream, flush=True)

    def refresh(self) -> None:
        """Print a line if the last one is old enough."""
        if time.monotonic() - self._last >= _PLAIN_SECONDS:
            self.note(self.describe())

    def describe(self) -> str:
        """Format how many are done, and what runs."""
        running = [f"{label} ({where})" for label, where in self._running.items()]
        return f"[{self.tally.describe()}] running {'; '.join(running) or 'nothing yet'}"


class TerminalBoard(Board):
    """A live bar for all runs together, and one for each that is being trained."""

    def __init__(self, tally: Tally) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, SpinnerColumn, TextColumn
        from rich.progress import Progress as Bars

        self.tally = tally
        self._bars = Bars(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[status]}", markup=False),
            console=Console(file=lasting_stderr()),
            refresh_per_second=4,
        )
        self._all = self._bars.add_task("runs", total=tally.total, status="")
        self._running: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        """Show the bars."""
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the bars as they stand."""
        self.refresh()
        self._bars.stop()

    def begin(self, label: str) -> None:
        """Add a bar."""
        self._running[label] = self._bars.add_task(label, total=None, status=_STARTING)

    def update(self, label: str, status: Status) -> None:
        """Move a bar."""
        text = describe(status, None)
        bar = self._running[label]
        self._bars.update(bar, completed=status.step, total=status.steps, status=text)

    def stage(self, label: str, text: str) -> None:
        """Replace the text beside a bar."""
        if text:
            self._bars.update(self._running[label], status=text)

    def end(self, label: str) -> None:
        """Take a bar away."""
        self._bars.remove_task(self._running.pop(label))

    def note(self, text: str) -> None:
        """Print a line above the bars."""
        self._bars.console.print(text, highlight=False, markup=False)

    def refresh(self) -> None:
        """Move the bar of all."""
        self._bars.update(self._all, completed=self.tally.done, status=self.tally.describe())


def default_board(tally: Tally) -> Board:
    """Return live bars where standard error is a terminal, plain lines otherwise."""
    if lasting_stderr().isatty():
        return TerminalBoard(tally)
    return PlainBoard(tally)
