"""The moments that Adam and its relatives keep, for whole lists of parameters at a time."""

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from typing import Any

import torch
from torch import Tensor

from sublayer.training.optimizers.division import WHOLE, Division, Exchanging
from sublayer.training.optimizers.plain import Optimizer

State = MutableMapping[Tensor, dict[str, Any]]
"""What an optimizer keeps of each parameter, under the names that PyTorch's Adam gives it."""


def update_moments(
    state: State, parameters: Sequence[Tensor], betas: tuple[float, float]
) -> tuple[list[Tensor], list[Tensor]]:
    """Update the running averages of gradients and of their squares, in place, and return them.

    They begin at 0. Every parameter has a gradient. Averages are ``beta1 m + (1 - beta1) g`` and
    ``beta2 v + (1 - beta2) g^2``, in the parameter's type.
    """
    beta1, beta2 = betas
    gradients = []
    first = []
    second = []
    for parameter in parameters:
        kept = state[parameter]
        if "exp_avg" not in kept:
            kept["exp_avg"] = torch.zeros_like(parameter)
            kept["exp_avg_sq"] = torch.zeros_like(parameter)
        assert parameter.grad is not None, "what has no gradient is left alone"
        gradients.append(parameter.grad)
        first.append(kept["exp_avg"])
        second.append(kept["exp_avg_sq"])
    torch._foreach_lerp_(first, gradients, 1.0 - beta1)
    torch._foreach_mul_(second, beta2)
    torch._foreach_addcmul_(second, gradients, gradients, 1.0 - beta2)
    return first, second


def count_steps(state: State, parameters: Sequence[Tensor]) -> Tensor:
    """Add one to the step count of each parameter; return the counts as one float64 tensor.

    It is ``[n]``, of which the first step is 1. Counts are kept in float32, exact up to 2**24.
    """
    steps = []
    for parameter in parameters:
        kept = state[parameter]
        if "step" not in kept:
            kept["step"] = torch.zeros((), dtype=torch.float32, device=parameter.device)
        steps.append(kept["step"])
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
    """Compute the direction from moments with bias correction.

    They are ``m / (1 - b1^t)`` and ``v / (1 - b2^t)``. Source: Kingma & Ba 2015, algorithm 1.
    ``steps`` holds each parameter's t.
    """
    beta1, beta2 = betas
    first_correction = 1.0 - beta1**steps
    second_correction = 1.0 - beta2**steps
    directions = torch._foreach_sqrt(second)
    torch._foreach_div_(directions, second_correction.sqrt().unbind())
    torch._foreach_add_(directions, eps)
    torch._foreach_reciprocal_(directions)
    torch._foreach_mul_(directions, first)
    torch._foreach_div_(directions, first_correction.unbind())
    return list(directions)


class MomentOptimizer(Optimizer):
    """Update ``w`` by ``-lr * (d + weight_decay * w)``, where d is Adam's direction.

    d is ``m / (sqrt(v) + eps)`` of the running averages of the gradient and of its square, from 0
    on; with ``is_corrected`` they are divided by ``1 - beta^t`` first. Decay is a group's own.
    Parameters without a gradient are left alone. Nothing waits for the device. A subclass changes
    how long the direction is, before or after decay is added, and may go by norms of whole
    parameters, which ``division`` adds up: those of all groups in one exchange.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        is_corrected: bool,
        division: Division = WHOLE,
    ) -> None:
        self.is_corrected = is_corrected
        self.division = division
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0}
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient; there is no closure."""
        self.division.run(self._updates())

    def _updates(self) -> Iterator[Exchanging[None]]:
        for group in self.param_groups:
            parameters = [each for each in group["params"] if each.grad is not None]
            if parameters:
                yield self._update(parameters, group)

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> Exchanging[None]:
        updates = self._directions(parameters, group["betas"], group["eps"])
        yield from self.scale_directions(updates, parameters, group)
        weight_decay = group["weight_decay"]
        if weight_decay > 0:
            torch._foreach_add_(updates, parameters, alpha=weight_decay)
        yield from self.scale_updates(updates, parameters, group)
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])

    def scale_directions(
        self, directions: list[Tensor], parameters: list[Tensor], group: dict[str, Any]
    ) -> Exchanging[None]:
        """Change the lengths of directions in place, before decay; here they stay."""
        yield from ()

    def scale_updates(
        self, updates: list[Tensor], parameters: list[Tensor], group: dict[str, Any]
    ) -> Exchanging[None]:
        """Change the lengths of updates in place, decay included; here they stay."""
        yield from ()

    def _directions(
        self, parameters: list[Tensor], betas: tuple[float, float], eps: float
    ) -> list[Tensor]:
        first, second = update_moments(self.state, parameters, betas)
        if not self.is_corrected:
            return direction(first, second, eps)
        steps = count_steps(self.state, parameters)
        return corrected_direction(first, second, eps, betas, steps)
