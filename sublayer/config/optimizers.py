"""``[optimizer]``: updates of weights, and the state kept for them; a table for each kind."""

import math
from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, SerializeAsAny, WrapValidator

from sublayer.config.model import VECTORS, Role, variable_axes
from sublayer.config.table import (
    LARGEST_VOCABULARY,
    MOST_STEPS,
    Factors,
    Fraction,
    NormLimit,
    Rate,
    RunShare,
    SharePair,
    Table,
    Weight,
    field,
)

Shape = tuple[int, ...]
Axes = tuple[int, ...]
Matrices = Mapping[tuple[Role, Shape], int]
"""Number of matrices and stacked matrices by role and shape."""
KINDS = "sgd, adam, adamw, lamb, adafactor, muon, schedule-free or lion."
"""Values of the field ``kind``, in words."""
RATE_SHARE = "rate_share"
"""Option of a parameter group: its share of the learning rate."""
_PROBE = (3, 2)


class OptimizerTable(Table):
    """Fields of every optimizer: the learning rate, its schedule, clipping, and the state."""

    lr: Rate[float] = 3e-4
    """Peak learning rate."""
    schedule: Literal["constant", "linear", "polynomial", "cosine", "inverse-sqrt"] = "cosine"
    """Shape of the learning rate after warm-up."""
    power: float = field(1.0, needs={"schedule": ("polynomial",)}, gt=0.0, le=1000.0)
    """Exponent of the share of the run that is left: 1 is linear, more falls faster at first."""
    warmup: Literal["ordinary", "albert", "gpt1", "constant"] = field("ordinary", when=("warmup",))
    """albert: the first update has rate 0, and the fall counts from there, so that the rate
    drops after warm-up; gpt1: the same, and a linear fall acts during warm-up too; constant: the
    peak from the first update on, as in T5."""
    warmup_init_lr: Weight[float | None] = field(
        None, needs={"schedule": ("inverse-sqrt",), "warmup": ("ordinary",)}
    )
    """Learning rate of the first update, from which warm-up counts, as in fairseq; unset, the first
    update has one warm-up step's share of the peak."""
    warmup_steps: int | None = field(
        None, unit="steps", derived="warmup_share of the run", ge=0, le=MOST_STEPS
    )
    """Steps of warm-up."""
    warmup_share: RunShare[float | None] = field(None, derived="0.05")
    """Warm-up as a share of the run; excludes warmup_steps."""
    final_lr_share: RunShare[float] = field(
        0.0, needs={"schedule": ("linear", "polynomial", "cosine")}
    )
    """Learning rate at the end, as a share of the peak."""
    cooldown_share: RunShare[float] = field(
        0.0, needs={"schedule": ("constant", "inverse-sqrt")}, when=("scheduled",)
    )
    """Last share of the run, over which the rate falls linearly to 0; 0: no cooldown."""
    clip_norm: NormLimit[float] = 1.0
    """Largest global norm of the gradient; 0 turns clipping off."""
    kind: str = ""

    @abstractmethod
    def state_axes(self, shape: Shape, role: Role) -> Mapping[str, Axes]:
        """Return each state kept for a parameter, by name, with the parameter's axes that it has.

        The axes have the parameter's order and lengths, and shard a state as its parameter is
        sharded. Checkpoints use these names; ``step`` counts updates, and is float32 whatever the
        parameter.
        """

    def state_shapes(self, shape: Shape, role: Role) -> dict[str, Shape]:
        """Return the name and shape of each state kept for a parameter of a given shape."""
        shapes = {}
        for name, axes in self.state_axes(shape, role).items():
            shapes[name] = tuple(shape[axis] for axis in axes)
        return shapes

    @property
    def states_per_vector(self) -> int:
        """Count the states of a gain or bias that have its size; others take next to nothing."""
        return list(self.state_shapes(_PROBE, "bias").values()).count(_PROBE)

    def is_orthogonalised(self, shape: Shape, role: Role) -> bool:
        """Return whether a parameter's update is orthogonalised, and its gradient not clipped."""
        return False

    def options(self, shape: Shape, role: Role) -> dict[str, Any]:
        """Return a parameter's options; parameters with equal options are updated together.

        Weight decay acts on everything but vectors, and on vectors with ``decay_vectors``.
        """
        is_decayed = role not in VECTORS or getattr(self, "decay_vectors", False)
        # An optimizer may have no decay at all.
        return {"weight_decay": getattr(self, "weight_decay", 0.0) if is_decayed else 0.0}

    def update_numbers(
        self, n_trained: int, matrices: Matrices, n_together: int, *, n_parts: int
    ) -> int:
        """Count the numbers that an update holds besides states: decayed gradients, or updates.

        ``matrices`` are the largest of the ``n_trained`` numbers, ``n_together`` the numbers in
        parameters of one shape that are updated at a time. With parameters sharded over
        ``n_parts`` processes the numbers are those of one, where optimizers that use norms of whole
        matrices keep all updates until these norms are exchanged.
        """
        return 0


