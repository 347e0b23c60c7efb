"""AdamW as BERT and ALBERT have it: without the correction of the averages' start at 0."""

from collections.abc import Iterable
from typing import Any

import torch

from sublayer.train.moments import direction, update_moments


class UncorrectedAdamW(torch.optim.Optimizer):
    """Update ``w`` by ``-lr * (m / (sqrt(v) + eps) + weight_decay * w)``.

    Parameters without a gradient are left alone. Source: as released with ALBERT, which has it from BERT.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], *, lr: float, betas: tuple[float, float], eps: float) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient; there is no closure."""
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if not parameters:
                continue
            updates = direction(*update_moments(self.state, parameters, group["betas"]), group["eps"])
            if group["weight_decay"] > 0:
                torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
            torch._foreach_add_(parameters, updates, alpha=-group["lr"])
