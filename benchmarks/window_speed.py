"""Speed of windows of attention: one attention sub-layer, forward and backward, against a full one.

    python benchmarks/window_speed.py [--rounds 7] [--threads 2] [--out FOLDER/NAME.md]

Both have 4,096 tokens and the same weights; the window has 512. A decoder of that sub-layer alone
is timed, with its embeddings and a head of 64 tokens, by turns in one process. Bytes are those of
the tensors that the forward pass saves.
"""

import argparse
import datetime
import statistics
import time
from pathlib import Path

import torch
from torch import Tensor, nn

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.model.transformer import build
from sublayer.system.machine import cores, processor

TOKENS, WINDOW, VOCABULARY = 4096, 512, 64
AIM = 2.5
WIDTHS = {128: 4, 256: 4, 512: 8}
"""Heads, by the width of the model."""


def make_model(width: int, window: int | None) -> nn.Module:
    """Build a decoder of one attention sub-layer."""
    settings = {"attention_window": window} if window else {}
    config = ModelConfig.model_validate(
        {"n_layers": 1, "d_model": width, "n_heads": WIDTHS[width], "block": ["attention"]}
        | {"positions": "rotary", **settings}
    )
    return build(resolve_model(config, vocab_size=VOCABULARY, context=TOKENS), seed=0)


def step(model: nn.Module, tokens: Tensor) -> float:
    """Return the seconds of a forward and a backward pass."""
    model.zero_grad(set_to_none=True)
    begun = time.perf_counter()
    model(tokens).logits.square().mean().backward()
    return time.perf_counter() - begun


def saved_bytes(model: nn.Module, tokens: Tensor) -> int:
    """Sum the bytes of the storages that a forward pass saves, parameters left out."""
    sizes: dict[int, int] = {}

    def pack(saved: Tensor) -> Tensor:
        storage = saved.untyped_storage()
        sizes[storage.data_ptr()] = storage.nbytes()
        return saved

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        logits = model(tokens).logits
    own = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    del logits
    return sum(n_bytes for pointer, n_bytes in sizes.items() if pointer not in own)


def main() -> None:
    """Print a table, a row for each width, and keep it if asked."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--out", type=Path, default=None)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    lines = [
        "# Windows of attention against full attention",
        "",
        f"{datetime.date.today()}: {processor()}, {cores()} cores, {options.threads} threads, "
        f"float32, torch {torch.__version__}; {options.rounds} interleaved rounds. "
        f"{TOKENS:,} tokens, window {WINDOW}; the aim is {AIM:g} times.",
        "",
        "| width, heads | full, ms | window, ms | times (each round) | saved, MiB |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    tokens = torch.arange(TOKENS)[None] % VOCABULARY
    for width, n_heads in WIDTHS.items():
        models = [make_model(width, window) for window in (None, WINDOW)]
        rounds = [[step(model, tokens) for model in models] for _ in range(options.rounds + 1)][1:]
        full, window = (statistics.median(each) for each in zip(*rounds, strict=True))
        ratios = sorted(one / other for one, other in rounds)
        saved = [saved_bytes(model, tokens) / 2**20 for model in models]
        lines.append(
            f"| {width}, {n_heads} | {1e3 * full:.0f} | {1e3 * window:.0f} | {full / window:.2f} "
            f"({ratios[0]:.2f} to {ratios[-1]:.2f}) | {saved[0]:.0f} and {saved[1]:.0f} |"
        )
        print(lines[-1], flush=True)
    print("\n".join(lines))
    if options.out is not None:
        options.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
