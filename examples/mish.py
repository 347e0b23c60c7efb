"""Mish as the function of feed-forward networks, with and without a gate."""

import torch.nn.functional as F
from torch import Tensor

from sublayer.rows import Activation


class Mish(Activation):
    """Compute ``x tanh(softplus(x))``. Source: Misra 2019 (1908.08681), eq. 1."""

    name = "mish"

    def forward(self, x: Tensor) -> Tensor:
        """Apply it to each hidden unit."""
        return F.mish(x)


class Mishglu(Mish):
    """Multiply it by a second product, as SwiGLU does."""

    name = "mishglu"
    is_gated = True
