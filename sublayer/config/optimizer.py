"""``[optimizer]``: how weights change; a union by ``kind``."""

from typing import Annotated, Any, Literal

from pydantic import Field

from sublayer.config.limits import LARGEST_FACTOR, LARGEST_RATE, MOST_STEPS
from sublayer.config.table import SharePair, Table, field


class _Optimizer(Table):
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
    warmup: Literal["ordinary", "albert"] = field(
        "ordinary",
        "albert: the first update has rate 0, and the fall counts from there, so that the rate drops after warm-up.",
        needs={"schedule": ("linear", "polynomial")},
    )
    warmup_init_lr: float | None = field(
        None,
        "Learning rate of the first update, and the count from there, as in fairseq; unset, the first has one warm-up "
        "step's share of the peak.",
        needs={"schedule": ("inverse-sqrt",)},
        ge=0.0,
        le=LARGEST_FACTOR,
    )
    warmup_steps: int | None = field(
        None, "Steps of linear warm-up.", unit="steps", derived="warmup_share of the run", ge=0, le=MOST_STEPS
    )
    warmup_share: float | None = field(
        None, "Warm-up as a share of the run; excludes warmup_steps.", unit="share", derived="0.05", ge=0.0, le=1.0
    )
    final_lr_share: float = field(
        0.0,
        "Learning rate at the end, as a share of the peak.",
        unit="share",
        needs={"schedule": ("linear", "polynomial", "cosine")},
        ge=0.0,
        le=1.0,
    )
    clip_norm: float = field(1.0, "Largest global norm of the gradient; 0 turns clipping off.", ge=0.0, le=1e30)


def _decay_vectors() -> Any:
    return field(False, "Weight decay of gains, offsets and biases too, as in fairseq.")


class SgdConfig(_Optimizer):
    """Stochastic gradient descent with momentum; weight decay is coupled (added to the gradient)."""

    kind: Literal["sgd"] = field("sgd", "sgd, adam, adamw or lamb.", selects=True)
    lr: float = field(0.1, "Peak learning rate.", gt=0.0, le=LARGEST_RATE)
    momentum: float = field(0.9, "Share of the last update that is kept.", ge=0.0, lt=1.0)
    weight_decay: float = field(0.0, "L2 penalty on matrices and embeddings.", ge=0.0, le=LARGEST_FACTOR)
    decay_vectors: bool = _decay_vectors()


class AdamConfig(_Optimizer):
    """Adam (Kingma & Ba 2015); weight decay is coupled (added to the gradient)."""

    kind: Literal["adam"] = field("adam", "sgd, adam, adamw or lamb.", selects=True)
    betas: SharePair = field((0.9, 0.999), "Decay rates of the first and second moment.")
    eps: float = field(1e-8, "Added to the root of the second moment.", gt=0.0, le=1.0)
    weight_decay: float = field(0.0, "L2 penalty on matrices and embeddings.", ge=0.0, le=LARGEST_FACTOR)
    decay_vectors: bool = _decay_vectors()


class AdamWConfig(_Optimizer):
    """AdamW (Loshchilov & Hutter 2019); weight decay is decoupled and multiplied by the learning rate."""

    kind: Literal["adamw"] = field("adamw", "sgd, adam, adamw or lamb.", selects=True)
    betas: SharePair = field((0.9, 0.95), "Decay rates of the first and second moment.")
    eps: float = field(1e-8, "Added to the root of the second moment.", gt=0.0, le=1.0)
    weight_decay: float = field(0.1, "Decoupled decay of matrices and embeddings.", ge=0.0, le=LARGEST_FACTOR)
    decay_vectors: bool = _decay_vectors()
    bias_correction: bool = field(True, "Correct the moments for their start at 0; false as in BERT and ALBERT.")


class LambConfig(_Optimizer):
    """LAMB (You et al. 2020): AdamW's update of each matrix and table, made as long as ``lr`` times its weights.

    Matrices that are stored together (q, k and v; a gate and its value) have a ratio each; vectors, as released, have
    neither ratio nor decay. The paper leaves open what a layer is, which is each of these, and what its phi is, which
    is the identity, without bounds; where a norm is 0 the ratio is 1.
    """

    kind: Literal["lamb"] = field("lamb", "sgd, adam, adamw or lamb.", selects=True)
    lr: float = field(0.00176, "Peak learning rate.", gt=0.0, le=LARGEST_RATE)
    form: Literal["albert", "published"] = field(
        "albert", "albert: as released with ALBERT; published: moments corrected for their start at 0."
    )
    betas: SharePair = field((0.9, 0.999), "Decay rates of the first and second moment.")
    eps: float = field(1e-6, "Added to the root of the second moment.", gt=0.0, le=1.0)
    weight_decay: float = field(0.01, "Decoupled decay of matrices and embeddings.", ge=0.0, le=LARGEST_FACTOR)


OptimizerConfig = Annotated[SgdConfig | AdamConfig | AdamWConfig | LambConfig, Field(discriminator="kind")]
OPTIMIZERS: dict[str, type[Table]] = {"sgd": SgdConfig, "adam": AdamConfig, "adamw": AdamWConfig, "lamb": LambConfig}