def all_axes(shape: Shape) -> Axes:
    """Return the axes of a state with the shape of its parameter."""
    return tuple(range(len(shape)))


def moments(shape: Shape) -> dict[str, Axes]:
    """Return the axes of Adam's two moments."""
    return {"exp_avg": all_axes(shape), "exp_avg_sq": all_axes(shape)}


def counted_moments(shape: Shape) -> dict[str, Axes]:
    """Return the axes of the moments and of the count for their bias correction."""
    return {"step": (), **moments(shape)}


LAYER_DECAY: Any = field(
    1.0,
    description="Factor of the learning rate per block towards the input, smallest for the "
    "embeddings; the last block has its square, heads have the full rate (ELECTRA: "
    "0.8).",
    when=("one-stack",),
)
DECAY_VECTORS: Any = field(
    False,
    description="Weight decay of gains, offsets and biases as well (fairseq).",
    when=("decay",),
)


def parameter_scale(default: bool, needs: Mapping[str, tuple[Any, ...]] | None = None) -> Any:
    """Declare the field that scales updates by the weights."""
    return field(
        default,
        description="Scaling of each matrix's update, before weight decay, by the root mean "
        "square of its weights, at least 1e-3.",
        needs=needs or {},
    )


class MomentsTable(OptimizerTable):
    """Fields of optimizers with two moments and decoupled weight decay."""

    betas: SharePair = (0.9, 0.95)
    """Decay rates of the first and second moment."""
    eps: Fraction[float] = 1e-8
    """Added to the root of the second moment."""
    weight_decay: Weight[float] = 0.1
    """Decoupled decay of matrices and embeddings."""
    decay_vectors: bool = DECAY_VECTORS
    layer_decay: Fraction[float] = LAYER_DECAY

    def state_axes(self, shape: Shape, role: Role) -> Mapping[str, Axes]:
        """Return the axes of both moments and of the count for their bias correction."""
        return counted_moments(shape)


class SgdConfig(OptimizerTable):
    """
    Stochastic gradient descent with momentum; weight decay is coupled (added to the gradient).
    """  # fmt: skip

    kind: Literal["sgd"] = field("sgd", description=KINDS)
    lr: Rate[float] = 0.1
    momentum: float = field(0.9, ge=0.0, lt=1.0)
    """Share of the last update that is carried over."""
    weight_decay: Weight[float] = 0.0
    """L2 penalty on matrices and embeddings."""
    decay_vectors: bool = DECAY_VECTORS

    def state_axes(self, shape: Shape, role: Role) -> Mapping[str, Axes]:
        """Return the axes of the running sum of the gradients, if there is one."""
        return {"momentum_buffer": all_axes(shape)} if self.momentum > 0 else {}

    def update_numbers(
        self, n_trained: int, matrices: Matrices, n_together: int, *, n_parts: int
    ) -> int:
        """Count the decayed gradients."""
        return n_trained // n_parts if self.weight_decay > 0 else 0


