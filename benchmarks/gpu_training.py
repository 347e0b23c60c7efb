"""Measure how fast one model trains on a GPU, in how much memory, beside its peers.

A part of ``gpu.py``, which see; ``--dry-run`` runs the same on a CPU, in float32 and small.

python benchmarks/gpu_training.py gpt2 --out results.json
python benchmarks/gpu_training.py t5 --dry-run --out /tmp/t5.json
"""

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import torch
from contestants import OURS, Setup
from gpu_cases import CASES, GpuSetup
from options import note
from peaks import peak_of
from products import Products
from report import best_setups, compare
from rounds import run_rounds
from worker import serve

SCRIPT = Path(__file__).resolve()
ROUNDS, DRY_ROUNDS = 7, 3
PEAK_STEPS = 10


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    warnings.filterwarnings("ignore", category=UserWarning)
    if options.threads:
        torch.set_num_threads(options.threads)
    if options.serve is not None:
        setup = GpuSetup(**json.loads(options.serve))
        serve(CASES[setup.case].build(setup), setup.device)
        return
    device = "cpu" if options.dry_run else "cuda"
    ends = time.monotonic() + 60 * options.minutes
    result = _measure(options.case, device, ends, is_dry=options.dry_run)
    options.out.write_text(json.dumps(result, indent=1) + "\n")


def _measure(name: str, device: str, ends: float, *, is_dry: bool) -> dict[str, Any]:
    case = CASES[name]
    setups = case.setups(name, device, is_dry=is_dry)
    recipe = case.recipe(setups[0])
    note(f"== {case.title}")

    def products(setup: Setup) -> Products:
        return Products(recipe, setup.precision, device)

    found = run_rounds(
        setups,
        script=SCRIPT,
        rounds=DRY_ROUNDS if is_dry else ROUNDS,
        peak_steps=PEAK_STEPS,
        ends=ends,
        products=products,
        note=note,
    )
    described = compare(found, recipe)
    described["title"] = case.title
    described["flops_per_token"] = case.flops_per_counted_token(setups[0])
    peak = None if device == "cpu" else peak_of(torch.cuda.get_device_name())
    if peak is not None:
        described["peak_source"] = peak.source
        for each in described["contestants"]:
            done = each["tokens_per_s"] * described["flops_per_token"]
            each["flops_utilisation"] = done / peak.flops
    ours = best_setups(found.timings)[OURS]
    described["loading_share_of_a_step"] = (ours.loading_s or 0.0) / ours.step_s
    return described


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure how fast a model trains on a GPU.")
    parser.add_argument("case", nargs="?", choices=CASES)
    parser.add_argument("--minutes", type=float, default=6.0)
    parser.add_argument("--dry-run", action="store_true", help="on a CPU, small, in float32")
    parser.add_argument("--threads", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", type=Path, help="the JSON file that is written")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve is None and (options.case is None or options.out is None):
        parser.error("give a case, and --out FILE")
    return options


if __name__ == "__main__":
    main()
