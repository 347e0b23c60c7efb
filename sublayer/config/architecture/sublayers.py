"""The kinds of sub-layer, a row for each, which notation, errors, counts and models read.

What each takes is a row of ``sublayer.estimate.sublayers``, what computes it a row of
``sublayer.model.layers.stack``.
"""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class SublayerKind:
    """What an entry's name says."""

    attends_to: Literal["nothing", "itself", "memory"]
    """What its queries attend to; memory is the states of an encoder."""
    shared_as: Literal["attention", "ffn"] | None
    """Its name in ``model.share``; None: it is never shared."""
    title: str
    """What diagrams call it."""
    has_variants: bool = False
    """Whether a feed-forward network may stand behind the name, as in ``ffn:swiglu``."""
    is_recurrent: bool = False
    """Whether it is a layer of an LSTM, which a block is never written with, and has no residual
    connection."""


SUBLAYERS: dict[str, SublayerKind] = {
    "attention": SublayerKind(attends_to="itself", shared_as="attention", title="Self-attention"),
    "cross": SublayerKind(attends_to="memory", shared_as="attention", title="Cross-attention"),
    "ffn": SublayerKind(
        attends_to="nothing", shared_as="ffn", title="Feed-forward network", has_variants=True
    ),
    "lstm": SublayerKind(attends_to="nothing", shared_as=None, title="LSTM", is_recurrent=True),
}
