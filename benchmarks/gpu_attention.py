"""Measure attention without padding on a GPU, beside SDPA under the same mask.

Forward and backward. A part of ``gpu.py``, which see. ``--dry-run`` runs it on a CPU and small,
where there is no kernel without padding: neither has it then.

python benchmarks/gpu_attention.py --out results.json
"""

import argparse
import json
import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from options import note
from torch import Tensor
from turns import Contestant, take_turns

from sublayer.data.batches import sequence_starts
from sublayer.model.context import Keys, Layout
from sublayer.model.kernels.attention import attend, is_supported
from sublayer.system.machine import wait_for

ROUNDS, DRY_ROUNDS = 7, 2
TURN_S = 0.5
HEADS = {False: (12, 64), True: (2, 8)}
"""Their number and width, as it is measured and as it is tried."""


@dataclass(frozen=True)
class Case:
    """Rows of sequences: how many, how long, and which keys a query sees."""

    name: str
    n_rows: int
    n_tokens: int
    is_packed: bool
    """Sequences one behind another, else one a row and padding."""
    lay_out: Callable[[Tensor, Tensor], Layout]


def _causal(ids: Tensor, starts: Tensor) -> Layout:
    return Layout.causal(ids, ids >= 0, ids, starts=starts)


def _padded(ids: Tensor, starts: Tensor) -> Layout:
    return Layout.bidirectional(ids, ids >= 0, starts=starts)


def _cross(ids: Tensor, starts: Tensor) -> Layout:
    return Layout.reading(ids, ids >= 0, starts=starts, reader_starts=starts)


CASES = [
    Case("documents kept apart, causal", 16, 1024, True, _causal),
    Case("an encoder's padded rows", 32, 512, False, _padded),
    Case("a padded memory", 64, 128, False, _cross),
]


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description="Measure attention without padding on a GPU.")
    parser.add_argument("--dry-run", action="store_true", help="on a CPU and small")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file that is written")
    options = parser.parse_args()
    device = torch.device("cpu" if options.dry_run else "cuda")
    cases = [_measure(case, device, is_dry=options.dry_run) for case in CASES]
    options.out.write_text(json.dumps({"cases": cases}, indent=1) + "\n")


def _measure(case: Case, device: torch.device, *, is_dry: bool) -> dict[str, Any]:
    if is_dry:
        case = replace(case, n_rows=3, n_tokens=32)
    note(f"== {case.name}: {case.n_rows} rows of {case.n_tokens} tokens")
    ids = _sequence_ids(case)
    (starts,) = sequence_starts(ids)
    keys = case.lay_out(ids.to(device), starts.to(device)).keys
    n_heads, width = HEADS[is_dry]
    shape = (case.n_rows, n_heads, case.n_tokens, width)
    dtype = torch.float32 if is_dry else torch.bfloat16
    inputs = [torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]
    if not is_dry and not is_supported(inputs[0], inputs[1], has_bias=False, p_dropout=0.0):
        raise SystemExit("error: this GPU or PyTorch has no kernel without padding")
    contestants = [
        Contestant("under a mask", "", _passes(inputs, replace(keys, ragged=None))),
        Contestant("without padding", "", _passes(inputs, keys)),
    ]
    rounds, turn_s = (DRY_ROUNDS, 0.0) if is_dry else (ROUNDS, TURN_S)
    take_turns(contestants, rounds, pieces=3, turn_s=turn_s, note=note)
    masked, ragged = contestants
    gains = [own / theirs for own, theirs in zip(ragged.per_s, masked.per_s, strict=True)]
    return {
        "name": case.name,
        "description": f"{case.n_rows} rows of {case.n_tokens} tokens",
        "real_share": float((ids >= 0).double().mean()),
        "masked_s": 1 / masked.median,
        "ragged_s": 1 / ragged.median,
        "gain": statistics.median(gains),
        "slowest_round": min(gains),
        "fastest_round": max(gains),
    }


def _passes(inputs: list[Tensor], keys: Keys) -> Callable[[int], int]:
    q, k, v = inputs

    def run(count: int) -> int:
        for _ in range(count):
            mixed = attend(q, k, v, keys, scale=q.shape[-1] ** -0.5)
            torch.autograd.grad(mixed.sum(), inputs)
        wait_for(q.device)
        return count

    return run


def _sequence_ids(case: Case) -> Tensor:
    """Draw rows, -1 at padding; lengths are of an eighth of a row to half of it, or to all."""
    draws = torch.Generator().manual_seed(0)
    longest = case.n_tokens // 2 if case.is_packed else case.n_tokens
    ids = torch.full((case.n_rows, case.n_tokens), -1)
    for row in ids:
        for number, (start, stop) in enumerate(_pieces(case.n_tokens, longest, draws)):
            row[start:stop] = number
            if not case.is_packed:
                break
    return ids


def _pieces(n_tokens: int, longest: int, draws: torch.Generator) -> Iterator[tuple[int, int]]:
    start = 0
    while start < n_tokens:
        length = int(torch.randint(n_tokens // 8, longest + 1, (), generator=draws))
        yield start, min(start + length, n_tokens)
        start += length


if __name__ == "__main__":
    main()
