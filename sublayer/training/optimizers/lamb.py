"""LAMB: Adam's direction, made as long as a share of the weights that it changes."""

from typing import Any, Literal

import torch
from torch import Tensor

from sublayer.training.optimizers.moments import MomentOptimizer
from sublayer.training.optimizers.norms import WHOLE, Norms

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
    ) -> None:
        """Multiply the update of what has a trust ratio by it."""
        adapted = group["adapted"]
        if adapted == "none":
            return
        update_parts = _parts(updates, adapted)
        weight_parts = _parts(parameters, adapted)
        ratios = trust_ratios(weight_parts, update_parts, self.norms)
        torch._foreach_mul_(update_parts, ratios)


def trust_ratios(
    weights: list[Tensor], updates: list[Tensor], norms: Norms = WHOLE
) -> tuple[Tensor, ...]:
    """Compute ``||w|| / ||u||`` for each pair, 1 where either is 0; scalars, on the device."""
    weight_norms, update_norms = norms.of([*weights, *updates]).chunk(2)
    has_both = (weight_norms > 0) & (update_norms > 0)
    return torch.where(has_both, weight_norms / update_norms, 1.0).unbind()


def _parts(tensors: list[Tensor], adapted: Adapted) -> list[Tensor]:
    if adapted == "tensor":
        return tensors
    return [part for tensor in tensors for part in tensor.unbind()]
