"""The tables of Adam and AdamW."""

from collections.abc import Mapping
from typing import Literal

from sublayer.config.limits import LARGEST_FACTOR
from sublayer.config.optimizers.base import (
    KINDS,
    Axes,
    OptimizerTable,
    Shape,
    counted_moments,
    decay_vectors,
    layer_decay,
    moments,
    parameter_scale,
)
from sublayer.config.table import SharePair, field


class AdamConfig(OptimizerTable):
    """Adam (Kingma & Ba 2015); weight decay is coupled (added to the gradient)."""

    kind: Literal["adam"] = field("adam", KINDS)
    betas: SharePair = field((0.9, 0.999), "Decay rates of the first and second moment.")
    eps: float = field(1e-8, "Added to the root of the second moment.", gt=0.0, le=1.0)
    weight_decay: float = field(
        0.0, "L2 penalty on matrices and embeddings.", ge=0.0, le=LARGEST_FACTOR
    )
    decay_vectors: bool = decay_vectors()
    layer_decay: float = layer_decay()

    def state_axes(self, shape: Shape) -> Mapping[str, Axes]:
        """Return the axes of both moments and of the count that they are corrected by."""
        return counted_moments(shape)


class AdamWConfig(OptimizerTable):
    """
    AdamW (Loshchilov & Hutter 2019); weight decay is decoupled and multiplied by the learning rate.
    """  # fmt: skip

    kind: Literal["adamw"] = field("adamw", KINDS)
    form: Literal["published", "gpt1"] = field(
        "published",
        "gpt1: as released with GPT-1: what corrects the moments multiplies the decay too, and eps "
        "is added before it does.",
    )
    betas: SharePair = field((0.9, 0.95), "Decay rates of the first and second moment.")
    eps: float = field(1e-8, "Added to the root of the second moment.", gt=0.0, le=1.0)
    weight_decay: float = field(
        0.1, "Decoupled decay of matrices and embeddings.", ge=0.0, le=LARGEST_FACTOR
    )
    decay_vectors: bool = decay_vectors()
    layer_decay: float = layer_decay()
    bias_correction: bool = field(
        True,
        "Correct the moments for their start at 0; false as in BERT and ALBERT.",
        needs={"form": ("published",)},
    )
    parameter_scale: bool = parameter_scale(False, needs={"form": ("published",)})

    @property
    def is_as_published(self) -> bool:
        """Whether it is what PyTorch computes in one pass over its parameters."""
        return self.form == "published" and self.bias_correction and not self.parameter_scale

    def state_axes(self, shape: Shape) -> Mapping[str, Axes]:
        """Return the axes of both moments and, where they are corrected, of the count."""
        return counted_moments(shape) if self.bias_correction else moments(shape)
