"""The table of LAMB."""

from collections.abc import Mapping
from typing import Literal

from sublayer.config.limits import LARGEST_FACTOR, LARGEST_RATE
from sublayer.config.optimizers.base import (
    KINDS,
    Axes,
    OptimizerTable,
    Shape,
    counted_moments,
    moments,
)
from sublayer.config.table import SharePair, field


class LambConfig(OptimizerTable):
    """LAMB (You et al. 2020): AdamW's update of each matrix and table, made as long as ``lr``
    times its weights.

    Matrices that are stored together (q, k and v; a gate and its value) have a ratio each; vectors,
    as released, have neither ratio nor decay. The paper leaves open what a layer is, which is each
    of these, and what its phi is, which is the identity, without bounds; where a norm is 0 the
    ratio is 1.
    """

    kind: Literal["lamb"] = field("lamb", KINDS)
    lr: float = field(0.00176, "Peak learning rate.", gt=0.0, le=LARGEST_RATE)
    form: Literal["albert", "published"] = field(
        "albert",
        "albert: as released with ALBERT; published: moments corrected for their start at 0.",
    )
    betas: SharePair = field((0.9, 0.999), "Decay rates of the first and second moment.")
    eps: float = field(1e-6, "Added to the root of the second moment.", gt=0.0, le=1.0)
    weight_decay: float = field(
        0.01, "Decoupled decay of matrices and embeddings.", ge=0.0, le=LARGEST_FACTOR
    )

    def state_axes(self, shape: Shape) -> Mapping[str, Axes]:
        """Return the axes of both moments and, where they are corrected, of the count."""
        return counted_moments(shape) if self.form == "published" else moments(shape)
