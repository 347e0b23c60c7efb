"""LAMB: Adam's direction, made as long as a share of the weights that it changes."""

from collections.abc import Iterable
from typing import Any, Literal

import torch
from torch import Tensor

from sublayer.train.moments import corrected_direction, count_steps, direction, update_moments

Adapted = Literal["tensor", "map", "none"]
"""What has a trust ratio of its own: each tensor, each linear map of a stacked one, or nothing (the ratio is 1)."""


class Lamb(torch.optim.Optimizer):
    """Update ``w`` by ``-lr * ratio * u``, where ``u = r + weight_decay * w`` and ``ratio = ||w|| / ||u||``.

    ``r`` is ``m / (sqrt(v) + eps)``; with ``is_corrected``, m and v are divided by ``1 - beta^t`` first. Norms are L2,
    of the weights before the update; where one of them is 0 the ratio is 1. A group says in ``adapted`` what has a
    ratio of its own. Parameters without a gradient are left alone. Nothing waits for the device.

    Sources: as released with ALBERT (``is_corrected=False``); You et al. 2020, algorithm 2, with phi the identity.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        is_corrected: bool,
    ) -> None:
        self.is_corrected = is_corrected
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0, "adapted": "tensor"})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient; there is no closure."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                self._update(parameters, group)

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> None:
        updates = self._directions(parameters, group["betas"], group["eps"])
        if group["weight_decay"] > 0:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        if group["adapted"] != "none":
            parts = _parts(updates, group["adapted"])
            torch._foreach_mul_(parts, trust_ratios(_parts(parameters, group["adapted"]), parts))
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])

    def _directions(self, parameters: list[Tensor], betas: tuple[float, float], eps: float) -> list[Tensor]:
        first, second = update_moments(self.state, parameters, betas)
        if not self.is_corrected:
            return direction(first, second, eps)
        return corrected_direction(first, second, eps, betas, count_steps(self.state, parameters))


def trust_ratios(weights: list[Tensor], updates: list[Tensor]) -> tuple[Tensor, ...]:
    """Compute ``||w|| / ||u||`` for each pair, 1 where either is 0."""
    weight_norms, update_norms = (torch.stack(torch._foreach_norm(tensors)) for tensors in (weights, updates))
    has_both = (weight_norms > 0) & (update_norms > 0)
    return torch.where(has_both, weight_norms / update_norms, 1.0).unbind()


def _parts(tensors: list[Tensor], adapted: Adapted) -> list[Tensor]:
    return tensors if adapted == "tensor" else [part for tensor in tensors for part in tensor.unbind()]