class AdamConfig(MomentsTable):
    """Adam (Kingma & Ba 2015); weight decay is coupled (added to the gradient)."""

    kind: Literal["adam"] = field("adam", description=KINDS)
    betas: SharePair = (0.9, 0.999)
    weight_decay: Weight[float] = 0.0
    """L2 penalty on matrices and embeddings."""


class AdamWConfig(MomentsTable):
    """
    AdamW (Loshchilov & Hutter 2019); weight decay is decoupled and multiplied by the learning rate.
    """  # fmt: skip

    kind: Literal["adamw"] = field("adamw", description=KINDS)
    form: Literal["published", "gpt1"] = "published"
    """gpt1: as released with GPT-1, with weight decay also multiplied by the bias correction, and
    eps added before it."""
    bias_correction: bool = field(True, needs={"form": ("published",)})
    """Bias correction of the moments; false as in BERT and ALBERT."""
    parameter_scale: bool = parameter_scale(False, needs={"form": ("published",)})

    @property
    def is_as_published(self) -> bool:
        """True where PyTorch's fused kernel computes the same update in one pass."""
        return self.form == "published" and self.bias_correction and not self.parameter_scale

    def state_axes(self, shape: Shape, role: Role) -> Mapping[str, Axes]:
        """Return the axes of both moments and, where they are corrected, of the count."""
        return counted_moments(shape) if self.bias_correction else moments(shape)

    def options(self, shape: Shape, role: Role) -> dict[str, Any]:
        """Return the weight decay and, with a scale per variable, the number of its last axes."""
        axes = {"n_axes": variable_axes(role)} if self.parameter_scale else {}
        return {**super().options(shape, role), **axes}

    def update_numbers(
        self, n_trained: int, matrices: Matrices, n_together: int, *, n_parts: int
    ) -> int:
        """Count the updates; a fused pass over all parameters stores none."""
        return 0 if self.is_as_published else n_trained // n_parts


class LambConfig(OptimizerTable):
    """LAMB (You et al. 2020): AdamW's update of each matrix, scaled to ``lr`` times its norm.

    Matrices that are stored together (q, k and v; a gate and its value) have a trust ratio each;
    vectors, as released, have neither ratio nor decay. The paper leaves two choices open: a layer,
    here each of these matrices, and phi, here the identity, without bounds; where a norm is 0 the
    ratio is 1.
    """

    kind: Literal["lamb"] = field("lamb", description=KINDS)
    lr: Rate[float] = 0.00176
    form: Literal["albert", "published"] = "albert"
    """albert: as released with ALBERT; published: with bias correction of the moments."""
    betas: SharePair = (0.9, 0.999)
    """Decay rates of the first and second moment."""
    eps: Fraction[float] = 1e-6
    """Added to the root of the second moment."""
    weight_decay: Weight[float] = 0.01
    """Decoupled decay of matrices and embeddings."""

    def state_axes(self, shape: Shape, role: Role) -> Mapping[str, Axes]:
        """Return the axes of both moments and, where they are corrected, of the count."""
        return counted_moments(shape) if self.form == "published" else moments(shape)

    def options(self, shape: Shape, role: Role) -> dict[str, Any]:
        """Return the weight decay and the unit of the trust ratio: tensor, map, or none."""
        adapted = "none" if role in VECTORS else "map" if role == "stacked" else "tensor"
        return {**super().options(shape, role), "adapted": adapted}

    def update_numbers(
        self, n_trained: int, matrices: Matrices, n_together: int, *, n_parts: int
    ) -> int:
        """Count the updates; stacked matrices are updated separately from the rest."""
        if n_parts > 1:
            return n_trained // n_parts
        n_stacked = sum(
            n * math.prod(shape) for (role, shape), n in matrices.items() if role == "stacked"
        )
        return max(n_stacked, n_trained - n_stacked)


