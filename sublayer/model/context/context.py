"""The context of sub-layers: what they take beside their input."""

from dataclasses import dataclass, replace

from jaxtyping import Float
from torch import Tensor

from sublayer.model.context.cache import KeyValues, LstmState, MemoryKeyValues
from sublayer.model.context.layout import Layout
from sublayer.model.context.queries import Queries
from sublayer.model.positions.rotation import Rotation


@dataclass(frozen=True)
class Memory:
    """The encoder's output, and which of its tokens a decoder's tokens see: all real ones.

    A decoder may have several rows for each of its rows, one after another.
    """

    states: Float[Tensor, "B S D"]
    layout: Layout
    """That of ``Layout.reading``: one row of a mask for all queries."""


@dataclass(frozen=True)
class Context:
    """The layout, rotation and bias of attention, computed once a pass for all blocks."""

    layout: Layout
    rotation: Rotation | None
    """Of queries and keys; None where positions rotate neither."""
    bias: Float[Tensor, "N H T S"] | None = None
    """What positions add to scores, N being 1 or the rows; None where they add nothing."""
    key_values: KeyValues | MemoryKeyValues | LstmState | None = None
    """An attention's of earlier calls, or the state of an LSTM's layer: the one part that each
    sub-layer has for itself."""
    memory: Memory | None = None
    """What cross entries read; None in a model without them."""
    queries: Queries | None = None
    """Where an attention has queries; None: at every position."""

    def at(self, queries: Queries) -> "Context":
        """Return the context of an attention that has queries at some positions alone."""
        layout = self.layout
        return replace(
            self,
            layout=replace(layout, keys=queries.keys(layout.keys, layout.n_keys)),
            bias=None if self.bias is None else queries.bias(self.bias),
            queries=queries,
        )
