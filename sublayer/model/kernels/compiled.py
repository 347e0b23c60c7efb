"""Activations compiled by inductor: one pass over memory, where PyTorch's operators take several.

A kernel is compiled once per process, for matrices of any size and any number of threads, and
computes in float32. It is called without the guards of ``torch.compile``, by any thread.
"""

import os
import shutil
import warnings
from collections.abc import Callable
from functools import cache, partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sublayer.errors import ConfigError
from sublayer.model.kernels.elementwise import CUBIC, LINEAR, Activation, tanh_gelu

ValueAndSlope = Callable[[Tensor], tuple[Tensor, Tensor]]
Kernel = Callable[..., list[Tensor]]


def find_compiler() -> str | None:
    """Return the path of the C++ compiler: of ``CXX``, g++ or clang++; None without one."""
    names = [os.environ.get("CXX", ""), "g++", "clang++"]
    return next(filter(None, map(shutil.which, names)), None)


def compiled_activation(
    activation: Activation, dtype: torch.dtype, is_gated: bool = False
) -> Activation | None:
    """Return a compiled function of hidden units of ``dtype`` on a CPU; None without a kernel.

    The tanh GELU has kernels, and SiLU if gated. Gated, the function maps gate and factor,
    concatenated ``[*rows, 2 F]``, to ``[*rows, F]``. Differentiable once. Raises ConfigError if
    compilation fails.
    """
    of = _VALUES_AND_SLOPES.get(activation)
    if of is None or (activation is F.silu and not is_gated):
        return None
    if is_gated:
        forward, backward = _compiled(_gated, of, dtype, 2), _compiled(_gradient, of, dtype, 2, 1)
    else:
        forward, backward = _compiled(_plain, of, dtype, 1), _scaled
    return lambda hidden: _Activated.apply(hidden, forward, backward)  # type: ignore[no-untyped-call]


def _gelu(x: Tensor) -> tuple[Tensor, Tensor]:
    # In the order of elementwise.py.
    gate = torch.sigmoid((LINEAR + CUBIC * x * x) * x)
    value = x * gate
    return value, gate + (value - value * gate) * (LINEAR + 3 * CUBIC * x * x)


def _silu(x: Tensor) -> tuple[Tensor, Tensor]:
    gate = torch.sigmoid(x)
    value = x * gate
    return value, gate + (value - value * gate)


_VALUES_AND_SLOPES: dict[Activation, ValueAndSlope] = {tanh_gelu: _gelu, F.silu: _silu}


def _plain(of: ValueAndSlope, x: Tensor) -> list[Tensor]:
    return [result.to(x.dtype) for result in of(x.float())]


def _scaled(slope: Tensor, grad: Tensor) -> list[Tensor]:
    return [grad * slope]


def _gated(of: ValueAndSlope, hidden: Tensor) -> list[Tensor]:
    gate, factor = hidden.float().chunk(2, dim=-1)
    return [(of(gate)[0] * factor).to(hidden.dtype)]


def _gradient(of: ValueAndSlope, hidden: Tensor, grad: Tensor) -> list[Tensor]:
    gate, factor = hidden.float().chunk(2, dim=-1)
    value, slope = of(gate)
    halves = (grad.float() * factor * slope, grad.float() * value)
    return [torch.cat([half.to(hidden.dtype) for half in halves], dim=-1)]


_VECTOR_BITS = {"AVX512": 512, "AVX2": 256}


@cache
def _compiled(
    function: Callable[..., list[Tensor]], of: ValueAndSlope, dtype: torch.dtype, *widths: int
) -> Kernel:
    # The compiler is slow to import, and few runs need it.
    from torch._inductor import standalone_compile
    from torch.fx.experimental.proxy_tensor import make_fx

    # The sizes become variables.
    examples: list[Any] = [
        torch.linspace(-8, 8, 65536 * n).to(dtype).view(64, 1024 * n) for n in widths
    ]
    settings = {
        "compile_threads": 1,  # without a pool of processes
        "cpp.cxx": (None, find_compiler()),
        "cpp.dynamic_threads": True,
        "cpp.enable_floating_point_contract_flag": "fast",  # as in PyTorch's own kernels
        # Named, since the cache of compiled code does not tell instruction sets apart.
        "cpp.simdlen": _VECTOR_BITS.get(torch.backends.cpu.get_cpu_capability()),
    }
    operators = partial(function, of)
    options = {"config_patches": settings}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler's own modules
            graph = make_fx(operators, tracing_mode="symbolic")(*examples)
            kernel: Kernel = standalone_compile(graph, examples, options=options)
        for result, expected in zip(kernel(*examples), operators(*examples), strict=True):
            if not torch.allclose(result, expected, rtol=0.02, atol=0.02):  # bfloat16's rounding
                raise RuntimeError("a kernel computes other numbers than PyTorch's operators")
    except RuntimeError as error:
        fault = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"train.kernels = compiled fails with {find_compiler()}, {fault}: install g++, or name "
            "another compiler in the variable CXX"
        ) from None
    return kernel


class _Activated(torch.autograd.Function):
    """Activation that saves what its kernel returns beside the value, or else its argument."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, forward: Kernel, backward: Kernel) -> Tensor:
        rows = hidden.reshape(-1, hidden.shape[-1]).contiguous()
        value, *saved = forward(rows)
        ctx.save_for_backward(*(saved or [rows]))
        ctx.kernel = backward
        return value.view(*hidden.shape[:-1], value.shape[-1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        rows = grad.reshape(-1, grad.shape[-1]).contiguous()
        (gradient,) = ctx.kernel(*ctx.saved_tensors, rows)
        return gradient.view(*grad.shape[:-1], gradient.shape[-1]), None, None