class AdafactorConfig(OptimizerTable):
    """Adafactor (Shazeer & Stern 2018), as T5 was trained with it: steps relative to the weights.

    For a large matrix it keeps the row and column means of the squared gradient, for any other
    parameter the mean square of each element. Matrices stored together (q, k and v; a gate and its
    value) are factored, clipped and scaled separately.
    """

    kind: Literal["adafactor"] = field("adafactor", description=KINDS)
    lr: Rate[float] = 0.01
    clip_norm: NormLimit[float] = 0.0
    clip_threshold: float = field(1.0, gt=0.0, le=1e30)
    """Largest root mean square of a matrix's update, before its scaling."""
    decay_exponent: Fraction[float] = 0.8
    """Exponent of the second moment's decay: update n contributes the share n ** -exponent."""
    decay_offset: int = field(0, unit="steps", ge=0, le=MOST_STEPS)
    """Updates that the decay counts before the first, so that fine-tuning begins with long
    averages."""
    # Biases stored together, two or three, never count as a matrix.
    min_factored: int = field(128, unit="rows or columns", ge=4, le=LARGEST_VOCABULARY)
    """Fewest rows, and fewest columns, of a factored matrix."""
    parameter_scale: bool = parameter_scale(True)

    def is_factored(self, shape: Shape) -> bool:
        """Return whether mean squares over the last two axes are factored into rows and columns."""
        return len(shape) >= 2 and min(shape[-2:]) >= self.min_factored

    def state_axes(self, shape: Shape, role: Role) -> Mapping[str, Axes]:
        """Return the axes of the count and of the mean squares, factored or of all elements."""
        return {"step": (), **self.mean_axes(shape)}

    def mean_axes(self, shape: Shape) -> dict[str, Axes]:
        """Return the axes of the mean squares, factored or of all elements."""
        axes = all_axes(shape)
        if not self.is_factored(shape):
            return {"exp_avg_sq": axes}
        *stacked, rows, columns = axes
        return {"exp_avg_sq_row": (*stacked, rows), "exp_avg_sq_col": (*stacked, columns)}

    def options(self, shape: Shape, role: Role) -> dict[str, Any]:
        """Return the options with the number of last axes factored, clipped and scaled as a
        unit."""
        return {**super().options(shape, role), "n_axes": variable_axes(role)}

    def update_numbers(
        self, n_trained: int, matrices: Matrices, n_together: int, *, n_parts: int
    ) -> int:
        """Count the most numbers of parameters updated together.

        A matrix updated alone holds its update; several are copied first, with their mean squares
        if not factored.
        """
        if n_parts > 1:
            return n_trained // n_parts
        by_shape: Counter[Shape] = Counter()
        for (_, shape), n_matrices in matrices.items():
            by_shape[shape] += n_matrices
        most = 0
        for shape, n_matrices in by_shape.items():
            size = math.prod(shape)
            n = min(n_matrices, max(1, n_together // size))
            n_arrays = 1
            if n > 1:
                n_arrays = 2 if self.is_factored(shape) else 3
            most = max(most, n_arrays * n * size)
        return most


class MuonConfig(MomentsTable):
    """Muon (Jordan 2024) for the maps of a model, AdamW for its other parameters.

    The momentum of a map is orthogonalised by Newton-Schulz iterations: its singular values become
    about 1, its singular vectors stay. Maps with a side of 1, heads, embeddings, tables, gains and
    biases go by AdamW. ``clip_norm`` counts and scales the gradients of AdamW's parameters only,
    since an orthogonalised update does not depend on the scale of the gradient.
    """

    kind: Literal["muon"] = field("muon", description=KINDS)
    clip_norm: NormLimit[float] = 1.0
    """Largest norm of the gradients of AdamW's parameters, the only ones that it counts and scales;
    0 turns clipping off."""
    adamw_lr: Rate[float | None] = field(None, derived="lr")
    """Peak learning rate of AdamW's parameters; its schedule is that of lr."""
    adjust_lr: Literal["match_rms_adamw", "original"] = "match_rms_adamw"
    """Factor of a map's learning rate: match_rms_adamw, 0.2 times the root of its longer side, for
    updates as long as AdamW's (Moonlight); original, the root of rows / columns, at least 1."""
    muon_unit: Literal["map", "head"] = field("map", when=("blocks", "attention"))
    """Matrices that are orthogonalised: each linear map; or, of an attention's maps, each head's
    part."""
    momentum: float = field(0.95, gt=0.0, lt=1.0)
    """Decay rate of the running mean of the gradients."""
    nesterov: bool = True
    """Nesterov's momentum: the gradient is mixed into the mean once more."""
    newton_schulz_steps: int = field(5, unit="iterations", ge=1, le=99)
    """Newton-Schulz iterations."""
    newton_schulz_coefficients: Factors = (3.4445, -4.775, 2.0315)
    """a, b and c of an iteration, which maps a singular value x to a x + b x**3 + c x**5."""
    newton_schulz_dtype: Literal["bfloat16", "float32"] = "bfloat16"
    """Precision of the iterations: sums are in float32; bfloat16 rounds what is stored, on every
    machine, whether it has bfloat16 units or not."""

    def is_orthogonalised(self, shape: Shape, role: Role) -> bool:
        """Return whether a parameter is a linear map, or several, with both sides above 1."""
        return role in ("matrix", "stacked") and min(shape[-2:]) > 1

    def state_axes(self, shape: Shape, role: Role) -> Mapping[str, Axes]:
        """Return the axes of the momentum, or of AdamW's moments."""
        if self.is_orthogonalised(shape, role):
            return {"momentum_buffer": all_axes(shape)}
        return super().state_axes(shape, role)

    def options(self, shape: Shape, role: Role) -> dict[str, Any]:
        """Return the weight decay, whether to orthogonalise, and the share of the rate."""
        is_orthogonalised = self.is_orthogonalised(shape, role)
        share = 1.0 if is_orthogonalised else (self.adamw_lr or self.lr) / self.lr
        options = {"is_orthogonalised": is_orthogonalised, RATE_SHARE: share}
        return {**super().options(shape, role), **options}

    def rate_factor(self, n_rows: int, n_columns: int) -> float:
        """Return the factor of the learning rate of an orthogonalised matrix."""
        if self.adjust_lr == "original":
            return math.sqrt(max(1, n_rows / n_columns))
        return 0.2 * math.sqrt(max(n_rows, n_columns))

    def update_products(self, n_rows: int, n_columns: int) -> int:
        """Count the multiply-adds of Newton-Schulz for a matrix: three products an iteration."""
        short, long = sorted((n_rows, n_columns))
        return self.newton_schulz_steps * (2 * short**2 * long + short**3)

    def update_numbers(
        self, n_trained: int, matrices: Matrices, n_together: int, *, n_parts: int
    ) -> int:
        """Count AdamW's updates, or those of the maps of one shape that are updated together.

        Newton-Schulz holds maps in three versions, and two products of their shorter sides; before,
        there are a mixed momentum and its copy. Of sharded parameters, whole maps are held, twice.
        """
        by_shape: Counter[Shape] = Counter()
        for (role, shape), n_matrices in matrices.items():
            if self.is_orthogonalised(shape, role):
                by_shape[shape] += n_matrices
        most = 0
        for shape, n_matrices in by_shape.items():
            n_maps = min(n_matrices, max(1, n_together // math.prod(shape))) * math.prod(shape)
            n_held = 3 * n_maps + 2 * n_maps * min(shape[-2:]) // max(shape[-2:])
            if self.newton_schulz_dtype == "bfloat16":
                n_held //= 2
            most = max(most, 2 * n_maps + n_held if n_parts > 1 else max(2 * n_maps, n_held))
        n_others = n_trained - sum(n * math.prod(shape) for shape, n in by_shape.items())
        return max(most, n_others // n_parts)


class ScheduleFreeConfig(MomentsTable):
    """Schedule-free AdamW (Defazio et al. 2024): a constant rate, and weights that are averages.

    Gradients are taken at an interpolation between the average and the fast weights; evaluations,
    checkpoints and the final model have the average.
    """

    kind: Literal["schedule-free"] = field("schedule-free", description=KINDS)
    lr: Rate[float] = 0.0025
    schedule: Literal["constant", "linear", "polynomial", "cosine", "inverse-sqrt"] = field(
        "constant", when=("scheduled",)
    )
    """Shape of the learning rate after warm-up."""
    betas: SharePair = (0.9, 0.999)
    """Weight of the average in the interpolation, above 0, and decay rate of the second moment."""

    def state_axes(self, shape: Shape, role: Role) -> Mapping[str, Axes]:
        """Return the axes of the fast weights, the second moment, the count and the weight sum."""
        axes = all_axes(shape)
        return {"step": (), "weight_sum": (), "z": axes, "exp_avg_sq": axes}

    def update_numbers(
        self, n_trained: int, matrices: Matrices, n_together: int, *, n_parts: int
    ) -> int:
        """Count the updates."""
        return n_trained // n_parts


class LionConfig(OptimizerTable):
    """Lion (Chen et al. 2023): the sign of an average of gradients, with decoupled decay."""

    kind: Literal["lion"] = field("lion", description=KINDS)
    lr: Rate[float] = 1e-4
    betas: SharePair = (0.9, 0.99)
    """Weight of the running average in the update, and its decay rate."""
    weight_decay: Weight[float] = 0.3
    """Decoupled decay of matrices and embeddings."""
    decay_vectors: bool = DECAY_VECTORS
    layer_decay: Fraction[float] = LAYER_DECAY

    def state_axes(self, shape: Shape, role: Role) -> Mapping[str, Axes]:
        """Return the axes of the running average of the gradients."""
        return {"exp_avg": all_axes(shape)}

    def update_numbers(
        self, n_trained: int, matrices: Matrices, n_together: int, *, n_parts: int
    ) -> int:
        """Count the updates."""
        return n_trained // n_parts


_Shipped = Annotated[
    SgdConfig
    | AdamConfig
    | AdamWConfig
    | LambConfig
    | AdafactorConfig
    | MuonConfig
    | ScheduleFreeConfig
    | LionConfig,
    Field(discriminator="kind"),
]
OPTIMIZERS: dict[str, type[Table]] = {
    "sgd": SgdConfig,
    "adam": AdamConfig,
    "adamw": AdamWConfig,
    "lamb": LambConfig,
    "adafactor": AdafactorConfig,
    "muon": MuonConfig,
    "schedule-free": ScheduleFreeConfig,
    "lion": LionConfig,
}


class _ByKind:
    """Validator of an optimizer's table by its kind, which may be a plugin's; its class writes
    it."""

    def __get_pydantic_core_schema__(self, _: Any, handler: Any) -> Any:
        def read(value: Any, shipped: Any) -> Any:
            given = value if isinstance(value, Mapping) else vars(value)
            table = OPTIMIZERS.get(str(given.get("kind")))
            is_row = table is not None and table.__module__ != __name__
            return table.model_validate(value) if table and is_row else shipped(value)

        either = Annotated[SerializeAsAny[_Shipped], WrapValidator(read)]
        return handler.generate_schema(either)


if TYPE_CHECKING:
    OptimizerConfig = _Shipped
else:
    OptimizerConfig = Annotated[OptimizerTable, _ByKind()]
