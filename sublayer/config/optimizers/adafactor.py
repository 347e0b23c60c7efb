"""The table of Adafactor."""

from collections.abc import Mapping
from typing import Literal

from sublayer.config.limits import LARGEST_RATE, LARGEST_VOCABULARY, MOST_STEPS
from sublayer.config.optimizers.base import (
    KINDS,
    Axes,
    OptimizerTable,
    Shape,
    all_axes,
    parameter_scale,
)
from sublayer.config.table import field


class AdafactorConfig(OptimizerTable):
    """Adafactor (Shazeer & Stern 2018), as T5 was trained with it: steps relative to the weights.

    Of a large matrix it keeps the mean squares of the gradient's rows and columns, of all else
    those of each number. Matrices that are stored together (q, k and v; a gate and its value) are
    factored, clipped and scaled each on its own.
    """

    kind: Literal["adafactor"] = field("adafactor", KINDS)
    lr: float = field(0.01, "Peak learning rate.", gt=0.0, le=LARGEST_RATE)
    clip_norm: float = field(
        0.0, "Largest global norm of the gradient; 0 turns clipping off.", ge=0.0, le=1e30
    )
    clip_threshold: float = field(
        1.0, "Largest root mean square of a matrix's update, before its scale.", gt=0.0, le=1e30
    )
    decay_exponent: float = field(
        0.8,
        "Update n gives its squares the share n ** -exponent of their means.",
        gt=0.0,
        le=1.0,
    )
    decay_offset: int = field(
        0,
        "Updates that the decay counts before the first, so that fine-tuning begins with long "
        "means.",
        unit="steps",
        ge=0,
        le=MOST_STEPS,
    )
    min_factored: int = field(
        128,
        "Fewest rows, and fewest columns, of a matrix that is factored.",
        unit="rows or columns",
        # Biases that are stored together, two or three, are never taken for a matrix.
        ge=4,
        le=LARGEST_VOCABULARY,
    )
    parameter_scale: bool = parameter_scale(True)

    def is_factored(self, shape: Shape) -> bool:
        """Return whether rows and columns stand for a parameter, of which the last axes count."""
        return len(shape) >= 2 and min(shape[-2:]) >= self.min_factored

    def state_axes(self, shape: Shape) -> Mapping[str, Axes]:
        """Return the axes of the count and of mean squares: of rows and columns, or of all."""
        axes = all_axes(shape)
        if not self.is_factored(shape):
            return {"step": (), "exp_avg_sq": axes}
        *stacked, rows, columns = axes
        return {
            "step": (),
            "exp_avg_sq_row": (*stacked, rows),
            "exp_avg_sq_col": (*stacked, columns),
        }
