"""How a run tells where it is: a live line on a terminal, plain lines elsewhere, always on standard error."""

import time
from dataclasses import dataclass
from types import TracebackType
from typing import Protocol, Self, TextIO

from sublayer.streams import lasting_stderr

_PLAIN_SECONDS = 10.0


@dataclass(frozen=True)
class Status:
    """Where training stands after ``step`` optimizer steps."""

    step: int
    steps: int
    loss: float
    tokens_per_s: float
    valid_loss: float | None = None


class Progress(Protocol):
    """Something that shows the progress of one run."""

    def __enter__(self) -> Self:
        """Start showing."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop showing."""
        ...

    def update(self, status: Status) -> None:
        """Show a new status; called after every step, cheap."""
        ...

    def note(self, text: str) -> None:
        """Say something that stays."""
        ...


def describe(status: Status, remaining_s: float | None) -> str:
    """Put a status into one plain line."""
    valid = "" if status.valid_loss is None else f"  valid {status.valid_loss:.4f}"
    return (
        f"step {status.step}/{status.steps}  loss {status.loss:.4f}{valid}  "
        f"{status.tokens_per_s:,.0f} tokens/s{'' if remaining_s is None else f'  ETA {format_seconds(remaining_s)}'}"
    )


def format_seconds(seconds: float) -> str:
    """Write a duration as ``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"


class _Timed:
    """Estimates the remaining seconds from the steps seen since it was entered."""

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
        done = status.step - first
        return (now - begun) / done * (status.steps - status.step) if done else None


class PlainProgress(_Timed):
    """A line every ten seconds and at the end."""

    def __init__(self, stream: TextIO | None = None, prefix: str = "") -> None:
        super().__init__()
        self._stream = stream or lasting_stderr()
        self._prefix = prefix
        self._last = -float("inf")

    def __enter__(self) -> Self:
        """Begin anew."""
        self.restart()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing: every line is complete."""

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


class TerminalProgress(_Timed):
    """A live bar with loss, speed and time to go."""

    def __init__(self, prefix: str = "") -> None:
        from rich.console import Console
        from rich.progress import BarColumn, TextColumn
        from rich.progress import Progress as Bar

        super().__init__()
        self._bar = Bar(
            TextColumn("{task.description}", markup=False), BarColumn(), TextColumn("{task.fields[status]}"),
            console=Console(file=lasting_stderr()), refresh_per_second=4,
        )  # fmt: skip
        self._task = self._bar.add_task(prefix, total=None, status="")

    def __enter__(self) -> Self:
        """Show the bar."""
        self.restart()
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
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


class SilentProgress:
    """Shows nothing; notes still reach standard error."""

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""

    def update(self, status: Status) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Print a line."""
        print(text, file=lasting_stderr(), flush=True)


def default_progress(prefix: str = "") -> Progress:
    """Choose the live bar where standard error is a terminal, plain lines otherwise."""
    return TerminalProgress(prefix) if lasting_stderr().isatty() else PlainProgress(prefix=prefix)
