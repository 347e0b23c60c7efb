"""Elementary layers: linear maps, norms, activations, and tables of tokens and segments."""

import math
from collections.abc import Mapping, Sequence
from functools import partial
from importlib import import_module
from typing import Any, ClassVar, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from sublayer.config.model import NORMS, Role
from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import embedding_width, has_bias, is_factorised
from sublayer.model.kernels.compiled import CompiledNorm
from sublayer.model.kernels.elementwise import FUNCTIONS, Activation, is_eager_cpu, swish, tanh_gelu
from sublayer.model.kernels.products import linear


def load_class(implementation: str) -> Any:
    """Load a class named ``module:class``, a name that lets configs do without PyTorch."""
    module, _, name = implementation.partition(":")
    return getattr(import_module(module), name)


class Linear(nn.Module):
    """Multiply by a matrix ``[d_out, d_in]`` and add a bias, if any.

    Weights start unset; parameters.py initializes them. ``ends_branch`` marks the map that writes a
    sub-layer's output into the residual stream.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "matrix", "bias": "bias"}

    def __init__(self, d_in: int, d_out: int, *, bias: bool, ends_branch: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_out, d_in))
        self.bias = nn.Parameter(torch.empty(d_out)) if bias else None
        self.ends_branch = ends_branch

    def forward(self, x: Float[Tensor, "*rows d_in"]) -> Float[Tensor, "*rows d_out"]:
        """Map the last axis."""
        return linear(x, self.weight, self.bias)


class StackedLinear(nn.Module):
    """Apply several maps of equal shape to one input in one matrix product.

    The weight is ``[n, d_out, d_in]``, so that per-matrix operations see separate maps. All have a
    bias, or none, or those that ``bias`` marks.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "stacked", "bias": "bias"}

    def __init__(self, n: int, d_in: int, d_out: int, *, bias: bool | Sequence[bool]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n, d_out, d_in))
        marks = [bias] * n if isinstance(bias, bool) else bias
        rows = [row for row, is_marked in enumerate(marks) if is_marked]
        self.bias = nn.Parameter(torch.empty(len(rows), d_out)) if rows else None
        self.rows = rows
        """Maps with a bias, in order."""

    def forward(self, x: Float[Tensor, "*rows d_in"]) -> Float[Tensor, "*rows n_d_out"]:
        """Map the last axis, and concatenate the outputs of the maps."""
        matrix = self.weight.flatten(0, 1)  # [n d_out, d_in]
        biases = self.biases()
        return linear(x, matrix, None if biases is None else biases.flatten())

    def biases(self) -> Float[Tensor, "n d_out"] | None:
        """Return the bias of every map, zero where it has none; None if no map has one."""
        n, d_out, _ = self.weight.shape
        if self.bias is None or len(self.rows) == n:
            return self.bias
        places = torch.tensor(self.rows, device=self.bias.device)
        return self.bias.new_zeros(n, d_out).index_copy(0, places, self.bias)

    def part(
        self, start: int, stop: int
    ) -> tuple[Float[Tensor, "d_outs d_in"], Float[Tensor, " d_outs"] | None]:
        """Return the concatenated matrix and bias of maps ``start`` to ``stop``, for other inputs.

        They are differentiable views.
        """
        matrix, biases = self.weight[start:stop].flatten(0, 1), self.biases()
        return matrix, None if biases is None else biases[start:stop].flatten()


class LayerNorm(nn.Module):
    """Subtract the mean and divide by the standard deviation.

    A gain is learned if ``affine``, and with ``bias`` an offset. Source: Ba et al. 2016, eq. 4; the
    variance is biased, and ``eps`` is added to it.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "gain", "bias": "bias"}

    def __init__(self, d_model: int, *, eps: float, affine: bool, bias: bool = True) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model)) if affine else None
        self.bias = nn.Parameter(torch.empty(d_model)) if affine and bias else None
        self.d_model = d_model
        self.eps = eps

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Normalize the last axis."""
        return F.layer_norm(x, (self.d_model,), self.weight, self.bias, self.eps)


