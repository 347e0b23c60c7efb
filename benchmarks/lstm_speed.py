"""Measure the training of an LSTM against a plain loop of PyTorch. See README.md.

python benchmarks/lstm_speed.py            # three sizes, dropout 0.1: some three minutes
python benchmarks/lstm_speed.py --quick    # a first impression, of the smallest size
"""

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from options import note
from report import RESULTS, describe_conditions, heading, keep, result_name
from torch import Tensor, nn
from turns import Contestant, take_turns

from sublayer.config.load import load_recipe
from sublayer.runs.session import Place, assemble, prepare_data, resolve
from sublayer.system.machine import cores
from sublayer.training.world import World

OURS, PLAIN = "sublayer", "plain PyTorch"
AIM = 0.8
_N_BATCHES = 8
_LR = 3e-4


@dataclass(frozen=True)
class Size:
    """A model and a batch."""

    n_units: int
    d_embed: int
    n_layers: int
    context: int
    sequences: int

    def __str__(self) -> str:
        layers = "1 layer" if self.n_layers == 1 else f"{self.n_layers} layers"
        return (
            f"{layers} of {self.n_units:,}, embeddings of {self.d_embed}, T {self.context}, "
            f"B {self.sequences}"
        )


SIZES = (Size(128, 128, 1, 128, 8), Size(256, 256, 2, 128, 16), Size(512, 256, 1, 128, 8))
DROPOUT = 0.1


class Plain(nn.Module):
    """Plain PyTorch: a table, an LSTM, and the table again as the output matrix."""

    def __init__(self, size: Size, vocab_size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(vocab_size, size.d_embed)
        is_mapped = size.d_embed != size.n_units
        self.before = nn.Linear(size.d_embed, size.n_units) if is_mapped else nn.Identity()
        between = DROPOUT if size.n_layers > 1 else 0.0
        self.lstm = nn.LSTM(
            size.n_units, size.n_units, size.n_layers, batch_first=True, dropout=between
        )
        self.behind = nn.Linear(size.n_units, size.d_embed) if is_mapped else nn.Identity()

    def forward(self, tokens: Tensor) -> Tensor:
        x = F.dropout(self.before(self.table(tokens)), DROPOUT, self.training)
        states, _ = self.lstm(x)
        states = F.dropout(states, DROPOUT, self.training)
        return F.linear(self.behind(states), self.table.weight)


def main() -> None:
    """Run what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=_Formatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--quick", action="store_true", help="two rounds; nothing is kept")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--out", type=Path, help="where results are kept, without the suffix")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    sizes = SIZES[:1] if options.quick else SIZES
    rounds = 2 if options.quick else options.rounds
    cases = [_measure(size, rounds, options.threads) for size in sizes]
    result = {
        "conditions": describe_conditions("cpu"),
        "threads": options.threads,
        "rounds": rounds,
        "cases": cases,
    }
    table = _markdown(result)
    if not options.quick or options.out is not None:
        keep(result, table, options.out or RESULTS / result_name("cpu", "lstm"))
    print(json.dumps(result) if options.json else table)


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Keeps the lines of the description."""


def _measure(size: Size, rounds: int, threads: int) -> dict[str, Any]:
    note(f"== {size}")
    n_tokens = size.context * size.sequences
    ours, vocab_size = _ours(size, threads)
    steps = {OURS: ours, PLAIN: _plain(size, vocab_size)}
    contestants = []
    for name, step in steps.items():
        contestants.append(Contestant(name, "float32", _turn(step, n_tokens)))
    found = take_turns(contestants, rounds, pieces=3, turn_s=1.0, note=note)
    medians = {each.name: each.median for each in found}
    by_round = {each.name: each.per_s for each in found}
    ratio = None
    if len(by_round) == 2:
        # Of turns next to each other, so that what else the machine does counts for both.
        pairs = zip(by_round[OURS], by_round[PLAIN], strict=True)
        ratio = statistics.median(ours / plain for ours, plain in pairs)
    return {
        "size": asdict(size),
        "description": str(size),
        "tokens_per_s": by_round,
        "medians": medians,
        "ratio": ratio,
    }


def _turn(step: Callable[[int], object], n_tokens: int) -> Callable[[int], int]:
    done = 0

    def run(count: int) -> int:
        nonlocal done
        for _ in range(count):
            step(done)
            done += 1
        return count * n_tokens

    return run


def _ours(size: Size, threads: int) -> tuple[Callable[[int], object], int]:
    """Build the step of ``sublayer train``: windows from disk, schedule, clipping, metrics."""
    settings = {
        "model.kind": "lstm",
        "model.n_layers": size.n_layers,
        "model.d_model": size.n_units,
        "model.d_embed": size.d_embed,
        "model.dropout": DROPOUT,
        "data.context": size.context,
        "optimizer.lr": _LR,
        "train.steps": 100_000,
        "train.batch_sequences": size.sequences,
        "train.precision": "float32",
        "train.threads": threads,
    }
    recipe = load_recipe("gpt", settings).recipe
    place = Place(torch.device("cpu"), World(rank=0, size=1))
    data = prepare_data(recipe)
    session = assemble(resolve(recipe, data, place), data, place)
    return session.train_step, data.tokenizer.vocab_size


def _plain(size: Size, vocab_size: int) -> Callable[[int], object]:
    """Build a step on batches that lie in memory."""
    model = Plain(size, vocab_size)
    optimizer = torch.optim.AdamW(model.parameters(), lr=_LR, fused=True)
    batches = torch.randint(vocab_size, (_N_BATCHES, size.sequences, size.context + 1))

    def step(number: int) -> None:
        batch = batches[number % _N_BATCHES]
        logits = model(batch[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()

    return step


def _markdown(result: dict[str, Any]) -> str:
    lines = [
        f"LSTMs in training, dropout {DROPOUT:g}, float32. {heading(result)}",
        "",
        f"| case | {OURS}, tokens/s | {PLAIN} | ratio (aim {AIM:g}) |",
        "| --- | ---: | ---: | ---: |",
    ]
    for case in result["cases"]:
        medians = case["medians"]
        speeds = [f"{medians[name]:,.0f}" if name in medians else "-" for name in (OURS, PLAIN)]
        ratio = "-" if case["ratio"] is None else f"{case['ratio']:.2f}"
        lines.append(f"| {case['description']} | {' | '.join(speeds)} | {ratio} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
