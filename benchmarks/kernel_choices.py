"""Time the kernels of which the program chooses, at the sizes where it does. See README.md.

python benchmarks/kernel_choices.py               # on one thread, about two minutes
python benchmarks/kernel_choices.py --threads 2
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from sublayer.decode import packed_linear
from sublayer.model.kernels import activation, attention_cpu
from sublayer.model.kernels.activation import tanh_gelu
from sublayer.model.kernels.attention_cpu import attend_blockwise
from sublayer.model.kernels.split_heads import split_heads
from sublayer.system.machine import processor

TURN_S = 0.02
"""Seconds of a turn, at least."""

Work = Callable[[], object]


def compare(works: Mapping[str, Work], rounds: int) -> dict[str, float]:
    """Return the median seconds of each piece of work; all have a turn in every round."""
    counts = {}
    for name, work in works.items():
        work()
        counts[name] = max(1, round(TURN_S / _seconds(work, 1)))
    found: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            found[name].append(_seconds(work, counts[name]))
    return {name: statistics.median(seconds) for name, seconds in found.items()}


def _seconds(work: Work, count: int) -> float:
    begun = time.perf_counter()
    for _ in range(count):
        work()
    return (time.perf_counter() - begun) / count


@contextmanager
def having(module: Any, name: str, value: int) -> Iterator[None]:
    """Set a constant of a module, by which it chooses, for a while."""
    kept = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, kept)


def gelus(n: int) -> dict[str, Work]:
    """GELU of ``n`` numbers without a gradient: four passes, and the native kernel."""
    x = torch.randn(n)

    def passes() -> None:
        with having(activation, "_MANY", 0):
            tanh_gelu(x)

    return {"passes": passes, "native": lambda: F.gelu(x, approximate="tanh")}


def products(width: int, n_rows: int) -> dict[str, Work]:
    """Products of a few rows with a square matrix: transposed for MKL, and packed by oneDNN."""
    matrix, x = torch.randn(width, width), torch.randn(n_rows, width)
    with having(packed_linear, "_FEW_ROWS", n_rows):
        transposed = packed_linear.pack_linear(matrix, None, n_rows)
    with having(packed_linear, "_FEW_ROWS", 0):
        packed = packed_linear.pack_linear(matrix, None, n_rows)
    return {"transposed": lambda: transposed(x), "packed": lambda: packed(x)}


def attentions(n_tokens: int) -> dict[str, Work]:
    """Causal attention of 4 heads of 64, 2,048 tokens, forward and backward.

    By sequence, together, flash.
    """
    projected = torch.randn(2048 // n_tokens, n_tokens, 3 * 256, requires_grad=True)

    def own(grain: int) -> None:
        with having(attention_cpu, "GRAIN", grain):
            q, k, v = split_heads(projected, 4)
            mixed: Tensor = attend_blockwise(
                q, k, v, is_causal=True, mask=None, scale=0.125, p_dropout=0.0
            )
            mixed.sum().backward()  # type: ignore[no-untyped-call]

    def flash() -> None:
        q, k, v = projected.view(*projected.shape[:2], 3, 4, 64).permute(2, 0, 3, 1, 4).unbind()
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.autograd.backward(mixed.sum())

    return {"by sequence": lambda: own(0), "together": lambda: own(1 << 40), "flash": flash}


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Time the kernels that the program chooses between."
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    capability = torch.backends.cpu.get_cpu_capability()
    print(
        f"{processor()}, {capability}, {asked.threads} thread(s), float32, "
        f"medians of {asked.rounds} rounds: us"
    )
    cases = [
        *((f"GELU of {n:,} numbers", gelus(n)) for n in (1 << 10, 1 << 12, 1 << 14, 1 << 17)),
        *(
            (f"{rows} rows, width {width}", products(width, rows))
            for width in (192, 512)
            for rows in (2, 16, 64, 160)
        ),
        *((f"attention, T {n}", attentions(n)) for n in (64, 128, 256, 512, 1024)),
    ]
    for name, works in cases:
        seconds = compare(works, asked.rounds)
        first = next(iter(seconds.values()))
        told = (
            f"{each} {1e6 * taken:,.1f} ({taken / first:.2f})" for each, taken in seconds.items()
        )
        print(f"{name}: {'; '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