class RMSNorm(nn.Module):
    """Divide by the root of the mean square, and learn a gain if ``affine``.

    Source: Zhang & Sennrich 2019, eq. 4; ``eps`` is added to the mean square, which is computed in
    float32 for inputs of half precision.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "gain"}

    def __init__(self, d_model: int, *, eps: float, affine: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_model)) if affine else None
        self.d_model = d_model
        self.eps = eps
        self.compiled: CompiledNorm | None = None

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Normalize the last axis."""
        if not is_eager_cpu(x):
            return F.rms_norm(x, (self.d_model,), self.weight, self.eps)
        if x.dtype in (torch.bfloat16, torch.float16):
            half: Tensor = self.forward(x.float()).to(x.dtype)
            return half
        if not torch.is_grad_enabled():
            # For few rows an autograd function costs as much as its computation; for one row even a
            # scalar operation does.
            if x.dim() == 1:
                mean_square = float(x.dot(x)) / x.shape[0]
                vector = x * math.sqrt(1.0 / (mean_square + self.eps))
                return vector if self.weight is None else vector.mul_(self.weight)
            return _normalise(x, self.weight, self.eps)[0]
        if self.compiled is not None and self.weight is not None and x.dtype == torch.float32:
            return self.compiled(x, self.weight)
        normed: Tensor = _RmsNorm.apply(x, self.weight, self.eps)  # type: ignore[no-untyped-call]
        return normed


def _normalise(x: Tensor, gain: Tensor | None, eps: float) -> tuple[Tensor, Tensor]:
    """Normalize rows, and return their inverse root mean squares, ``[*rows, 1]``."""
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True)  # [*rows, 1]
    # In place, since the following operations are on one column.
    mean_square = norm.square_().div_(x.shape[-1])
    inverse = mean_square.add_(eps).rsqrt_()
    normed = x * inverse
    if gain is not None:
        normed.mul_(gain)
    return normed, inverse


class _RmsNorm(torch.autograd.Function):
    """RMS norm, differentiated by hand.

    On a CPU the native norm is a chain of small operations, and twice as slow.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, gain: Tensor | None, eps: float) -> Tensor:
        normed, inverse = _normalise(x, gain, eps)
        ctx.save_for_backward(x, inverse, gain)
        return normed

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor | None, None]:
        x, inverse, gain = ctx.saved_tensors
        # The result is allocated first, before temporaries, to limit fragmentation.
        grad_x = grad.clone() if gain is None else grad * gain
        grad_gain = None
        normed = x * inverse
        product = grad_x * normed
        projected = product.mean(-1, keepdim=True)
        if gain is not None:
            torch.mul(grad, normed, out=product)
            grad_gain = product.flatten(0, -2).sum(0)
        # d/dx = (g - n * mean(g * n)) / rms, with g the gradient of the normalized n.
        grad_x.addcmul_(normed, projected, value=-1).mul_(inverse)
        return grad_x, grad_gain, None


class DynamicTanh(nn.Module):
    """Compute ``gain * tanh(slope * x) + offset`` with a learned slope; no offset without ``bias``.

    It replaces every norm. Source: Zhu et al. 2025 (2503.10622), and their release, whose language
    models have no offset, and initial slopes that depend on the model's size instead of 0.5.
    """

    roles: ClassVar[Mapping[str, Role]] = {"slope": "gain", "weight": "gain", "bias": "bias"}
    initial: ClassVar[Mapping[str, float]] = {"slope": 0.5}

    def __init__(self, d_model: int, *, bias: bool) -> None:
        super().__init__()
        self.slope = nn.Parameter(torch.empty(1))
        self.weight = nn.Parameter(torch.empty(d_model))
        self.bias = nn.Parameter(torch.empty(d_model)) if bias else None

    def forward(self, x: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows D"]:
        """Squash each feature."""
        squashed = torch.tanh(self.slope * x)
        if self.bias is None:
            return squashed * self.weight
        return torch.addcmul(self.bias, squashed, self.weight)


def build_norm(
    kind: str, d_model: int, *, eps: float, affine: bool, bias: bool = True
) -> nn.Module:
    """Build the norm of a recipe, with unset weights.

    ``none``, the identity, and ``dyt``, a dynamic tanh, use neither ``eps`` nor ``affine``.
    """
    match kind:
        case "layer":
            return LayerNorm(d_model, eps=eps, affine=affine, bias=bias)
        case "rms":
            return RMSNorm(d_model, eps=eps, affine=affine)
        case "dyt":
            return DynamicTanh(d_model, bias=bias)
        case "none":
            return nn.Identity()
    row = NORMS[kind]
    assert row is not None, "our own norms are built above"
    norm: nn.Module = load_class(row.implementation)(d_model, eps=eps, affine=affine)
    return norm


class Matrix(NamedTuple):
    """Embedding matrix of one training pass, after dropout: rows of tokens and positions."""

    tokens: Float[Tensor, "V E"]
    positions: Float[Tensor, "P W"]


class TokenEmbedding(nn.Module):
    """Look up ``scale * table[token]``, and project it if the table is factorized.

    The projection reads the token's vector, or the sum of embeddings. Source of the factorization:
    Lan et al. 2020 (ALBERT), sec. 3.1; the projection of the sum is as released.
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "embedding"}

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(config.vocab_size, config.d_embed))
        scale, width = config.embedding_scale, config.d_embed
        self.scale = {"none": 1.0, "sqrt": width**0.5}[scale] if isinstance(scale, str) else scale
        self.projects_sum = config.embedding_projection == "sum"
        self.projection = None
        if is_factorised(config):
            bias = has_bias(config, "projection")
            self.projection = Linear(config.d_embed, config.d_model, bias=bias)

    def forward(
        self, tokens: Int[Tensor, "B T"], table: Float[Tensor, "V E"] | None = None
    ) -> Float[Tensor, "B T W"]:
        """Embed tokens in the width of the position vectors.

        The width is ``d_model``, or ``d_embed`` if the sum of embeddings is projected. ``table``
        replaces the module's.
        """
        x = F.embedding(tokens, self.weight if table is None else table)  # [B, T, E]
        if self.scale != 1.0:
            x = x * self.scale
        return x if self.projects_sum else self._project(x)

    def project_sum(self, x: Float[Tensor, "B T W"]) -> Float[Tensor, "B T D"]:
        """Project the sum of all embeddings, unless tokens are projected already."""
        return self._project(x) if self.projects_sum else x

    def _project(self, x: Tensor) -> Tensor:
        if self.projection is None:
            return x
        projected: Tensor = self.projection(x)  # [B, T, D]
        # Autocast must not narrow the residual stream.
        return projected.to(self.weight.dtype)


