"""Step and evaluation times: measurement, and checks during a run."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from sublayer.config.resolve import format_step
from sublayer.counts import count
from sublayer.system.machine import wait_for

N_CHECKED = 20
"""Steps at the start of a run that are compared with the pace that its length is derived from."""

_N_WARM_UP = 3
_N_TIMED = 20
_LARGEST_CHANGE = 0.5
"""The share of the expected time by which the first steps may miss it."""
_LEAST_USED, _MOST_USED = 0.6, 1.5
"""Shares of the time asked for, between which a run has kept to it."""
_THIRD, _TENTH = 1 / 3, 0.1
"""By how much the pace of a run by minutes may change, and its end be late, before it is planned
anew."""
_NOW_S = 1.0
"""An age of less than so many seconds is none."""
_UNITS = {"day": 86400.0, "hour": 3600.0, "minute": 60.0, "second": 1.0}
"""Their seconds, the longest first."""

Clock = Callable[[], float]


@dataclass(frozen=True)
class Pace:
    """Seconds per step and evaluation of a run."""

    step_s: float
    """The median of a few steps."""
    evaluation_s: float
    age_s: float = 0.0
    """Seconds since it was measured."""


class PaceChanged(Exception):
    """The first steps of a run differ from the step time that its length was derived from.

    Raised before anything of the run is saved.
    """

    def __init__(self, seconds: Sequence[float], expected_s: float) -> None:
        n_steps = len(seconds)
        first = "the first step" if n_steps == 1 else f"the first {n_steps:,} steps"
        took = format_step(_first_median(seconds))
        super().__init__(
            f"{first} took {took} each, not {format_step(expected_s)}: measuring the pace again"
        )


def median_step(
    take_step: Callable[[int], object],
    *,
    budget_s: float,
    device: torch.device,
    clock: Clock = time.perf_counter,
    most: int = _N_WARM_UP + _N_TIMED,
    agree: Callable[[bool], bool] = bool,
) -> float:
    """Measure the median seconds of a step, of at most ``most`` steps.

    At least one step is taken, others only if they end within ``budget_s``. The first steps, which
    allocate memory, count only where there are few.

    ``take_step`` is called with the step's number, from 0. ``agree`` makes processes that take
    steps together stop together: it takes whether this one has time, and returns whether all have.
    """
    seconds: list[float] = []
    ends = clock() + budget_s
    while not seconds or (len(seconds) < most and agree(clock() + seconds[-1] <= ends)):
        work = partial(take_step, len(seconds))
        seconds.append(timed(work, device=device, clock=clock))
    n_warm_up = min(_N_WARM_UP, len(seconds) // 2)
    return statistics.median(seconds[n_warm_up:])


def timed(
    work: Callable[[], object], *, device: torch.device, clock: Clock = time.perf_counter
) -> float:
    """Measure the seconds of work, including its completion on ``device``."""
    begun = clock()
    work()
    wait_for(device)
    return clock() - begun


def has_changed(seconds: Sequence[float], expected_s: float) -> bool:
    """Check whether a run's first steps differ by more than half from the expected time.

    The first step is slower than others: a single step can only be too fast.
    """
    if len(seconds) == 1:
        return seconds[0] < (1 - _LARGEST_CHANGE) * expected_s
    change_s = abs(_first_median(seconds) - expected_s)
    return change_s > _LARGEST_CHANGE * expected_s


def _first_median(seconds: Sequence[float]) -> float:
    return statistics.median(seconds[1:] or seconds)


def describe_length(minutes: float, steps: int, pace: Pace) -> str:
    """Format the length derived from minutes, and its measurement.

    As in ``10 minutes: 1,200 steps of`` with the step time and the measurement's age in one unit,
    rounded down: ``3 hours ago``, ``now``.
    """
    age = "now"
    if pace.age_s >= _NOW_S:
        unit = next(unit for unit, length in _UNITS.items() if pace.age_s >= length)
        age = f"{count(int(pace.age_s / _UNITS[unit]), unit)} ago"
    return (
        f"{count(minutes, 'minute', 'g')}: {count(steps, 'step')} of {format_step(pace.step_s)}, "
        f"measured {age}"
    )


def describe_use(minutes: float, seconds: float) -> str | None:
    """Format a run's deviation from its minutes; None where small.

    ``seconds`` is the time taken; 0.6 to 1.5 times the minutes is small.
    """
    share = seconds / (60.0 * minutes)
    if _LEAST_USED <= share <= _MOST_USED:
        return None
    how = "faster" if share < 1 else "slower"
    return (
        f"it took {seconds / 60:.2g} of the {count(minutes, 'minute', 'g')} asked for "
        f"({share:.0%}): steps were {how} than when their pace was measured"
    )


@dataclass(frozen=True)
class Replanned:
    """A change of the length of a run by minutes."""

    at_step: int
    from_steps: int
    to_steps: int


class MinutesPlan:
    """Planned steps of a run by minutes, replanned where its pace changes.

    The pace includes evaluations and checkpoints. It is checked after each evaluation: where it
    changed by more than a third, or the run would end more than a tenth too late, the remaining
    steps are those that fit at the new pace. Between evaluations they are replanned where the next
    one is more than a third late, or would end more than a tenth after the run's time. A resumed
    run repeats its earlier plans at the same steps, whatever its pace.
    """

    def __init__(
        self,
        minutes: float,
        evaluate_steps: int,
        earlier: Sequence[Replanned],
        keep: Callable[[Replanned], object],
    ) -> None:
        """Keep the earlier plans; ``keep`` writes new ones."""
        self.seconds = 60.0 * minutes
        """Of the whole run."""
        self._evaluate_steps = evaluate_steps
        self._earlier = tuple(earlier)
        self._keep = keep
        self._step, self._at_s, self._pace_s = 0, 0.0, 0.0

    def steps_at(self, step: int, steps: int) -> int:
        """Return the run's planned length after ``step``; ``steps`` is the last plan."""
        for change in reversed(self._earlier):
            if change.at_step <= step:
                return change.to_steps
        return self._earlier[0].from_steps if self._earlier else steps

    def begin(self, step: int, seconds: float, steps: int) -> None:
        """Start measuring at ``step``, ``seconds`` into the run."""
        self._step, self._at_s = step, seconds
        self._pace_s = max(self.seconds - seconds, 0.0) / max(1, steps - step)

    def steps(
        self, step: int, steps: int, seconds: float, evaluation_s: float, *, is_evaluated: bool
    ) -> int:
        """Return the new length of a run of ``steps``, at ``step`` after ``seconds``.

        ``evaluation_s`` are the seconds of its last evaluation.
        """
        if self._earlier and step <= self._earlier[-1].at_step:
            again = self.steps_at(step, steps)
            self.begin(step, seconds, again)
            return again
        n_taken, taken_s = step - self._step, seconds - self._at_s
        if not n_taken:
            return steps
        pace_s = taken_s / n_taken
        ends_s = seconds + evaluation_s
        if is_evaluated:
            self._step, self._at_s = step, seconds
            is_other = not 1 / (1 + _THIRD) <= pace_s / max(self._pace_s, 1e-9) <= 1 + _THIRD
            is_other |= ends_s + (steps - step) * pace_s > (1 + _TENTH) * self.seconds
        else:
            is_other = taken_s > (1 + _THIRD) * self._pace_s * self._evaluate_steps
            is_other |= ends_s > (1 + _TENTH) * self.seconds
        if not is_other:
            return steps
        self._step, self._at_s, self._pace_s = step, seconds, pace_s
        planned = step + max(0, int((self.seconds - ends_s) / pace_s))
        if planned != steps:
            self._keep(Replanned(step, steps, planned))
        return planned
