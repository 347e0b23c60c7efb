"""AdamW with steps as long as a share of the weights, which trains what Adafactor trains."""

from typing import Any

import torch
from torch import Tensor

from sublayer.training.optimizers.division import Exchanging
from sublayer.training.optimizers.moments import MomentOptimizer
from sublayer.training.optimizers.parameter_scale import parameter_scales


class ScaledAdamW(MomentOptimizer):
    """Update ``w`` by ``-lr * (max(1e-3, RMS(w)) * d + weight_decay * w)``, d Adam's direction.

    The last ``n_axes`` axes of a group's parameters are a variable, which has an RMS of its own.

    Source: PiotrNawrot/nanoT5, ``AdamWScale``, where decay is not scaled either. Departures from
    it: decay takes the weights before the update, as everywhere here, and eps is added to the
    corrected root, as in AdamW as published.
    """

    def scale_directions(
        self, directions: list[Tensor], parameters: list[Tensor], group: dict[str, Any]
    ) -> Exchanging[None]:
        """Multiply the direction of each variable by the root mean square of its weights."""
        scales = yield from parameter_scales(parameters, group["n_axes"], self.division)
        torch._foreach_mul_(directions, scales)