class SegmentTable(nn.Module):
    """Learned vector for each segment of a pair, or only for the second segment.

    In the latter case the first segment's vector is zero (Macaron BERT, as released).
    """

    roles: ClassVar[Mapping[str, Role]] = {"weight": "embedding"}

    def __init__(self, config: ResolvedModel) -> None:
        super().__init__()
        n_rows = 2 if config.segments == "both" else 1
        self.weight = nn.Parameter(torch.empty(n_rows, embedding_width(config)))

    def forward(self, segments: Int[Tensor, "B T"]) -> Float[Tensor, "B T W"]:
        """Look up the vector of each token's segment, 0 or 1."""
        n_rows = self.weight.shape[0]
        if n_rows == 2:
            return F.embedding(segments, self.weight)
        is_second = segments[..., None].to(self.weight.dtype)  # [B, T, 1]
        return is_second * self.weight[0]


Beta = float | Literal["learned"]


class Swish(nn.Module):
    """Compute ``x * sigmoid(beta x)``. Source: Ramachandran et al. 2017 (1710.05941), sec. 4.

    ``beta`` is a number, or a learned parameter, initially 1.
    """

    roles: ClassVar[Mapping[str, Role]] = {"beta": "gain"}

    def __init__(self, beta: Beta) -> None:
        super().__init__()
        self.beta: nn.Parameter | float
        if beta == "learned":
            self.beta = nn.Parameter(torch.empty(()))
        else:
            self.beta = beta

    def forward(self, x: Float[Tensor, "*rows F"]) -> Float[Tensor, "*rows F"]:
        """Apply the activation to each element."""
        return swish(x, self.beta)


def build_activation(name: str, gelu: Literal["exact", "tanh"], swish_beta: Beta) -> Activation:
    """Return an activation by name; ``gelu`` and ``swish_beta`` select its form.

    It acts on elements. An activation with a parameter is a module, whose weight is unset; a
    plugin's is always a module.
    """
    if name == "gelu":
        return tanh_gelu if gelu == "tanh" else partial(F.gelu, approximate="none")
    if name == "swish" and swish_beta != 1.0:
        return Swish(swish_beta)
    function = FUNCTIONS[name]
    return function() if isinstance(function, type) else function
