"""Show a run's progress on standard error: a live bar on a terminal, else plain lines."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from types import TracebackType
from typing import Self, TextIO

from sublayer.system.streams import lasting_stderr

_PLAIN_SECONDS = 10.0


@dataclass(frozen=True)
class Status:
    """Where training stands after ``step`` optimizer steps."""

    step: int
    steps: int
    """Those of the whole run."""
    loss: float
    """The newest that was read back from the device; not a number before the first."""
    tokens_per_s: float
    """Of the run so far, by the time of its steps alone."""
    valid_loss: float | None = None
    """That of the last evaluation; None before the first."""


class Display:
    """Something that is shown while it is entered. Here nothing has to begin or to end."""

    def __enter__(self) -> Self:
        """Start showing."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop showing."""


class Progress(Display, ABC):
    """Something that shows the progress of one run."""

    warned: set[str] | None = None
    """What ``warn`` has printed, of all runs of a comparison; None: it prints all."""

    @abstractmethod
    def update(self, status: Status) -> None:
        """Show a new status; called after every step, cheap."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Print a note that stays."""

    def warn(self, text: str) -> None:
        """Print a note on the text; of several runs' that are the same, the first."""
        if self.warned is not None:
            if text in self.warned:
                return
            self.warned.add(text)
        self.note(text)


def describe(status: Status, remaining_s: float | None) -> str:
    """Format a status as one plain line; None for ``remaining_s`` says nothing of what remains."""
    valid = "" if status.valid_loss is None else f"  valid {status.valid_loss:.4f}"
    eta = "" if remaining_s is None else f"  ETA {format_seconds(remaining_s)}"
    return (
        f"step {status.step}/{status.steps}  loss {status.loss:.4f}{valid}  "
        f"{status.tokens_per_s:,.0f} tokens/s{eta}"
    )


def format_seconds(seconds: float) -> str:
    """Format a duration, rounded to seconds, as ``1:02:03`` or ``2:03``; a negative one is 0:00."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}:{minutes:02d}:{rest:02d}"
    return f"{minutes}:{rest:02d}"


class _Timed:
    """An estimate of the remaining seconds from the steps seen since it was entered."""

    def __init__(self) -> None:
        self._started: tuple[float, int] | None = None

    def restart(self) -> None:
        """Forget the steps that were seen: a run may begin again."""
        self._started = None

    def remaining_s(self, status: Status) -> float | None:
        now = time.monotonic()
        if self._started is None:
            self._started = (now, status.step)
        begun, first = self._started
        n_done = status.step - first
        n_left = status.steps - status.step
        if not n_done:
            return None
        return (now - begun) / n_done * n_left


class PlainProgress(_Timed, Progress):
    """Progress as a line every ten seconds and at the end, on standard error or ``stream``.

    Every line, notes too, begins with ``prefix``.
    """

    def __init__(self, stream: TextIO | None = None, prefix: str = "") -> None:
        super().__init__()
        self._stream = stream or lasting_stderr()
        self._prefix = prefix
        self._last = -float("inf")

    def __enter__(self) -> Self:
        """Begin anew."""
        self.restart()
        return self

    def update(self, status: Status) -> None:
        """Print a line if the last one is old enough, or this is the last step."""
        remaining = self.remaining_s(status)
        now = time.monotonic()
        if now - self._last >= _PLAIN_SECONDS or status.step == status.steps:
            self._last = now
            self.note(describe(status, remaining))

    def note(self, text: str) -> None:
        """Print a line."""
        print(f"{self._prefix}{text}", file=self._stream, flush=True)


class TerminalProgress(_Timed, Progress):
    """Progress as a live bar with loss, speed and time to go."""

    def __init__(self, prefix: str = "") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        super().__init__()
        self._bar = Bar(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[status]}"),
            console=Console(file=lasting_stderr()),
            refresh_per_second=4,
        )
        self._task = self._bar.add_task(prefix, total=None, status="")

    def __enter__(self) -> Self:
        """Show the bar."""
        self.restart()
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the bar as it stands."""
        self._bar.stop()

    def update(self, status: Status) -> None:
        """Move the bar."""
        text = describe(status, self.remaining_s(status))
        self._bar.update(self._task, completed=status.step, total=status.steps, status=text)

    def note(self, text: str) -> None:
        """Print a line above the bar."""
        self._bar.console.print(text, highlight=False, markup=False)


class SilentProgress(Progress):
    """Progress that is not shown; notes still reach standard error."""

    def update(self, status: Status) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Print a line."""
        print(text, file=lasting_stderr(), flush=True)


def default_progress(prefix: str = "") -> Progress:
    """Return the live bar where standard error is a terminal, plain lines otherwise."""
    if lasting_stderr().isatty():
        return TerminalProgress(prefix)
    return PlainProgress(prefix=prefix)
