"""The running averages that Adam's relatives go by, for whole lists of parameters at a time."""

from collections.abc import MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor

State = MutableMapping[Tensor, dict[str, Any]]


def update_moments(
    state: State, parameters: Sequence[Tensor], betas: tuple[float, float]
) -> tuple[list[Tensor], list[Tensor]]:
    """Move the averages of each parameter's gradient and of its square by one step, in place, and return them.

    They begin at 0. Every parameter has a gradient.
    """
    for parameter in [each for each in parameters if "exp_avg" not in state[each]]:
        state[parameter] |= {"exp_avg": torch.zeros_like(parameter), "exp_avg_sq": torch.zeros_like(parameter)}
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    first = [state[parameter]["exp_avg"] for parameter in parameters]
    second = [state[parameter]["exp_avg_sq"] for parameter in parameters]
    torch._foreach_lerp_(first, gradients, 1.0 - betas[0])
    torch._foreach_mul_(second, betas[1])
    torch._foreach_addcmul_(second, gradients, gradients, 1.0 - betas[1])
    return first, second


def count_steps(state: State, parameters: Sequence[Tensor]) -> Tensor:
    """Count one step more for each parameter, on its device; return the counts in float64, one after another."""
    for parameter in [each for each in parameters if "step" not in state[each]]:
        state[parameter]["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
    steps = [state[parameter]["step"] for parameter in parameters]
    torch._foreach_add_(steps, 1.0)
    return torch.stack(steps).double()


def direction(first: list[Tensor], second: list[Tensor], eps: float) -> list[Tensor]:
    """Compute ``m / (sqrt(v) + eps)`` in new tensors, the only ones as large as the parameters."""
    directions = torch._foreach_sqrt(second)
    torch._foreach_add_(directions, eps)
    torch._foreach_reciprocal_(directions)
    torch._foreach_mul_(directions, first)
    return list(directions)


def corrected_direction(
    first: list[Tensor], second: list[Tensor], eps: float, betas: tuple[float, float], steps: Tensor
) -> list[Tensor]:
    """Compute the direction from averages freed of their start at 0: ``m / (1 - b1^t)`` and ``v / (1 - b2^t)``.

    Source: Kingma & Ba 2015, algorithm 1. ``steps`` holds each parameter's t.
    """
    directions = torch._foreach_sqrt(second)
    torch._foreach_div_(directions, (1.0 - betas[1] ** steps).sqrt().unbind())
    torch._foreach_add_(directions, eps)
    torch._foreach_reciprocal_(directions)
    torch._foreach_mul_(directions, first)
    torch._foreach_div_(directions, (1.0 - betas[0] ** steps).unbind())
    return list(directions)
