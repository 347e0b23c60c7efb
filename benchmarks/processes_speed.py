"""Costs and savings of several processes: whole copies, parts and exact sums, step by step.

# two threads in all; some fifteen minutes on an idle machine
python benchmarks/processes_speed.py
# whether it runs
python benchmarks/processes_speed.py --rounds 1 --steps 1 --layers 1 --out /tmp/processes

Every round starts every arm anew, in turn, forwards and backwards. Seconds of a step are medians,
as are the ratios of rounds. Memory is what a process holds at most in its steps, beyond what it has
when the model is built; kept are the bytes of its weights and optimizer state between steps.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from launched import answer_of, medians, open_session
from report import RESULTS, describe_conditions, heading, keep, result_name

from sublayer.system.machine import PeakMemory, cores
from sublayer.training.checkpoints import optimizer_tensors
from sublayer.training.world import leave_world

SCRIPT = Path(__file__).resolve()
CPU = torch.device("cpu")
ARMS: dict[str, dict[str, Any]] = {
    "one process": {"processes": 1},
    "whole copies": {"processes": 2},
    "shard = optimizer": {"processes": 2, "train.shard": "optimizer"},
    "shard = full": {"processes": 2, "train.shard": "full"},
    "one process, exact": {"processes": 1, "train.exact": True},
    "exact": {"processes": 2, "train.exact": True},
}
COMPARED = (
    ("whole copies", "one process"),
    ("shard = optimizer", "whole copies"),
    ("shard = full", "whole copies"),
    ("one process, exact", "one process"),
    ("exact", "whole copies"),
)
"""Pairs of arms: the second is the reference of the first."""


def main() -> None:
    """Run the command line."""
    options = _options()
    if options.serve is not None:
        _serve(**json.loads(options.serve))
        return
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ARMS}
    for index in range(options.rounds):
        for name in list(ARMS) if index % 2 == 0 else list(ARMS)[::-1]:
            found[name].append(_measure(name, options))
            print(f"round {index + 1}: {name}: {found[name][-1]}", file=sys.stderr, flush=True)
    result = {
        "conditions": describe_conditions("cpu"),
        "description": (
            f"GPT of {options.layers} layers, d {options.width}, T 128, 16 windows a step, "
            f"{options.micro} at a time, AdamW, {options.precision}"
        ),
        "threads": options.threads,
        "rounds": options.rounds,
        "arms": {name: medians(figures) for name, figures in found.items()},
        "ratios": [_ratio(found, *pair) for pair in COMPARED],
    }
    table = _markdown(result)
    keep(result, table, options.out or RESULTS / result_name("cpu", "processes"))
    print(table)


def _measure(name: str, options: argparse.Namespace) -> dict[str, float]:
    settings = dict(ARMS[name])
    n_processes = settings.pop("processes")
    asked = {
        "settings": {
            "model.n_layers": options.layers,
            "model.d_model": options.width,
            "model.n_heads": 8,
            "model.dropout": 0.1,
            "data.context": 128,
            "data.corpus": "python",
            "train.steps": 1000,
            "train.batch_sequences": 16,
            "train.micro_batch_sequences": options.micro,
            "train.precision": options.precision,
            "train.threads": max(1, options.threads // n_processes),
            **settings,
        },
        "steps": options.steps,
    }
    return answer_of(SCRIPT, asked, n_processes)


def _serve(settings: Mapping[str, Any], steps: int) -> None:
    session = open_session(settings)
    world = session.place.world
    seconds = []
    with PeakMemory(CPU) as memory:
        session.train_step(0)
        for step in range(1, steps + 1):
            world.wait()
            begun = time.perf_counter()
            session.train_step(step)
            seconds.append(time.perf_counter() - begun)
        world.wait()
    if world.is_main:
        assert memory.bytes is not None, "a CPU tells"
        trained = session.train_step.parameters
        states = optimizer_tensors(session.train_step.optimizer, trained)
        kept = sum(each.nbytes for each in (*trained.values(), *states.values()))
        figures = {
            "step_s": statistics.median(seconds),
            "peak_mb": memory.bytes / 1e6,
            "kept_mb": kept / 1e6,
        }
        print(json.dumps(figures), flush=True)
    leave_world()


def _ratio(
    found: Mapping[str, list[dict[str, float]]], name: str, against: str
) -> dict[str, str | float]:
    pairs = list(zip(found[name], found[against], strict=True))
    return {
        "arm": name,
        "against": against,
        "step": statistics.median(a["step_s"] / b["step_s"] for a, b in pairs),
        "memory": statistics.median(a["peak_mb"] / b["peak_mb"] for a, b in pairs),
        "kept": statistics.median(a["kept_mb"] / b["kept_mb"] for a, b in pairs),
    }


def _markdown(result: Mapping[str, Any]) -> str:
    lines = [
        f"{heading(result)}; {result['description']}; {result['threads']} threads together; "
        f"medians of {result['rounds']} rounds.",
        "",
        "| arm | seconds a step | MB of a process beyond the model as built | MB kept |",
        "| --- | ---: | ---: | ---: |",
    ]
    for name, each in result["arms"].items():
        cells = (f"{each['step_s']:.3f}", f"{each['peak_mb']:,.0f}", f"{each['kept_mb']:,.1f}")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += [
        "",
        "| arm | against | step | memory | kept |",
        "| --- | --- | ---: | ---: | ---: |",
    ]
    for ratio in result["ratios"]:
        figures = (f"{ratio['step']:.3f}", f"{ratio['memory']:.2f}", f"{ratio['kept']:.3f}")
        lines.append(f"| {ratio['arm']} | {ratio['against']} | {' | '.join(figures)} |")
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--micro", type=int, default=4)
    parser.add_argument("--threads", type=int, default=cores())
    parser.add_argument("--precision", default="float32")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
