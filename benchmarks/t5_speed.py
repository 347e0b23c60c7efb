"""Measure span corruption here and in transformers' T5: speed, memory, greedy decoding.

The contestants are interleaved; see README.md.

# two sizes, dropout 0.1 and 0: about twenty-five minutes
python benchmarks/t5_speed.py
python benchmarks/t5_speed.py --quick      # a first impression: few rounds, few steps
python benchmarks/t5_speed.py --sizes d256 --dropout 0 --only training --out /tmp/t5
"""

import argparse
import itertools
import json
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from contestants import OURS, Setup
from options import add_shared_options, note
from products import Products
from report import RESULTS, describe_conditions, keep, result_name
from rounds import Budget, Rounds, run_rounds
from span_decoding import decoders
from span_models import CPU_SIZES, SIZES, WITHOUT, build_span_step, pieces, span_recipe, span_setups
from span_report import describe_decoding, describe_training, markdown
from turns import take_turns
from worker import serve

from sublayer.system.machine import cores

SCRIPT = Path(__file__).resolve()
PARTS = ("training", "decoding", "corruption")
PEAK_STEPS = 10
ROWS = (1, 16)
"""Sources that are decoded together."""
TURN_S = 1.0
CORRUPTED_TOKENS = 1_000_000


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    warnings.filterwarnings("ignore", category=UserWarning)
    torch.set_num_threads(options.threads or cores())
    if options.serve is not None:
        serve(build_span_step(Setup(**json.loads(options.serve))), "cpu")
        return
    rounds = 3 if options.quick else options.rounds
    result: dict[str, Any] = {"rounds": rounds, "training": [], "decoding": [], "corruption": []}
    if "training" in options.only:
        result["training"] = _train(options, rounds)
    if "decoding" in options.only:
        threads = torch.get_num_threads()
        chosen = itertools.product(options.sizes, ROWS)
        result["decoding"] = [_decode(size, n_rows, rounds, threads) for size, n_rows in chosen]
        torch.set_num_threads(threads)
    if "corruption" in options.only:
        result["corruption"] = [_corrupt(size, rounds) for size in options.sizes]
    result["conditions"] = describe_conditions("cpu")
    table = markdown(result)
    if not options.quick or options.out is not None:
        keep(result, table, options.out or RESULTS / result_name("cpu", "t5"))
    print(json.dumps(result) if options.json else table)


def _train(options: argparse.Namespace, rounds: int) -> list[dict[str, Any]]:
    # The small ones first, so that the large ones have the time which those leave.
    chosen = list(itertools.product(options.sizes, options.dropout))
    budget = Budget(options.minutes, len(chosen))
    peak_steps = 5 if options.quick else PEAK_STEPS
    cases = []
    for size, dropout in chosen:
        description = f"{SIZES[size]}, dropout {dropout:g}"
        note(f"== {description}")
        setups = span_setups(size, dropout)
        found = _interleave(setups, rounds, peak_steps, budget.next_case())
        recipe = span_recipe(setups[0])
        raw_length = pieces(recipe).rule.raw_length
        case = describe_training(found, recipe, raw_length)
        cases.append({"description": description, "size": size, "dropout": dropout, **case})
    return cases


def _interleave(setups: list[Setup], rounds: int, peak_steps: int, ends: float) -> Rounds:
    return run_rounds(
        setups,
        script=SCRIPT,
        rounds=rounds,
        peak_steps=peak_steps,
        ends=ends,
        products=lambda setup: Products(span_recipe(setup), setup.precision),
        note=note,
    )


def _decode(size: str, n_rows: int, rounds: int, threads: int) -> dict[str, Any]:
    recipe = span_recipe(Setup(OURS, size, 0.0, "float32"))
    lengths = recipe.objective.lengths(recipe.data.context)
    description = (
        f"d {recipe.model.d_model}, {recipe.model.n_layers} layers, V {recipe.model.vocab_size:,}, "
        f"{lengths.read} tokens read, {lengths.written} written, batch {n_rows}"
    )
    note(f"== decoding: {description}")
    taking_part = decoders(SIZES[size], n_rows, lengths.written, threads)
    best = take_turns(taking_part, rounds, pieces=2, turn_s=TURN_S, note=note)
    return {"description": description, "size": size, "rows": n_rows, **describe_decoding(best)}


def _corrupt(size: str, rounds: int) -> dict[str, Any]:
    """Measure the seconds of one core in which as many tokens are read, corrupted and batched."""
    made = pieces(span_recipe(Setup(WITHOUT, size, 0.0, "float32")))
    n_steps = -(-CORRUPTED_TOKENS // made.n_tokens(0))
    seconds = []
    for round_ in range(rounds):
        begun = time.process_time()
        n_tokens = 0
        for step in range(round_ * n_steps, (round_ + 1) * n_steps):
            made.batch(step)
            n_tokens += made.n_tokens(step)
        seconds.append((time.process_time() - begun) * 1e6 / n_tokens)
    return {"size": size, "description": str(SIZES[size]), "s_per_million_tokens": seconds}


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure how fast T5 trains and decodes against transformers, in what memory.",
        epilog="example: python benchmarks/t5_speed.py --sizes d256 --dropout 0",
    )
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=CPU_SIZES)
    parser.add_argument("--only", nargs="+", choices=PARTS, default=list(PARTS))
    add_shared_options(parser, quick_rounds=3)
    return parser.parse_args()


if __name__ == "__main__":
    main()
