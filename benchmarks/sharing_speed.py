"""Time saved by sharing weights: ALBERT-large against BERT-large, part by part.

# T 128, batch 8, one process and two: some ten minutes
python benchmarks/sharing_speed.py
# whether it runs
python benchmarks/sharing_speed.py --layers 2 --rounds 1 --steps 1 --out /tmp/sharing
"""

import argparse
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from contestants import Size
from encoders import FAMILIES, Family, sized_recipe, train_step
from report import RESULTS, describe_conditions, heading, keep, result_name

import sublayer.training.step
from sublayer.system.machine import cores
from sublayer.training.step import TrainStep
from sublayer.training.world import join_world, leave_world

SCRIPT = Path(__file__).resolve()
PARTS = ("batch", "forward", "backward", "clipping", "optimizer")
"""Parts of a step that are timed.

Backward is what the others leave: with several processes, it waits for gradients.
"""
PAPER_RATIO = 1.7
_BUCKET_NUMBERS = 25 << 18
"""Gradients that are summed at a time, as DistributedDataParallel does: 25 MiB."""


def main() -> None:
    """Run what the command line asks for."""
    options = _options()
    if options.serve is not None:
        _serve(**json.loads(options.serve))
        return
    size = Size(
        1024,
        options.layers,
        16,
        context=options.context,
        sequences=options.sequences,
        vocab_size=30_000,
    )
    kinds = [(family, n) for n in options.processes for family in FAMILIES]
    found: dict[tuple[Family, int], list[dict[str, float]]] = {kind: [] for kind in kinds}
    for index in range(options.rounds):
        for kind in kinds if index % 2 == 0 else kinds[::-1]:
            found[kind] += _measure(*kind, size, options)
            _note(
                f"round {index + 1} of {options.rounds}: {FAMILIES[kind[0]]}, "
                f"processes {kind[1]}: {found[kind][-1]}"
            )
    result = {
        "conditions": describe_conditions("cpu"),
        "description": f"{size}, LAMB, {options.precision}",
        "threads": options.threads,
        "rounds": options.rounds,
        "cases": [
            _case(n, {family: found[family, n] for family in FAMILIES}) for n in options.processes
        ],
    }
    table = _markdown(result)
    keep(result, table, options.out or RESULTS / result_name("cpu", "sharing"))
    print(table)


def _measure(
    family: Family, n_processes: int, size: Size, options: argparse.Namespace
) -> list[dict[str, float]]:
    """Take steps in fresh processes; give the seconds of each but the first, which allocates."""
    asked = {
        "family": family,
        "size": asdict(size),
        "precision": options.precision,
        "threads": max(1, options.threads // n_processes),
        "steps": options.steps,
    }
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={n_processes}"]
    command = [
        sys.executable,
        *(torchrun if n_processes > 1 else []),
        str(SCRIPT),
        "--serve",
        json.dumps(asked),
    ]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    answer = next(line for line in done.stdout.splitlines() if line.startswith("["))
    return list(json.loads(answer))


def _serve(
    family: Family, size: Mapping[str, Any], precision: str, threads: int, steps: int
) -> None:
    world = join_world(torch.device("cpu"))
    torch.set_num_threads(threads)
    settings = {"optimizer.kind": "lamb", "train.precision": precision, "train.threads": threads}
    recipe = sized_recipe(family, Size(**size), settings)
    step = train_step(recipe, world)
    clock = Clock(step)
    clock.step(0)
    figures = [clock.step(index) for index in range(1, steps + 1)]
    world.wait()
    if world.is_main:
        print(json.dumps(figures), flush=True)
    leave_world()


class Clock:
    """Takes steps and tells what their seconds went into."""

    def __init__(self, step: TrainStep) -> None:
        self._step = step
        self._seconds: dict[str, float] = {}
        self._begun = 0.0
        step.objective.register_forward_pre_hook(lambda *_: self._begin())
        step.objective.register_forward_hook(lambda *_: self._end("forward"))
        step.optimizer.register_step_pre_hook(lambda *_: self._begin())
        step.optimizer.register_step_post_hook(lambda *_: self._end("optimizer"))
        step.batches.batch = self._timed("batch", step.batches.batch)  # type: ignore[method-assign]
        # The name as the step has imported it.
        module: Any = sublayer.training.step
        module.clip_gradient = self._timed("clipping", module.clip_gradient)

    def step(self, index: int) -> dict[str, float]:
        """Take a step; return its seconds by parts, its tokens, and those of summing gradients."""
        self._seconds = dict.fromkeys(PARTS, 0.0)
        self._step.world.wait()
        begun = time.perf_counter()
        self._step(index)
        whole = time.perf_counter() - begun
        self._seconds["backward"] = whole - sum(self._seconds.values())
        summing = self._seconds_of_summing()
        return {
            "step": whole,
            **self._seconds,
            "all-reduce": summing,
            "tokens": self._step.n_tokens(index),
        }

    def _seconds_of_summing(self) -> float:
        world, n_numbers = (
            self._step.world,
            sum(each.numel() for each in self._step.parameters.values()),
        )
        if world.size == 1:
            return 0.0
        bucket = torch.zeros(min(_BUCKET_NUMBERS, n_numbers))
        world.wait()
        begun = time.perf_counter()
        for start in range(0, n_numbers, len(bucket)):
            dist.all_reduce(bucket[: n_numbers - start])
        return time.perf_counter() - begun

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*arguments: Any, **named: Any) -> Any:
            with self._counting(part):
                return function(*arguments, **named)

        return timed

    @contextmanager
    def _counting(self, part: str) -> Iterator[None]:
        self._begin()
        yield
        self._end(part)

    def _begin(self) -> None:
        self._begun = time.perf_counter()

    def _end(self, part: str) -> None:
        self._seconds[part] += time.perf_counter() - self._begun


