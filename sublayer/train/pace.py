"""How long a step and an evaluation take, from which minutes are turned into steps."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

_WARM_UP_STEPS = 3
_FEWEST_STEPS = 3


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


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
