"""How long a step and an evaluation take, from which minutes are turned into steps; and whether that held."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch

from sublayer.config.length import format_step
from sublayer.machine import wait_for

N_CHECKED = 20
"""Steps at the beginning of a run that are compared with the pace that its length was derived from."""

_N_WARM_UP = 3
_N_TIMED = 20
_LARGEST_CHANGE = 0.5
_LEAST_USED, _MOST_USED = 0.6, 1.5
_NOW_S = 1.0

Clock = Callable[[], float]


@dataclass(frozen=True)
class Pace:
    """Median seconds of an optimizer step, seconds of an evaluation, and how long ago they were measured."""

    step_s: float
    evaluation_s: float
    age_s: float = 0.0


class PaceChanged(Exception):
    """Raised before anything of a run is kept: its first steps take another time than its length was derived from."""

    def __init__(self, seconds: Sequence[float], expected_s: float) -> None:
        first = "the first step" if len(seconds) == 1 else f"the first {len(seconds)} steps"
        took = format_step(_first_median(seconds))
        super().__init__(f"{first} took {took} each, not {format_step(expected_s)}: measuring the pace again")


def median_step(
    take_step: Callable[[int], object],
    *,
    budget_s: float,
    device: torch.device,
    clock: Clock = time.perf_counter,
    most: int = _N_WARM_UP + _N_TIMED,
    agree: Callable[[bool], bool] = bool,
) -> float:
    """Return the median seconds of a step: at most so many are taken, and none that would not end within ``budget_s``.

    The first steps allocate what the others reuse, so they count only where there are few. One is always taken.
    ``agree`` makes processes that take steps together stop together.
    """
    seconds: list[float] = []
    ends = clock() + budget_s
    while not seconds or (len(seconds) < most and agree(clock() + seconds[-1] <= ends)):
        seconds.append(timed(partial(take_step, len(seconds)), device=device, clock=clock))
    return statistics.median(seconds[min(_N_WARM_UP, len(seconds) // 2) :])


def timed(work: Callable[[], object], *, device: torch.device, clock: Clock = time.perf_counter) -> float:
    """Return the seconds that a piece of work takes."""
    begun = clock()
    work()
    wait_for(device)
    return clock() - begun


def has_changed(seconds: Sequence[float], expected_s: float) -> bool:
    """Return whether a run's first steps differ from what was expected by more than half of it.

    The first step is slower than the others, so that alone it can only be too fast.
    """
    if len(seconds) == 1:
        return seconds[0] < (1 - _LARGEST_CHANGE) * expected_s
    return abs(_first_median(seconds) - expected_s) > _LARGEST_CHANGE * expected_s


def _first_median(seconds: Sequence[float]) -> float:
    return statistics.median(seconds[1:] or seconds)


def describe_length(minutes: float, steps: int, pace: Pace) -> str:
    """Format what minutes were turned into, and by what measurement."""
    asked = f"{minutes:g} minute{'' if minutes == 1 else 's'}"
    taken = f"{steps:,} step{'' if steps == 1 else 's'} of {format_step(pace.step_s)}"
    return f"{asked}: {taken}, measured {describe_age(pace.age_s)}"


def describe_age(seconds: float) -> str:
    """Format how long ago something was, in one unit."""
    if seconds < _NOW_S:
        return "now"
    for unit, length in (("day", 86400.0), ("hour", 3600.0), ("minute", 60.0)):
        if seconds >= length:
            n = int(seconds / length)
            return f"{n} {unit}{'' if n == 1 else 's'} ago"
    return f"{int(seconds)} second{'' if int(seconds) == 1 else 's'} ago"


def describe_use(minutes: float, seconds: float) -> str | None:
    """Format by how much a run missed the minutes asked for; None where it took about as long."""
    share = seconds / (60.0 * minutes)
    if _LEAST_USED <= share <= _MOST_USED:
        return None
    how = "faster" if share < 1 else "slower"
    return (
        f"it took {seconds / 60:.2g} of the {minutes:g} minutes asked for ({share:.0%}): steps were {how} than when "
        "their pace was measured"
    )
