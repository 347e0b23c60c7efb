"""Measure what preparing batches takes of a step, and whether a thread that prepares ahead pays.

Four kinds of model, our own training step alone: as it prepares each step when it is due, and with
a thread that prepares the next one meanwhile, by turns. A part of ``gpu.py``, too.

python benchmarks/batches_ahead.py --out results/NAME.json      # on the CPU: about ten minutes
python benchmarks/batches_ahead.py --dry-run --out dry.json     # small: no measurement
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from contestants import OURS, Setup, Step, build_step
from encoders import EncoderSetup, build_encoder_step
from options import note
from report import describe_conditions
from span_models import build_span_step
from turns import Contestant, take_turns

from sublayer.config.load import load_recipe
from sublayer.model.estimates import Precision
from sublayer.runs.session import Place, assemble, prepare_data, resolve
from sublayer.system.machine import wait_for
from sublayer.training.step import Ahead, Preparation, TrainStep
from sublayer.training.world import World

ROUNDS, DRY_ROUNDS = 9, 2
TURN_S = 2.0
N_PREPARED, N_WORKED = 30, 3
N_PAIRS, N_WORDS = 20_000, 3_000
LENGTHS = (5, 25)
"""Words of a sentence."""
TRANSLATOR = {
    "data.tokenizer": "word-bpe",
    "data.vocab_size": 4_000,
    "train.steps": 10_000,
    "optimizer.warmup_steps": 100,
}
DRY_TRANSLATOR = {
    "model.d_model": 32,
    "model.d_ff": 64,
    "model.n_layers": 1,
    "data.vocab_size": 200,
}
SIZES = {
    "decoder on bytes": ("gpt", "gpt2", "dry"),
    "masked": ("d256", "base", "dry"),
    "spans": ("d256", "base", "dry"),
    "translation": ("multi30k-tiny", "multi30k-tiny", "dry"),
}
"""On a CPU, on a GPU, and as it is only tried."""


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    is_on_gpu = torch.cuda.is_available() and not options.dry_run
    device = "cuda" if is_on_gpu else "cpu"
    if options.threads:
        torch.set_num_threads(options.threads)
    cases = []
    for kind, sizes in SIZES.items():
        if options.kinds and kind not in options.kinds:
            continue
        size = sizes[2 if options.dry_run else is_on_gpu]
        note(f"== {kind}, {size}")
        rounds = DRY_ROUNDS if options.dry_run else options.rounds
        turn_s = 0.0 if options.dry_run else TURN_S
        cases.append(
            {"kind": kind, "size": size, **_measure(_build(kind, size, device), rounds, turn_s)}
        )
        note(json.dumps(cases[-1]))
    result = {"conditions": describe_conditions(device), "cases": cases}
    options.out.write_text(json.dumps(result, indent=1) + "\n")


def _build(kind: str, size: str, device: str) -> TrainStep:
    precision: Precision = "bfloat16" if device == "cuda" else "float32"
    setup = Setup(OURS, size, 0.1, precision, "", device)
    builders: dict[str, Callable[[], Step]] = {
        "decoder on bytes": lambda: build_step(setup),
        "masked": lambda: build_encoder_step(EncoderSetup(OURS, size, 0.1, precision, "", device)),
        "spans": lambda: build_span_step(setup),
        "translation": lambda: _translator_step(size, device),
    }
    step = builders[kind]()
    assert isinstance(step, TrainStep), "ours alone takes part"
    return step


def _translator_step(size: str, device: str) -> TrainStep:
    with tempfile.TemporaryDirectory() as folder:
        pairs = Path(folder) / "pairs.tsv"
        is_dry = size == "dry"
        pairs.write_text(_pairs(400 if is_dry else N_PAIRS))
        small = DRY_TRANSLATOR if is_dry else {}
        loaded = load_recipe("multi30k-tiny", {**TRANSLATOR, **small, "data.path": str(pairs)})
        place = Place(torch.device(device), World(rank=0, size=1))
        data = prepare_data(loaded.recipe)
        return assemble(resolve(loaded.recipe, data, place), data, place).train_step


def _pairs(n_pairs: int) -> str:
    draws = np.random.default_rng(0)
    letters = np.array(list("etaoinshrdlu"))
    words = ["".join(draws.choice(letters, draws.integers(2, 9))) for _ in range(N_WORDS)]
    lines = []
    for _ in range(n_pairs):
        source, target = (draws.choice(words, draws.integers(*LENGTHS)) for _ in range(2))
        lines.append(f"{' '.join(source)}\t{' '.join(target)}\n")
    return "".join(lines)


def _measure(step: TrainStep, rounds: int, turn_s: float) -> dict[str, Any]:
    due = step.prepare
    if isinstance(due, Ahead):
        due = due.preparation
    assert isinstance(due, Preparation), "there are two"
    prepared_s, prepared_work_s = [], []
    for index in range(N_PREPARED):
        begun, worked = time.perf_counter(), time.process_time()
        due(index)
        wait_for(step.device)
        prepared_s.append(time.perf_counter() - begun)
        prepared_work_s.append(time.process_time() - worked)
    taken = 0

    def steps(prepare: Preparation | Ahead) -> Callable[[int], int]:
        def run(count: int) -> int:
            nonlocal taken
            step.prepare = prepare
            for _ in range(count):
                step(taken)
                taken += 1
            wait_for(step.device)
            return count

        return run

    contestants = [
        Contestant("when due", "", steps(due)),
        Contestant("ahead", "", steps(Ahead(due, step.recipe.train.steps))),
    ]
    take_turns(contestants, rounds, pieces=2, turn_s=turn_s, note=note)
    when_due, ahead = contestants
    worked = time.process_time()
    when_due.run(N_WORKED)
    work_s = (time.process_time() - worked) / N_WORKED
    gains = [ours / theirs for ours, theirs in zip(ahead.per_s, when_due.per_s, strict=True)]
    return {
        "prepared_s": statistics.median(prepared_s),
        "step_s": 1 / when_due.median,
        "share_of_a_step": statistics.median(prepared_s) * when_due.median,
        # Of processors, which other work on the machine makes no longer; of a GPU the host's alone.
        "prepared_work_s": statistics.median(prepared_work_s),
        "share_of_work": statistics.median(prepared_work_s) / work_s,
        "ahead_over_when_due": statistics.median(gains),
        "slowest_round": min(gains),
        "fastest_round": max(gains),
        "best_over_best": max(ahead.per_s) / max(when_due.per_s),
    }


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure what preparing batches takes of a step.")
    parser.add_argument("--dry-run", action="store_true", help="on a CPU and small")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--threads", type=int, help="as many as there are cores unless given")
    parser.add_argument("--kinds", nargs="+", choices=SIZES, help="these alone")
    parser.add_argument("--out", type=Path, required=True, help="the JSON file that is written")
    return parser.parse_args()


if __name__ == "__main__":
    main()
