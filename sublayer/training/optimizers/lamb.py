"""LAMB: Adam's direction, made as long as a share of the weights that it changes."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor

from sublayer.training.optimizers.division import Exchanging
from sublayer.training.optimizers.moments import MomentOptimizer

Adapted = Literal["tensor", "map", "none"]
"""What has a trust ratio of its own: each tensor, each map of a stacked one, or none (1)."""


class Lamb(MomentOptimizer):
    """LAMB: update ``w`` by ``-lr * ratio * u``, with ``ratio = ||w|| / ||u||``.

    ``u`` is ``d + weight_decay * w``, d Adam's direction. Norms are L2, of the weights before the
    update; where one of them is 0 the ratio is 1. A group says in ``adapted`` what has a ratio of
    its own.

    Sources: as released with ALBERT (``is_corrected=False``); You et al. 2020, algorithm 2, with
    phi the identity.
    """

    def scale_updates(
        self, updates: list[Tensor], parameters: list[Tensor], group: dict[str, Any]
    ) -> Exchanging[None]:
        """Multiply the update of what has a trust ratio by it."""
        adapted: Adapted = group["adapted"]
        if adapted == "none":
            return
        update_parts = _variables(updates, adapted)
        weight_parts = _variables(parameters, adapted)
        are_parts = []
        for parameter in parameters:
            n_axes = parameter.dim() if adapted == "tensor" else parameter.dim() - 1
            n_variables = len(_variables([parameter], adapted))
            are_parts += [self.division.divides(parameter, n_axes)] * n_variables
        # Of maps that are divided one by one, a process may have none.
        if update_parts:
            own = torch._foreach_norm([*weight_parts, *update_parts])
            norms = yield from self.division.whole_norms(own, 2 * are_parts)
            torch._foreach_mul_(update_parts, trust_ratios(norms))


def trust_ratios(norms: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Compute ``||w|| / ||u||``, 1 where either is 0, from all ``||w||`` and then all ``||u||``."""
    weight_norms, update_norms = torch.stack(list(norms)).chunk(2)
    has_both = (weight_norms > 0) & (update_norms > 0)
    return torch.where(has_both, weight_norms / update_norms, 1.0).unbind()


def _variables(tensors: Sequence[Tensor], adapted: Adapted) -> list[Tensor]:
    """Return what has a ratio of its own, of which a tensor may hold several."""
    if adapted == "tensor":
        return list(tensors)
    return [each for tensor in tensors for each in tensor.unbind()]
