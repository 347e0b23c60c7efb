"""Which precision of matrix products is faster here: asked of the processor, then tried within a fifth of a second."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear

from sublayer.machine import wait_for
from sublayer.measured import keep, recall

_GAIN = 1.1
"""How much faster bfloat16 must be to be chosen."""
_HOPELESS = 0.2
"""More than a small product in bfloat16 gains where it is emulated (a twentieth), less than where it is not (0.4)."""
_LIMIT_S = 0.15
_SIZES = (16, 32, 64, 128)
"""Widths of the square products that compare precisions; each has eight times the operations of the one before."""
_LARGER_SIZES = (256, 512, 1024)
_REPEATS = 3
_QUICK_S = 0.01
_WIDEST = 512
_OUTPUTS = 1 << 16
"""Rows times width of what a layer is tried on: the smaller it is, the sooner a slow processor is done."""


@dataclass(frozen=True)
class Clocks:
    """What measures and what limits: the processor's time of this thread, beside other programs, and everybody's."""

    used: Callable[[], float]
    passed: Callable[[], float] = time.perf_counter


def own_clocks() -> Clocks:
    """Return this thread's clock where the system's is fine enough, else everybody's."""
    is_fine = hasattr(time, "thread_time") and time.get_clock_info("thread_time").resolution < 1e-4
    return Clocks(time.thread_time if is_fine else time.perf_counter)


def fastest_precision(
    device: torch.device, d_model: int, clocks: Clocks | None = None
) -> Literal["float32", "bfloat16"]:
    """Return the precision that multiplies faster at about this width, the casts included; measured once on a CPU."""
    if device.type == "cuda":
        return "bfloat16" if torch.cuda.is_bf16_supported() else "float32"
    if device.type != "cpu":
        return "float32"
    width = min(_WIDEST, max(32, 1 << (d_model - 1).bit_length()))
    key = f"what bfloat16 gains at width {width}"
    kept = recall(key, 1) or keep(key, [bfloat16_gain(width, clocks or own_clocks())])
    return "bfloat16" if kept.values[0] >= _GAIN else "float32"


def bfloat16_gain(width: int, clocks: Clocks) -> float:
    """Measure how many times as fast as in float32 a layer of this width is in bfloat16; 0 where that is hopeless.

    One thread measures: what it gains the others do, and it waits for none of them beside other programs.
    """
    ends = clocks.passed() + _LIMIT_S
    with _one_thread():
        product = _product_gain(clocks, ends)
        if product < (_HOPELESS if has_bfloat16_units() else 1.0):
            return 0.0
        return round(_layer_gain(width, clocks, ends), 2)


def has_bfloat16_units() -> bool:
    """Return what oneDNN, which computes products in bfloat16, says of this processor within the limits set for it."""
    is_supported = getattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", None)
    return bool(is_supported is not None and is_supported())


def product_speed(device: torch.device, precision: str, threads: int, clocks: Clocks | None = None) -> float:
    """Measure the operations a second of matrix products in a precision; they grow while they are quick.

    On a CPU one thread is measured, and the others taken to be as fast.
    """
    dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
    if device.type == "cpu":
        with _one_thread():
            return threads * _product_speed(device, dtype, clocks or own_clocks())
    return _product_speed(device, dtype, clocks or Clocks(time.perf_counter))


def _product_speed(device: torch.device, dtype: torch.dtype, clocks: Clocks) -> float:
    ends, speed = clocks.passed() + _LIMIT_S, 0.0
    for width in (*_SIZES, *_LARGER_SIZES):
        a, b = (torch.ones(width, width, device=device, dtype=dtype) for _ in range(2))
        seconds = _fastest(partial(_multiply, a, b), clocks.used)
        speed = max(speed, 2 * width**3 / seconds)
        if clocks.passed() + 8 * _REPEATS * seconds > ends:
            break
    return speed


def _product_gain(clocks: Clocks, ends: float) -> float:
    generator = torch.Generator().manual_seed(0)
    gain = 1.0
    for width in _SIZES:
        a, b = (torch.randn(width, width, generator=generator) for _ in range(2))
        slow = _fastest(partial(torch.mm, a, b), clocks.used)
        fast = _fastest(partial(torch.mm, a.bfloat16(), b.bfloat16()), clocks.used)
        gain = slow / fast
        if clocks.passed() + 8 * _REPEATS * (slow + fast) > ends:
            break
    return gain


def _layer_gain(width: int, clocks: Clocks, ends: float) -> float:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(_OUTPUTS // width, width, generator=generator)
    weight = torch.randn(4 * width, width, generator=generator, requires_grad=True)

    def forward_and_backward(*, is_low: bool) -> float:
        begun = clocks.used()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=is_low):
            gelu(linear(x, weight)).float().sum().backward()  # type: ignore[no-untyped-call]
        return max(clocks.used() - begun, 1e-9)

    slow: list[float] = []
    fast: list[float] = []
    # The first round also allocates; the fastest is taken, of at least two where there is time.
    while not slow or clocks.passed() + slow[-1] + fast[-1] < ends:
        slow.append(forward_and_backward(is_low=False))
        fast.append(forward_and_backward(is_low=True))
    return min(slow) / min(fast)


def _multiply(a: Tensor, b: Tensor) -> None:
    torch.mm(a, b)
    wait_for(a.device)


def _fastest(work: Callable[[], object], clock: Callable[[], float]) -> float:
    fastest = float("inf")
    for _ in range(_REPEATS):
        begun = clock()
        work()
        fastest = min(fastest, max(clock() - begun, 1e-9))
        if fastest > _QUICK_S:
            break
    return fastest


@contextmanager
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
