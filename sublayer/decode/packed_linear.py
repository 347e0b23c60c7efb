"""Products of a few vectors with constant weights, stored in the fastest layout.

Generation is bound by reading weights. On a CPU a product with one float32 vector is faster from a
transposed matrix than by ``F.linear``, on Intel's processors also with a few; in all other cases,
many vectors and bfloat16 included, weights packed by oneDNN are faster. Both copy the weights.
Total gain: ``benchmarks/generate_speed.py``.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.model.blocks import FeedForward, Sublayer
from sublayer.model.layers import Linear, StackedLinear
from sublayer.model.transformer import Transformer
from sublayer.system.machine import processor

# On Intel's processors up to so many rows are faster than with packed weights, with and without
# avx512; more rows are not always: benchmarks/kernel_choices.py.
_FEW_ROWS = 64

PackedLinear = Callable[[Tensor], Tensor]


def takes_vectors(weight: Tensor, n_rows: int) -> bool:
    """Check whether a product takes one row as a vector ``[D]``, not as a matrix of one row.

    True on a CPU in float32 and float64, where a matrix-vector product is faster.
    """
    return (
        n_rows == 1
        and weight.device.type == "cpu"
        and weight.dtype in (torch.float32, torch.float64)
    )


def pack_linear(
    matrix: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None, n_rows: int
) -> PackedLinear:
    """Build the function ``x -> matrix x + bias`` of ``n_rows`` rows ``[B, D]``.

    Where ``takes_vectors``, the one row is a vector ``[D]``; else ``n_rows`` only chooses the
    layout, and any number of rows works. It holds the matrix or a copy, without gradients.
    """
    matrix = matrix.detach()
    bias = None if bias is None else bias.detach()
    if takes_vectors(matrix, n_rows):
        return _by_vector(matrix, bias)
    if n_rows <= _FEW_ROWS and _has_fast_blas(matrix):
        return transposed(matrix, bias)
    if _packs(matrix):
        return packed(matrix, bias, n_rows)
    return lambda x: F.linear(x, matrix, bias)


def transposed(matrix: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None) -> PackedLinear:
    """Build the map from a transposed copy, multiplied by MKL."""
    columns = matrix.t().contiguous()
    if bias is None:
        return lambda x: torch.mm(x, columns)
    return lambda x: torch.mm(x, columns).add_(bias)


def packed(
    matrix: Float[Tensor, "N D"], bias: Float[Tensor, " N"] | None, n_rows: int
) -> PackedLinear:
    """Build the map from a copy that oneDNN packs for ``n_rows``."""
    ordered = torch.ops.mkldnn._reorder_linear_weight(matrix.contiguous(), n_rows)
    apply = torch.ops.mkldnn._linear_pointwise
    return lambda x: apply(x, ordered, bias, "none", [], "")


def _by_vector(matrix: Tensor, bias: Tensor | None) -> PackedLinear:
    n_outputs, n_inputs = matrix.shape
    # Longer contiguous runs, of rows or columns, are read faster.
    ordered = matrix.contiguous() if n_inputs > n_outputs else matrix.t().contiguous().t()
    if bias is None:
        return lambda x: torch.mv(ordered, x)
    return lambda x: torch.addmv(bias, ordered, x)


def _has_fast_blas(matrix: Tensor) -> bool:
    """Check whether MKL multiplies, on an Intel processor.

    On others oneDNN is faster: benchmarks/kernel_choices.py.
    """
    has_mkl: bool = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    is_on_cpu = matrix.device.type == "cpu"
    return has_mkl and is_on_cpu and matrix.dtype == torch.float32 and "Intel" in processor()


def _packs(matrix: Tensor) -> bool:
    """Check whether oneDNN has packed products for a matrix."""
    has_mkldnn: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    if matrix.device.type != "cpu" or not has_mkldnn:
        return False
    # PyTorch's compiler uses the same names.
    names = ("_reorder_linear_weight", "_linear_pointwise")
    has_operations = all(hasattr(torch.ops.mkldnn, name) for name in names)
    if matrix.dtype == torch.bfloat16:
        return has_operations and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    return has_operations and matrix.dtype == torch.float32


Branch = Callable[..., Tensor]
"""A sub-layer's function: of the rows, and of further arguments of its kind."""


def residual(sublayer: Sublayer, branch: Branch) -> Branch:
    """Build a residual sub-layer from its branch, with its norm and its step size.

    Further arguments go to the branch. There is no dropout.
    """
    # The method, not the module: a module's call looks for hooks, which costs every step.
    norm = sublayer.norm.forward
    step_size = sublayer.step_size
    if sublayer.is_pre_norm:
        return lambda x, *rest: torch.add(x, branch(norm(x), *rest), alpha=step_size)
    return lambda x, *rest: norm(torch.add(x, branch(x, *rest), alpha=step_size))


def feed_forward(ffn: nn.Module, n_rows: int) -> Branch:
    """Unroll a feed-forward network, for ``n_rows`` rows at a time; without dropout.

    Another function of each token by itself is called as it is.
    """
    if not isinstance(ffn, FeedForward):
        return lambda x, *_: ffn(x.view(-1, 1, x.shape[-1]), None).view(x.shape)
    up = linear(ffn.input, n_rows)
    down = linear(ffn.output, n_rows)
    activation = ffn.activation

    def plain(x: Tensor, *_: Any) -> Tensor:
        return down(activation(up(x)))

    def gated(x: Tensor, *_: Any) -> Tensor:
        gate, value = up(x).chunk(2, dim=-1)
        return down(activation(gate) * value)

    return gated if ffn.is_gated else plain


def linear(module: Linear | StackedLinear, n_rows: int) -> PackedLinear:
    """Unroll a linear map, or stacked ones with concatenated outputs."""
    matrix = module.weight.flatten(0, -2)  # stacked maps one below another
    bias = None if module.bias is None else module.bias.flatten()
    return pack_linear(matrix, bias, n_rows)


def unrolled_head(model: Transformer, n_rows: int) -> PackedLinear:
    """Unroll the head that predicts tokens: logits ``[R, V]`` of final hidden states.

    One row may be a vector, where ``takes_vectors``.
    """
    matrix, bias = model.vocabulary_head.output(model.embedding.weight)
    output = pack_linear(matrix, bias, n_rows)
    head = model.vocabulary_head
    project = None if head.projection is None else linear(head.projection, n_rows)

    def logits(x: Tensor) -> Tensor:
        scores = output(head.finish(x if project is None else project(x)))
        return scores[None] if scores.dim() == 1 else scores

    return logits