def _case(n_processes: int, found: Mapping[Family, list[dict[str, float]]]) -> dict[str, Any]:
    models = {family: _medians(figures) for family, figures in found.items()}
    bert, albert = models["bert"], models["albert"]
    return {
        "processes": n_processes,
        "models": models,
        "albert_over_bert": albert["tokens_per_s"] / bert["tokens_per_s"],
        "seconds_saved": {
            part: bert[part] - albert[part] for part in ("step", *PARTS, "all-reduce")
        },
    }


def _medians(figures: list[dict[str, float]]) -> dict[str, float]:
    speeds = [each["tokens"] / each["step"] for each in figures]
    names = ("step", *PARTS, "all-reduce")
    return {"tokens_per_s": statistics.median(speeds)} | {
        name: statistics.median(each[name] for each in figures) for name in names
    }


def _markdown(result: Mapping[str, Any]) -> str:
    lines = [
        f"{heading(result)}; {result['description']}; medians of {result['rounds']} rounds; "
        "seconds of a step."
    ]
    columns = ("model", "tokens/s", "step", *PARTS, "all-reduce alone")
    for case in result["cases"]:
        rows = {f"{FAMILIES[family]}-large": figures for family, figures in case["models"].items()}
        rows["difference"] = case["seconds_saved"]
        lines += [
            "",
            f"**{case['processes']} process(es), {result['threads']} threads together**",
            "",
        ]
        lines += [f"| {' | '.join(columns)} |", f"| --- |{' ---: |' * (len(columns) - 1)}"]
        for name, figures in rows.items():
            speed = f"{figures['tokens_per_s']:,.0f}" if "tokens_per_s" in figures else ""
            seconds = (f"{figures[part]:.3f}" for part in ("step", *PARTS, "all-reduce"))
            lines.append(f"| {' | '.join((name, speed, *seconds))} |")
        lines += [
            "",
            f"ALBERT-large is {case['albert_over_bert']:.2f} times as fast (paper: {PAPER_RATIO}).",
        ]
    return "\n".join(lines) + "\n"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Measure ALBERT-large against BERT-large, and what the difference is made of.",
        epilog="example: python benchmarks/sharing_speed.py --context 128 --processes 1 2",
    )
    parser.add_argument(
        "--context", type=int, default=128, help="tokens of a row; the paper has 512"
    )
    parser.add_argument(
        "--sequences", type=int, default=8, help="examples of a step, all processes together"
    )
    parser.add_argument("--layers", type=int, default=24)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--threads", type=int, default=cores(), help="of all processes together")
    parser.add_argument("--rounds", type=int, default=3, help="times that each model is built anew")
    parser.add_argument(
        "--steps", type=int, default=3, help="steps of each, after one that does not count"
    )
    parser.add_argument("--out", type=Path, help="where results are kept, without the suffix")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    return parser.parse_args()


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
