"""Measure how fast GPT-2 small generates on a GPU, beside transformers' class with its weights.

A part of ``gpu.py``, which see; ``--dry-run`` runs the same on a CPU and small.

python benchmarks/gpu_generation.py --out results.json
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from contestants import GPT2, OURS, Size
from generate_speed import Continue, make_model, ours, transformers_gpt2
from options import note
from torch import Tensor
from turns import Contestant, take_turns

from sublayer.system.machine import wait_for

ROUNDS, DRY_ROUNDS = 5, 2
TURN_S = 1.0
SHAPES = {False: (768, 12, 12, 1024), True: (32, 2, 2, 64)}
VOCAB_SIZES = {False: 50257, True: 400}
LENGTHS = {False: (128, 256), True: (8, 16)}
"""Tokens of the prompt, and tokens that are generated."""
ROWS = (1, 16)
PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16}


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Measure how fast GPT-2 generates on a GPU.")
    parser.add_argument("--dry-run", action="store_true", help="on a CPU and small")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file that is written")
    options = parser.parse_args()
    device = torch.device("cpu" if options.dry_run else "cuda")
    cases = [_measure(n_rows, device, is_dry=options.dry_run) for n_rows in ROWS]
    options.out.write_text(json.dumps({"cases": cases}, indent=1) + "\n")


def _measure(n_rows: int, device: torch.device, *, is_dry: bool) -> dict[str, Any]:
    size = Size(*SHAPES[is_dry], sequences=n_rows, vocab_size=VOCAB_SIZES[is_dry])
    n_read, n_new = LENGTHS[is_dry]
    note(f"== {size}, {n_read} tokens read, {n_new} generated")
    generator = torch.Generator().manual_seed(0)
    prompt = torch.randint(size.vocab_size, (n_rows, n_read), generator=generator).to(device)
    continuations = _continuations(size, device)
    chosen = continuations[OURS, "float32"](prompt, n_new)
    are_equal = all(
        torch.equal(chosen, continuations[name, setup](prompt, n_new))
        for name, setup in ((GPT2, "float32"), (OURS, "float32, no CUDA graph"))
    )
    best = take_turns(
        [
            Contestant(
                f"{name}, {setup}" if name == OURS else f"{name}, {setup.partition(',')[0]}",
                setup,
                _timed(run, prompt, n_new),
            )
            for (name, setup), run in continuations.items()
        ],
        DRY_ROUNDS if is_dry else ROUNDS,
        pieces=1,
        turn_s=0.0 if is_dry else TURN_S,
        note=note,
    )
    return {
        "description": f"{size}, {n_read} tokens read, {n_new} generated",
        "equal_in_float32": are_equal,
        "contestants": [
            {
                "name": each.name,
                "setup": each.setup,
                "tokens_per_s": each.median,
                "slowest_round": min(each.per_s),
                "fastest_round": max(each.per_s),
            }
            for each in best
        ],
    }


def _continuations(size: Size, device: torch.device) -> dict[tuple[str, str], Continue]:
    """Build every contestant in each of its setups, all with the same weights."""
    found: dict[tuple[str, str], Continue] = {}
    for precision, dtype in PRECISIONS.items():
        own = ours(make_model(size).to(device, dtype))
        found[OURS, precision] = own
        found[OURS, f"{precision}, no CUDA graph"] = _without_graphs(own)
        plain = transformers_gpt2(make_model(size), dtype, str(device))
        found[GPT2, precision] = plain
        fixed = transformers_gpt2(make_model(size), dtype, str(device), cache="static")
        found[GPT2, f"{precision}, static cache"] = fixed
    return found


def _without_graphs(run: Continue) -> Continue:
    def without(prompt: Tensor, n_new: int) -> Tensor:
        with patch("sublayer.decode.sample.pays", return_value=False):
            return run(prompt, n_new)

    return without


def _timed(run: Continue, prompt: Tensor, n_new: int) -> Callable[[int], int]:
    def generate(count: int) -> int:
        for _ in range(count):
            run(prompt, n_new)
        wait_for(prompt.device)
        return count * len(prompt) * n_new

    return generate


if __name__ == "__main__":
    main()
