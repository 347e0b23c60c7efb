"""Time the kernels of which the program chooses, at the sizes where it does. See README.md.

python benchmarks/kernel_choices.py               # on one thread, about two minutes
python benchmarks/kernel_choices.py --threads 2
python benchmarks/kernel_choices.py --only LSTM    # the cases whose name has it
"""

import argparse
import itertools
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

import torch
import torch.nn.functional as F
from torch import Tensor

from sublayer.config.model import Entry, ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.config.stacks import AttentionForm
from sublayer.decode import step
from sublayer.model import blocks
from sublayer.model.context import Context, Layout, rotation
from sublayer.model.kernels import attention, elementwise
from sublayer.model.kernels import products as weight_products
from sublayer.model.kernels.attention import attend_blockwise, split_heads
from sublayer.model.kernels.compiled import (
    compiled_activation,
    compiled_rms_norm,
    compiled_turn,
    find_compiler,
)
from sublayer.model.kernels.elementwise import tanh_gelu
from sublayer.model.kernels.products import linear
from sublayer.model.layers import RMSNorm
from sublayer.system.machine import processor

TURN_S = 0.02
"""Seconds of a turn, at least."""

OUT_OF_CACHE = 64 << 20
"""Bytes of matrices that no cache of a core holds, read one after another as a model's are."""

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
def having(module: Any, name: str, value: float) -> Iterator[None]:
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
        with having(elementwise, "_MANY", 0):
            tanh_gelu(x)

    return {"passes": passes, "native": lambda: F.gelu(x, approximate="tanh")}


def activations(name: str, width: int, dtype: torch.dtype) -> dict[str, Work]:
    """Hidden units of 1,024 tokens, forward and backward: by PyTorch's operators, and compiled."""
    activation: elementwise.Activation = F.silu if name == "swiglu" else tanh_gelu
    is_gated = name != "gelu"
    hidden = torch.randn(1024, (1 + is_gated) * width, dtype=dtype, requires_grad=True)
    grad = torch.randn(1024, width, dtype=dtype)

    def eager(x: Tensor) -> Tensor:
        if not is_gated:
            return activation(x)
        gate, factor = x.chunk(2, dim=-1)
        return activation(gate) * factor

    compiled = compiled_activation(activation, dtype, is_gated)
    assert compiled is not None, "all three have kernels"

    return {
        "operators": lambda: torch.autograd.grad(eager(hidden), hidden, grad),
        "compiled": lambda: torch.autograd.grad(compiled(hidden), hidden, grad),
    }


def norms(n_rows: int, width: int) -> dict[str, Work]:
    """RMS norm, forward and backward: by PyTorch's operators, and compiled."""
    x = torch.randn(n_rows, width, requires_grad=True)
    grad = torch.randn(n_rows, width)
    own, compiled = (RMSNorm(width, eps=1e-6, affine=True) for _ in range(2))
    compiled.compiled = compiled_rms_norm(1e-6)
    for norm in (own, compiled):
        torch.nn.init.ones_(norm.weight)  # type: ignore[arg-type]

    def passes(norm: RMSNorm) -> Work:
        return lambda: torch.autograd.grad(norm(x), (x, *norm.parameters()), grad)

    return {"operators": passes(own), "compiled": passes(compiled)}


def rotations(d_head: int, dtype: torch.dtype) -> dict[str, Work]:
    """Rotation of 4 heads in 1,024 tokens, both ways: by PyTorch's operators, and compiled."""
    turn = rotation(torch.arange(256), d_head=d_head, base=1e4, dtype=torch.float32)
    projected = torch.randn(4, 256, 3 * 4 * d_head, dtype=dtype)
    heads = split_heads(projected, 4)[0].detach().requires_grad_()
    grad = torch.randn(4, 256, 4, d_head, dtype=dtype).transpose(1, 2)
    compiled = replace(turn, compiled=compiled_turn(dtype, d_head))
    return {
        "operators": lambda: torch.autograd.grad(turn(heads), heads, grad),
        "compiled": lambda: torch.autograd.grad(compiled(heads), heads, grad),
    }


