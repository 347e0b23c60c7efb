"""Measure training speed and memory of this project and its peers. See README.md.

# three sizes, dropout 0.1 and 0, each contestant as it is and compiled: about forty minutes
python benchmarks/train_speed.py
python benchmarks/train_speed.py --no-compiled --minutes 19
python benchmarks/train_speed.py --quick      # a first impression: few rounds, few steps
# the recipe llama-2023 against transformers' Llama: about ten minutes
python benchmarks/train_speed.py --sizes llama-2023
# Muon against AdamW: about ten minutes
python benchmarks/train_speed.py --sizes muon --dropout 0 --no-compiled
# the character Transformer: about four minutes
python benchmarks/train_speed.py --sizes char-t12 --dropout 0.2
"""

import argparse
import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import compiled
import torch
from contestants import SIZES, Setup, build_step, contestants, resolved_recipe, setups
from options import add_shared_options, note
from products import Products
from report import RESULTS, describe_case, describe_conditions, keep, markdown, result_name, verdict
from rounds import Budget, run_rounds
from worker import serve

from sublayer.system.machine import cores

PEAK_STEPS = 10
SIZES_BY_DEVICE = {"cpu": ["gpt", "d256", "d512"], "cuda": ["gpt2"]}
SCRIPT = Path(__file__).resolve()


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    warnings.filterwarnings("ignore", category=UserWarning)
    torch.set_num_threads(options.threads or cores())
    if options.serve is not None:
        setup = Setup(**json.loads(options.serve))
        serve(build_step(setup), setup.device)
        return
    rounds, peak_steps = (2, 5) if options.quick else (options.rounds, PEAK_STEPS)
    not_compiled = compiled.why_not(options.device, is_asked=options.compiled)
    pairs = [(size, dropout) for size in options.sizes for dropout in options.dropout]
    budget = Budget(options.minutes, len(pairs))
    cases = [
        _measure(candidates, rounds, peak_steps, budget.next_case())
        for candidates in (
            compiled.with_compiled(_candidates(*pair, options.device), not_compiled)
            for pair in pairs
        )
    ]
    result = {
        "conditions": describe_conditions(options.device),
        "rounds": rounds,
        "not_compiled": not_compiled,
        "cases": cases,
    }
    if not options.quick or options.out is not None:
        keep(
            result, markdown(result, verdict), options.out or RESULTS / result_name(options.device)
        )
    print(json.dumps(result) if options.json else markdown(result, verdict))


def _candidates(size: str, dropout: float, device: str) -> list[Setup]:
    return [setup for name in contestants(size) for setup in setups(name, size, dropout, device)]


def _measure(
    candidates: Sequence[Setup], rounds: int, peak_steps: int, ends: float
) -> dict[str, Any]:
    note(f"== {SIZES[candidates[0].size]}, dropout {candidates[0].dropout:g}")
    found = run_rounds(
        candidates,
        script=SCRIPT,
        rounds=rounds,
        peak_steps=peak_steps,
        ends=ends,
        products=lambda setup: Products(resolved_recipe(setup), setup.precision, setup.device),
        note=note,
    )
    return describe_case(found)


def _options() -> argparse.Namespace:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    parser = argparse.ArgumentParser(
        description="Measure training speed and memory against the peers."
    )
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES_BY_DEVICE[device])
    parser.add_argument("--device", choices=["cpu", "cuda"], default=device)
    compiled.add_option(parser)
    add_shared_options(parser, quick_rounds=2, minutes=compiled.MINUTES)
    return parser.parse_args()


if __name__ == "__main__":
    main()
