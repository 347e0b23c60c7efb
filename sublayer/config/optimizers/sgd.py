"""The table of stochastic gradient descent."""

from collections.abc import Mapping
from typing import Literal

from sublayer.config.limits import LARGEST_FACTOR, LARGEST_RATE
from sublayer.config.optimizers.base import (
    KINDS,
    Axes,
    OptimizerTable,
    Shape,
    all_axes,
    decay_vectors,
)
from sublayer.config.table import field


class SgdConfig(OptimizerTable):
    """
    Stochastic gradient descent with momentum; weight decay is coupled (added to the gradient).
    """  # fmt: skip

    kind: Literal["sgd"] = field("sgd", KINDS)
    lr: float = field(0.1, "Peak learning rate.", gt=0.0, le=LARGEST_RATE)
    momentum: float = field(0.9, "Share of the last update that is kept.", ge=0.0, lt=1.0)
    weight_decay: float = field(
        0.0, "L2 penalty on matrices and embeddings.", ge=0.0, le=LARGEST_FACTOR
    )
    decay_vectors: bool = decay_vectors()

    def state_axes(self, shape: Shape) -> Mapping[str, Axes]:
        """Return the axes of the running sum of the gradients, if there is one."""
        return {"momentum_buffer": all_axes(shape)} if self.momentum > 0 else {}
