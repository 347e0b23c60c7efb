"""The feed-forward networks, a row for each, which errors, schema, counts and kernels read."""

from dataclasses import dataclass
from typing import Literal

Saved = Literal["nothing", "output", "input"]
"""What an activation saves for its backward pass."""

ACTIVATIONS: dict[str, Saved] = {
    "relu": "output",
    "gelu": "input",
    "swish": "input",
    "sigmoid": "output",
    "identity": "nothing",
}


@dataclass(frozen=True)
class Ffn:
    """What a network computes between its products: an activation, times a product where gated."""

    activation: str
    """A key of ``ACTIVATIONS``."""
    is_gated: bool

    @property
    def saves(self) -> Saved:
        """Return what the activation saves for its backward pass."""
        return ACTIVATIONS[self.activation]

    @property
    def n_inputs(self) -> int:
        """Count the matrix products before the activation."""
        return 2 if self.is_gated else 1


def networks_with(activation: str) -> tuple[str, ...]:
    """Return the networks that have an activation."""
    return tuple(name for name, ffn in FFNS.items() if ffn.activation == activation)


# Shazeer 2020 (2002.05202), eqs. 1-3 and 5-6.
FFNS: dict[str, Ffn] = {
    "relu": Ffn("relu", is_gated=False),
    "gelu": Ffn("gelu", is_gated=False),
    "swish": Ffn("swish", is_gated=False),
    "glu": Ffn("sigmoid", is_gated=True),
    "bilinear": Ffn("identity", is_gated=True),
    "reglu": Ffn("relu", is_gated=True),
    "geglu": Ffn("gelu", is_gated=True),
    "swiglu": Ffn("swish", is_gated=True),
}
