"""The protocol that every position scheme follows."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.architecture.stacks import StackShape
from sublayer.config.resolved import ResolvedModel
from sublayer.errors import ConfigError
from sublayer.model.context.layout import Layout
from sublayer.model.positions.rotation import Rotation


def distances(queries: Int[Tensor, "... T"], keys: Int[Tensor, "... S"]) -> Int[Tensor, "N T S"]:
    """Compute how far each key stands behind each query, in tokens; negative before it.

    "Behind" is later in the text. N is 1 where positions of both have one axis, those of all rows;
    else it is the number of rows.
    """
    offsets = keys[..., None, :] - queries[..., :, None]
    if offsets.dim() == 3:
        return offsets
    return offsets[None]


class Positions(nn.Module):
    """The positions of one stack. Each method here does nothing: a scheme overrides what it does.

    Parameters belong to the stack: what they give is computed once a pass and shared by its blocks.
    """

    def __init__(self, config: ResolvedModel, shape: StackShape) -> None:
        super().__init__()
        self.name = config.positions
        self.max_len = config.max_len
        is_bias = POSITIONS[config.positions].in_attention == "bias"
        self.biases_scores = is_bias and shape.attends_to_itself

    def vectors(
        self, layer: int, positions: Int[Tensor, "*B T"], dtype: torch.dtype
    ) -> Float[Tensor, "*B T D"] | None:
        """Compute what is added before block ``layer`` at positions within ``check``; or None.

        Before the first block D is the width of the embeddings, to which it is added there.
        """
        return None

    @property
    def input_table(self) -> Float[Tensor, "P W"] | None:
        """The vectors that are added before the first block, a row each; None where none is so."""
        return None

    def rotation(self, positions: Int[Tensor, "*B T"], dtype: torch.dtype) -> Rotation | None:
        """Compute the rotation of queries and keys at their positions; None for none.

        One rotation serves all blocks and heads of the stack.
        """
        return None

    def score_bias(
        self, queries: Int[Tensor, "... T"], keys: Int[Tensor, "... S"], dtype: torch.dtype
    ) -> Float[Tensor, "N H T S"] | None:
        """Compute the bias of scores from the positions of queries and keys; None for none.

        N is 1 where the positions are those of all rows, else their number. Positions of one axis
        are consecutive. A bias depends on how far a key stands from its query alone. What a query
        does not see is hidden elsewhere: the bias need only be finite there. Not called where
        ``biases_scores`` is False.
        """
        return None

    def add(
        self, x: Float[Tensor, "B T D"], layer: int, positions: Int[Tensor, "*B T"]
    ) -> Float[Tensor, "B T D"]:
        """Add the vectors that the scheme has before block ``layer``."""
        vectors = self.vectors(layer, positions, x.dtype)
        return x if vectors is None else x + vectors

    def check(self, layout: Layout) -> None:
        """Raise ConfigError where an input is longer than the positions that there are.

        Real tokens count, and all padding behind them as one. A scheme without an end takes any.
        """
        if not POSITIONS[self.name].has_end:
            return
        # Positions are read back from the device only where padding leaves it open whether they
        # fit.
        if layout.n_keys <= self.max_len:
            return
        needed = layout.n_keys
        if layout.mask is not None:
            needed = int(layout.positions.max()) + 1
        if needed > self.max_len:
            raise ConfigError(
                f"an input of {needed} tokens is longer than model.max_len = {self.max_len}, "
                f"where model.positions = {self.name} end; shorten the input"
            )
