"""The eight feed-forward networks: rows of a table."""

from dataclasses import dataclass
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from sublayer.model.activation import ActivationName, build_activation
from sublayer.model.context import Context
from sublayer.model.dropout import dropout
from sublayer.model.linear import Linear, StackedLinear


@dataclass(frozen=True)
class Variant:
    """What a feed-forward network computes between its two matrix products."""

    activation: ActivationName
    is_gated: bool


# Shazeer 2020, eqs. 1-3 and 5-6; the same names in a recipe.
VARIANTS: dict[str, Variant] = {
    "relu": Variant("relu", is_gated=False),
    "gelu": Variant("gelu", is_gated=False),
    "swish": Variant("swish", is_gated=False),
    "glu": Variant("sigmoid", is_gated=True),
    "bilinear": Variant("identity", is_gated=True),
    "reglu": Variant("relu", is_gated=True),
    "geglu": Variant("gelu", is_gated=True),
    "swiglu": Variant("swish", is_gated=True),
}


class FeedForward(nn.Module):
    """Compute ``W2 (activation(W x))``, or ``W2 (activation(W x) * V x)`` where gated, with biases if ``bias``.

    ``p_hidden`` drops hidden units after the product, before ``W2`` (Mesh-TensorFlow, as released).
    """

    def __init__(
        self, d_model: int, d_ff: int, variant: str, *, gelu: Literal["exact", "tanh"], bias: bool, p_hidden: float
    ) -> None:
        super().__init__()
        row = VARIANTS[variant]
        self.is_gated = row.is_gated
        self.activation = build_activation(row.activation, gelu)
        self.input = StackedLinear(2, d_model, d_ff, bias=bias) if row.is_gated else Linear(d_model, d_ff, bias=bias)
        self.output = Linear(d_ff, d_model, bias=bias, ends_branch=True)
        self.p_hidden = p_hidden

    def forward(self, x: Float[Tensor, "B T D"], context: Context) -> Float[Tensor, "B T D"]:
        """Transform each token by itself."""
        hidden = self.input(x)  # [B, T, F], or [B, T, 2 F]
        if self.is_gated:
            gate, value = hidden.chunk(2, dim=-1)
            hidden = self.activation(gate) * value
        else:
            hidden = self.activation(hidden)
        output: Tensor = self.output(dropout(hidden, self.p_hidden, self.training))
        return output