def products(shape: tuple[int, int], n_rows: int, n_bytes: int) -> dict[str, Work]:
    """Products of a few rows with matrices of one shape, one after another, ``n_bytes`` in all.

    Transposed for MKL, and packed by oneDNN; of one row, also as a vector, as one row is taken.
    """
    matrices = [torch.randn(shape) for _ in range(max(1, n_bytes // (4 * shape[0] * shape[1])))]
    x = torch.randn(n_rows, shape[1])
    works: dict[str, Work] = {}
    if n_rows == 1:
        vectors = [step.pack_linear(matrix, None, 1) for matrix in matrices]
        works["vector"] = _in_turn(vectors, x[0])
    transposed = [step.transposed(matrix, None) for matrix in matrices]
    packed = [step.packed(matrix, None, n_rows) for matrix in matrices]
    return {**works, "transposed": _in_turn(transposed, x), "packed": _in_turn(packed, x)}


def trained_map(n_rows: int, d_in: int, d_out: int) -> dict[str, Work]:
    """A linear map of many rows, forward and backward: by oneDNN, and as PyTorch has it."""
    x = torch.randn(n_rows, d_in, requires_grad=True)
    weight = torch.randn(d_out, d_in, requires_grad=True)
    bias = torch.randn(d_out, requires_grad=True)
    grad = torch.randn(n_rows, d_out)

    patch.object(weight_products, "_prefers_onednn", lambda: True).start()  # on Intel's, too

    def work(linear: Callable[[Tensor, Tensor, Tensor], Tensor]) -> Work:
        return lambda: torch.autograd.grad(linear(x, weight, bias), (x, weight, bias), grad)

    return {"oneDNN": work(linear), "PyTorch": work(F.linear)}


def _in_turn(maps: list[step.PackedLinear], x: Tensor) -> Work:
    every = itertools.cycle(maps)
    return lambda: next(every)(x)


def attentions(n_tokens: int, d_head: int) -> dict[str, Work]:
    """Causal attention of 4 heads, 2,048 tokens, forward and backward.

    By sequence, together, flash.
    """
    projected = torch.randn(2048 // n_tokens, n_tokens, 3 * 4 * d_head, requires_grad=True)

    def own(grain: int) -> None:
        with having(attention, "GRAIN", grain):
            q, k, v = split_heads(projected, 4)
            mixed: Tensor = attend_blockwise(
                q, k, v, is_causal=True, mask=None, scale=d_head**-0.5, p_dropout=0.0
            )
            mixed.sum().backward()  # type: ignore[no-untyped-call]

    def flash() -> None:
        by_head = projected.view(*projected.shape[:2], 3, 4, d_head)
        q, k, v = by_head.permute(2, 0, 3, 1, 4).unbind()
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        torch.autograd.backward(mixed.sum())

    return {"by sequence": lambda: own(0), "together": lambda: own(1 << 40), "flash": flash}


def windows(d_model: int) -> dict[str, Work]:
    """A causal self-attention with heads of 64 over 4,096 tokens, with its maps, both ways.

    Of all keys, and in a window of 512.
    """
    config = resolve_model(
        ModelConfig(n_layers=1, d_model=d_model, d_head=64, n_heads=d_model // 64),
        vocab_size=2,
        context=4096,
    )
    layer = blocks.Attention(config, Entry("attention", None, 1.0))
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.1)
    x = torch.randn(1, 4096, d_model, requires_grad=True)
    layout = Layout.causal(torch.zeros(1, 4096, dtype=torch.long))

    def work(window: int | None) -> Work:
        context = Context(layout.within(AttentionForm(window)), None)
        return lambda: layer(x, context).sum().backward()

    return {"all keys": work(None), "window": work(512)}


def recurrences(n_units: int, real_share: float) -> dict[str, Work]:
    """A layer of an LSTM over 32 rows of up to 40 tokens with padding behind, both ways.

    Rows as wholes, and the real tokens alone, packed; forward and backward.
    """
    config = resolve_model(
        ModelConfig(kind="lstm", n_layers=1, d_model=n_units), vocab_size=2, context=40
    )
    layer = blocks.LstmLayer(config)
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.1)
    x = torch.randn(32, 40, n_units, requires_grad=True)
    # Evenly spread about that share; one row is as long as all.
    spread = min(real_share, 1 - real_share)
    lengths = torch.linspace(real_share - spread, real_share + spread, 32).mul(40).ceil()
    lengths[-1] = 40
    mask = torch.arange(40) < lengths[:, None]
    layout = Layout.causal(mask.long(), mask)

    def read(worth_packing: float) -> None:
        with having(blocks, "_WORTH_PACKING", worth_packing):
            layer(x, Context(layout, None)).sum().backward()

    return {"whole": lambda: read(0.0), "packed": lambda: read(2.0)}


def main() -> None:
    parser = argparse.ArgumentParser(
        description="Time the kernels that the program chooses between."
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--only", default="", help="part of the names of the cases to time")
    asked = parser.parse_args()
    torch.set_num_threads(asked.threads)
    torch.manual_seed(0)
    capability = torch.backends.cpu.get_cpu_capability()
    print(
        f"{processor()}, {capability}, {asked.threads} thread(s), float32 unless named, "
        f"medians of {asked.rounds} rounds: us"
    )
    cases = [
        *((f"GELU of {n:,} numbers", gelus(n)) for n in (1 << 10, 1 << 12, 1 << 14, 1 << 17)),
        *(
            (
                f"{name} of 1,024 x {width:,} in {str(dtype).removeprefix('torch.')}",
                activations(name, width, dtype),
            )
            for dtype in (torch.bfloat16, torch.float32)
            for name in ("gelu", "geglu", "swiglu")
            for width in (1024, 2048)
            if find_compiler() is not None
        ),
        *(
            (f"RMS norm of {n_rows:,} x {width}", norms(n_rows, width))
            for n_rows, width in ((1024, 256), (1024, 512), (2048, 512))
            if find_compiler() is not None
        ),
        *(
            (
                f"rotation of heads of {d_head} in {str(dtype).removeprefix('torch.')}",
                rotations(d_head, dtype),
            )
            for dtype in (torch.bfloat16, torch.float32)
            for d_head in (48, 64)
            if find_compiler() is not None
        ),
        *(
            (f"{rows} rows, width {width}", products((width, width), rows, 0))
            for width in (192, 512)
            for rows in (2, 16, 64, 160)
        ),
        *(
            (f"{rows} rows, {n} x {d}, out of cache", products((n, d), rows, OUT_OF_CACHE))
            for n, d in ((256, 256), (1024, 256), (256, 1024), (2048, 512), (8000, 256))
            for rows in (1, 4, 16, 64)
        ),
        *(
            (f"linear map of {n_rows:,} rows, {d_in} to {d_out}", trained_map(n_rows, d_in, d_out))
            for n_rows in (16, 128, 1024)
            for d_in, d_out in ((256, 256), (256, 1024), (1024, 256), (512, 2048), (2048, 512))
        ),
        *(
            (f"attention, heads of {d}, T {n}", attentions(n, d))
            for d in (16, 32, 64)
            for n in (64, 128, 256, 512, 1024)
        ),
        *((f"attention in a window, width {d}", windows(d)) for d in (256, 512)),
        *(
            (f"LSTM of {n} units, {share:.0%} real tokens", recurrences(n, share))
            for n in (128, 384, 1024)
            for share in (0.9, 0.7, 0.5, 0.3)
        ),
    ]
    for name, works in cases:
        if asked.only not in name:
            continue
        seconds = compare(works, asked.rounds)
        first = next(iter(seconds.values()))
        told = (
            f"{each} {1e6 * taken:,.1f} ({taken / first:.2f})" for each, taken in seconds.items()
        )
        print(f"{name}: {'; '.join(told)}", flush=True)


if __name__ == "__main__":
    main()
