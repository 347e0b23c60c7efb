"""The activations of feed-forward networks and of transform heads, as a recipe names them."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.model.kernels.activation import FUNCTIONS, Activation, tanh_gelu
from sublayer.model.kernels.swish import swish
from sublayer.model.roles import Role

Beta = float | Literal["learned"]


class Swish(nn.Module):
    """Compute ``x * sigmoid(beta x)``. Source: Ramachandran et al. 2017 (1710.05941), sec. 4.

    ``beta`` is a number, or one parameter where it is learned, whose first value is 1.
    """

    roles: ClassVar[Mapping[str, Role]] = {"beta": "vector"}

    def __init__(self, beta: Beta) -> None:
        super().__init__()
        self.beta: nn.Parameter | float
        if beta == "learned":
            self.beta = nn.Parameter(torch.empty(()))
        else:
            self.beta = beta

    def forward(self, x: Float[Tensor, "*rows F"]) -> Float[Tensor, "*rows F"]:
        """Apply the activation to each element."""
        return swish(x, self.beta)


def build_activation(name: str, gelu: Literal["exact", "tanh"], swish_beta: Beta) -> Activation:
    """Return the function of a name; ``gelu`` and ``swish_beta`` say which form is meant.

    It acts on each element. One with a parameter is a module, whose weight is unset.
    """
    if name == "gelu":
        return tanh_gelu if gelu == "tanh" else partial(F.gelu, approximate="none")
    if name == "swish" and swish_beta != 1.0:
        return Swish(swish_beta)
    return FUNCTIONS[name]
