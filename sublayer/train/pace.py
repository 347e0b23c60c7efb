"""Minutes turned into steps: how long a step and an evaluation take, measured once per machine and recipe."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from sublayer.errors import ConfigError

_WARM_UP_STEPS = 3
_FEWEST_STEPS = 3
_EVALUATIONS = 10
_CHECKPOINTS_AND_LOGS = 0.01
"""Share of a run that is neither steps nor evaluation."""


@dataclass(frozen=True)
class Pace:
    """Mean seconds of an optimizer step and of an evaluation."""

    step_s: float
    evaluation_s: float


def measure_pace(
    take_step: Callable[[int], object], evaluate: Callable[[], object], *, budget_s: float, device: torch.device
) -> Pace:
    """Take real steps for about ``budget_s`` seconds, after a warm-up, and one evaluation."""
    for step in range(_WARM_UP_STEPS):
        take_step(step)
    _wait(device)
    begun, taken = time.perf_counter(), 0
    while taken < _FEWEST_STEPS or time.perf_counter() - begun < budget_s:
        take_step(_WARM_UP_STEPS + taken)
        taken += 1
        _wait(device)
    step_s = (time.perf_counter() - begun) / taken
    begun = time.perf_counter()
    evaluate()
    _wait(device)
    return Pace(step_s, time.perf_counter() - begun)


def steps_in(minutes: float, pace: Pace, *, evaluate_steps: int | None) -> int:
    """Give the optimizer steps that fit into ``minutes`` of wall clock, evaluation included.

    Raises ConfigError if not even one does.
    """
    seconds = 60.0 * minutes * (1.0 - _CHECKPOINTS_AND_LOGS)
    if evaluate_steps is None:
        steps = int((seconds - _EVALUATIONS * pace.evaluation_s) / pace.step_s)
    else:
        steps = int(seconds / (pace.step_s + pace.evaluation_s / evaluate_steps))
    if steps < 1:
        raise ConfigError(
            f"train.minutes = {minutes:g} is too short: a step takes {pace.step_s:.2g} s "
            f"and an evaluation {pace.evaluation_s:.2g} s here"
        )
    return steps


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
