"""The base of every kind of optimizer's table, and the fields that several have."""

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Literal

from sublayer.config.limits import LARGEST_FACTOR, LARGEST_RATE, MOST_STEPS
from sublayer.config.table import Table, field

Shape = tuple[int, ...]
Axes = tuple[int, ...]
KINDS = "sgd, adam, adamw, lamb or adafactor."
"""What the field ``kind`` may be, in words."""
_PROBE = (3, 2)


class OptimizerTable(Table):
    """What every optimizer has: a learning rate, its schedule, clipping, and a state."""

    lr: float = field(3e-4, "Peak learning rate.", gt=0.0, le=LARGEST_RATE)
    schedule: Literal["constant", "linear", "polynomial", "cosine", "inverse-sqrt"] = field(
        "cosine", "Shape of the learning rate after warm-up."
    )
    power: float = field(
        1.0,
        "Exponent of the share of the run that is left: 1 is linear, more falls faster at first.",
        needs={"schedule": ("polynomial",)},
        gt=0.0,
        le=1000.0,
    )
    warmup: Literal["ordinary", "albert", "gpt1", "constant"] = field(
        "ordinary",
        "albert: the first update has rate 0, and the fall counts from there, so that the rate "
        "drops after warm-up; gpt1: the same, and a linear fall acts during warm-up too; constant: "
        "the peak from the first update on, as in T5.",
    )
    warmup_init_lr: float | None = field(
        None,
        "Learning rate of the first update, and the count from there, as in fairseq; unset, the "
        "first has one warm-up step's share of the peak.",
        needs={"schedule": ("inverse-sqrt",), "warmup": ("ordinary",)},
        ge=0.0,
        le=LARGEST_FACTOR,
    )
    warmup_steps: int | None = field(
        None,
        "Steps of warm-up.",
        unit="steps",
        derived="warmup_share of the run",
        ge=0,
        le=MOST_STEPS,
    )
    warmup_share: float | None = field(
        None,
        "Warm-up as a share of the run; excludes warmup_steps.",
        unit="share",
        derived="0.05",
        ge=0.0,
        le=1.0,
    )
    final_lr_share: float = field(
        0.0,
        "Learning rate at the end, as a share of the peak.",
        unit="share",
        needs={"schedule": ("linear", "polynomial", "cosine")},
        ge=0.0,
        le=1.0,
    )
    cooldown_share: float = field(
        0.0,
        "Last share of the run, over which the rate falls to 0 on a line; 0 is none.",
        unit="share",
        needs={"schedule": ("constant", "inverse-sqrt")},
        ge=0.0,
        le=1.0,
    )
    clip_norm: float = field(
        1.0, "Largest global norm of the gradient; 0 turns clipping off.", ge=0.0, le=1e30
    )

    @abstractmethod
    def state_axes(self, shape: Shape) -> Mapping[str, Axes]:
        """Return the name of each state that is kept of a parameter, and which axes of it it has.

        They are in the parameter's order, and as long; by them a state is divided as its parameter
        is. Checkpoints hold it by these names; ``step`` counts, and is float32 whatever the
        parameter.
        """

    def state_shapes(self, shape: Shape) -> dict[str, Shape]:
        """Return the name and shape of each state that is kept of a parameter of a shape."""
        shapes = {}
        for name, axes in self.state_axes(shape).items():
            shapes[name] = tuple(shape[axis] for axis in axes)
        return shapes

    @property
    def states_per_parameter(self) -> int:
        """Count the states as large as their parameter; others take next to nothing."""
        return list(self.state_shapes(_PROBE).values()).count(_PROBE)


def all_axes(shape: Shape) -> Axes:
    """Return the axes of what has the shape of its parameter."""
    return tuple(range(len(shape)))


def moments(shape: Shape) -> dict[str, Axes]:
    """Return the axes of Adam's two moments."""
    return {"exp_avg": all_axes(shape), "exp_avg_sq": all_axes(shape)}


def counted_moments(shape: Shape) -> dict[str, Axes]:
    """Return the axes of the moments and of the count that they are corrected by."""
    return {"step": (), **moments(shape)}


def layer_decay() -> Any:
    """Declare the field of how much lower rates are nearer to the input."""
    return field(
        1.0,
        "Factor of the learning rate from block to block towards the input, the embeddings lowest; "
        "the last block has its square, heads have the whole rate (ELECTRA: 0.8).",
        gt=0.0,
        le=1.0,
    )


def decay_vectors() -> Any:
    """Declare the field of whether vectors decay."""
    return field(False, "Weight decay of gains, offsets and biases too, as in fairseq.")


def parameter_scale(default: bool, needs: Mapping[str, tuple[Any, ...]] | None = None) -> Any:
    """Declare the field of whether updates are relative to the weights."""
    return field(
        default,
        "Multiply the update of each matrix, decay aside, by the root mean square of its weights, "
        "at least 1e-3.",
        needs=needs or {},
    )
