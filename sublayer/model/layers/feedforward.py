"""Feed-forward networks, gated or not, by their rows of the table."""

from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.config.architecture import Entry, Ffn
from sublayer.config.recipe import ResolvedModel
from sublayer.config.roles import Role
from sublayer.model.context import Context
from sublayer.model.kernels.activation import FUNCTIONS, Activation, swish, tanh_gelu
from sublayer.model.kernels.dropout import dropout
from sublayer.model.layers.linear import Linear, StackedLinear

Beta = float | Literal["learned"]


class Swish(nn.Module):
    """Compute ``x * sigmoid(beta x)``. Source: Ramachandran et al. 2017 (1710.05941), sec. 4.

    ``beta`` is a number, or a learned parameter, initially 1.
    """

    roles: ClassVar[Mapping[str, Role]] = {"beta": "gain"}

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
    """Return the activation of a name; ``gelu`` and ``swish_beta`` select its form.

    It acts on elements. One with a parameter is a module, with an unset weight.
    """
    if name == "gelu":
        return tanh_gelu if gelu == "tanh" else partial(F.gelu, approximate="none")
    if name == "swish" and swish_beta != 1.0:
        return Swish(swish_beta)
    return FUNCTIONS[name]


class FeedForward(nn.Module):
    """Compute ``W2 (activation(W x))``, or ``W2 (activation(W x) * V x)`` where gated.

    Maps have biases if ``bias``. ``p_hidden`` is the dropout of hidden units after the product,
    before ``W2`` (Mesh-TensorFlow, as released).
    """

    def __init__(
        self,
        d_model: int,
        d_ff: int,
        ffn: Ffn,
        *,
        gelu: Literal["exact", "tanh"],
        swish_beta: float | Literal["learned"],
        bias: bool,
        p_hidden: float,
    ) -> None:
        super().__init__()
        self.is_gated = ffn.is_gated
        self.activation = build_activation(ffn.activation, gelu, swish_beta)
        self.input: StackedLinear | Linear
        if ffn.is_gated:
            self.input = StackedLinear(2, d_model, d_ff, bias=bias)
        else:
            self.input = Linear(d_model, d_ff, bias=bias)
        self.output = Linear(d_ff, d_model, bias=bias, ends_branch=True)
        self.p_hidden = p_hidden

    @classmethod
    def from_config(cls, config: ResolvedModel, entry: Entry) -> "FeedForward":
        """Build the network of an entry of a resolved config."""
        assert entry.ffn is not None, "an ffn entry has a variant"
        return cls(
            config.d_model,
            config.d_ff,
            entry.ffn,
            gelu=config.gelu,
            swish_beta=config.swish_beta,
            bias=config.bias,
            p_hidden=config.dropout_ffn,
        )

    def forward(self, x: Float[Tensor, "B T D"], context: Context) -> Float[Tensor, "B T D"]:
        """Transform each token separately; the context is ignored."""
        hidden = self.input(x)  # [B, T, F], or [B, T, 2 F]
        if self.is_gated:
            gate, value = hidden.chunk(2, dim=-1)
            hidden = self.activation(gate) * value
        else:
            hidden = self.activation(hidden)
        hidden = dropout(hidden, self.p_hidden, self.training)
        output: Tensor = self.output(hidden)  # [B, T, D]
        return output
