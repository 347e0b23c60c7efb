"""Progress of a run: on standard error, as a stage of work, or silent."""

import time
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

from sublayer.system.stages import Clock, TimedStage, display, format_seconds, note

_FIRST_ESTIMATE_S = 2.0
"""Of steps, after which it is said how long a run will take."""
_LONG_S = 20.0
"""Seconds below which a run needs no estimate."""


@dataclass(frozen=True)
class Status:
    """Progress of training after ``step`` optimizer steps."""

    step: int
    steps: int
    """Those of the whole run."""
    loss: float
    """The newest that was read back from the device; not a number before the first."""
    tokens_per_s: float
    """Of the run so far, by the time of its steps alone."""
    valid_loss: float | None = None
    """Loss of the last evaluation; None before the first."""


class Progress(ABC):
    """Progress of a run, shown while entered."""

    is_alone = True
    """True where the run has a header of its own; a comparison has one for all its runs."""

    def __enter__(self) -> Self:
        """Start showing."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop showing."""
        return

    @abstractmethod
    def update(self, status: Status) -> None:
        """Show a new status; called after every step, cheap."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Print a permanent note."""

    def warn(self, text: str) -> None:
        """Print a note on the text; a comparison prints it for one of its runs."""
        self.note(text)


def describe(status: Status, remaining_s: float | None) -> str:
    """Format a status as one plain line, without the remaining time if None."""
    valid = "" if status.valid_loss is None else f"  valid {status.valid_loss:.4f}"
    eta = "" if remaining_s is None else f"  ETA {format_seconds(remaining_s)}"
    return (
        f"step {status.step:,}/{status.steps:,}  loss {status.loss:.4f}{valid}  "
        f"{status.tokens_per_s:,.0f} tokens/s{eta}"
    )


class ShownProgress(Progress):
    """Progress on the status line of a terminal, or as a line every ten seconds.

    Notes and the last step's line are permanent.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._stages = display()
        self._stage: TimedStage | None = None
        self._is_estimated = False
        self._begun: tuple[float, int] | None = None
        """Time and step of the first update."""

    def __enter__(self) -> Self:
        """Start or restart showing."""
        self._begun = None
        self._stages = display()
        self._stage = self._stages.begin("taking the first step")
        return self

    def __exit__(self, *_: object) -> None:
        """Stop showing."""
        if self._stage is not None:
            self._stages.end(self._stage)

    def update(self, status: Status) -> None:
        """Show the status; at first and at the last step as a permanent line."""
        begun, first = self._begun or (self._clock(), status.step)
        lasted_s, n_done = self._clock() - begun, status.step - first
        remaining_s = lasted_s / n_done * (status.steps - status.step) if n_done else None
        text = describe(status, remaining_s)
        if self._stage is not None:
            self._stage.is_timed = False
            self._stages.change(self._stage, text, status.step / status.steps)
        if status.step == status.steps or self._begun is None:
            self._stages.note(text)
        self._begun = begun, first
        # Once, after the first seconds of a long run.
        if remaining_s is None or self._is_estimated or lasted_s < _FIRST_ESTIMATE_S:
            return
        self._is_estimated = True
        if remaining_s >= _LONG_S:
            self.note(f"about {format_seconds(remaining_s)} to go, by the first steps")

    def note(self, text: str) -> None:
        """Print a line."""
        self._stages.note(text)


class SilentProgress(Progress):
    """Progress that is not shown; notes still reach standard error."""

    is_alone = False

    def update(self, status: Status) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Print a line."""
        note(text)
