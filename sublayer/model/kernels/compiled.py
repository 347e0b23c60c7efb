"""Kernels compiled by inductor: one pass over memory, where PyTorch's operators take several.

A kernel is compiled once per process, for any sizes and any number of threads, and computes in
float32. It is called without the guards of ``torch.compile``, by any thread.
"""

import math
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
Turn = Callable[[Tensor, Tensor, Tensor, int], Tensor]
CompiledNorm = Callable[[Tensor, Tensor], Tensor]


def find_compiler() -> str | None:
    """Return the path of the C++ compiler: of ``CXX``, g++ or clang++; None without one."""
    names = [os.environ.get("CXX", ""), "g++", "clang++"]
    return next(filter(None, map(shutil.which, names)), None)


@cache
def compiled_activation(
    activation: Activation, dtype: torch.dtype, is_gated: bool
) -> Activation | None:
    """Return a compiled function of hidden units of ``dtype`` on a CPU; None without a kernel.

    The tanh GELU has kernels, and SiLU if gated. Gated, the function maps gate and factor,
    concatenated ``[*rows, 2 F]``, to ``[*rows, F]``. Differentiable once. Raises ConfigError if
    compilation fails.
    """
    of = _VALUES_AND_SLOPES.get(activation)
    if of is None or (activation is F.silu and not is_gated):
        return None
    rows = _example(dtype, 64, 1024)
    if is_gated:
        hidden = _example(dtype, 64, 2048)
        forward = _compile(partial(_gated, of), [hidden])
        backward = _compile(partial(_gradient, of), [hidden, rows])
    else:
        forward, backward = _compile(partial(_plain, of), [rows]), _scaled
    return lambda hidden: _Computed.apply(forward, backward, hidden)  # type: ignore[no-untyped-call]


@cache
def compiled_rms_norm(eps: float) -> CompiledNorm:
    """Return a compiled function of float32 vectors ``[*rows, D]`` on a CPU and gains ``[D]``.

    Differentiable once. Raises ConfigError if compilation fails. Source: as ``layers.RMSNorm``.
    """
    shapes = (64, 1024), (1024,), (64, 1), (64, 1024)
    x, gain, inverse, grad = (_example(torch.float32, *shape) for shape in shapes)
    forward = _compile(partial(_normalise, eps), [x, gain])
    backward = _compile(_norm_gradient, [x, gain, inverse, grad])
    return lambda x, gain: _Computed.apply(forward, backward, x, gain)  # type: ignore[no-untyped-call]


@cache
def compiled_turn(dtype: torch.dtype, d_head: int) -> Turn:
    """Return a compiled rotation of heads of ``dtype`` on a CPU.

    It takes ``[B, H, T, K]``, float32 cosines and sines ``[T, K]`` as ``context.Rotation`` has
    them, and the sign of the angles. Raises ConfigError if compilation fails.
    """
    # Odd sizes and even strides, all different, so that each becomes a variable of its own.
    x = _example(dtype, 3, 6, 8, d_head + 2)[:, :5, :7, :d_head]
    cos, sin = _example(torch.float32, 5, d_head), _example(torch.float32, 5, d_head)
    kernel = _compile(_turn, [x, cos, sin])

    def turn(x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
        by_token = (x if x.stride(-1) == 1 else x.contiguous()).transpose(1, 2)  # [B, T, H, K]
        return kernel(by_token, cos, sin if sign == 1 else -sin)[0].transpose(1, 2)

    return turn


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


def _normalise(eps: float, x: Tensor, gain: Tensor) -> list[Tensor]:
    # Were it not returned, inductor would compute the inverse once per number.
    inverse = x.square().mean(-1, keepdim=True).add(eps).rsqrt()  # [R, 1]
    return [x * inverse * gain, inverse]


def _norm_gradient(x: Tensor, gain: Tensor, inverse: Tensor, grad: Tensor) -> list[Tensor]:
    normed, scaled = x * inverse, grad * gain
    projected = (scaled * normed).mean(-1, keepdim=True)
    return [(scaled - normed * projected) * inverse, grad * normed]


def _turn(x: Tensor, cos: Tensor, sin: Tensor) -> list[Tensor]:
    half = int(x.shape[-1]) // 2  # a constant, which the compiler splits without masks
    first, second = x.float().chunk(2, dim=-1)
    cos, sin = cos[:, None, :half], sin[:, None, half:]  # [T, 1, K/2]
    halves = (first * cos - second * sin, second * cos + first * sin)
    return [torch.cat([part.to(x.dtype) for part in halves], dim=-1)]


_VECTOR_BITS = {"AVX512": 512, "AVX2": 256}


def _example(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.linspace(-8, 8, math.prod(shape)).to(dtype).view(shape)


def _compile(operators: Kernel, examples: list[Any]) -> Kernel:
    # The compiler is slow to import, and few runs need it.
    from torch._inductor import standalone_compile
    from torch.fx.experimental.proxy_tensor import make_fx

    settings = {
        "compile_threads": 1,  # without a pool of processes
        "cpp.cxx": (None, find_compiler()),
        "cpp.dynamic_threads": True,
        "cpp.enable_floating_point_contract_flag": "fast",  # as in PyTorch's own kernels
        # Named, since the cache of compiled code does not tell instruction sets apart.
        "cpp.simdlen": _VECTOR_BITS.get(torch.backends.cpu.get_cpu_capability()),
    }
    options = {"config_patches": settings}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the compiler's own modules
            graph = make_fx(operators, tracing_mode="symbolic")(*examples)  # of any sizes
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


class _Computed(torch.autograd.Function):
    """Function of rows, and of a gain if any, whose gradient PyTorch sums, faster than inductor.

    It saves its arguments and what its kernel returns beside the value; of GELU the slope alone.
    """

    @staticmethod
    def forward(ctx: Any, forward: Kernel, backward: Kernel, x: Tensor, *gain: Tensor) -> Tensor:
        rows = x.reshape(-1, x.shape[-1]).contiguous()
        value, *saved = forward(rows, *gain)
        arguments = [] if backward is _scaled else [rows, *gain]
        ctx.save_for_backward(*arguments, *saved)
        ctx.kernel = backward
        return value.view(*x.shape[:-1], value.shape[-1])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        rows = grad.reshape(-1, grad.shape[-1]).contiguous()
        gradient, *parts = ctx.kernel(*ctx.saved_tensors, rows)
        gradient = gradient.view(*grad.shape[:-1], gradient.shape[-1])
        return None, None, gradient, *(part.sum(0) for part in parts)
