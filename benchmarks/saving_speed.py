"""Delay of steps by saving: copies that are written in the background, and waiting.

# two threads in all; some ten minutes on an idle machine
python benchmarks/saving_speed.py
# whether it runs
python benchmarks/saving_speed.py --rounds 1 --saves 1 --layers 1 --out /tmp/saving

Every round starts every arm anew, in turn, forwards and backwards, once waiting and once in the
background. A save's delay is what it and the steps after it take beyond as many steps without one,
the copies included; ``held back`` is that delay over what a save takes where training waits. All
are medians.
"""

import argparse
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from launched import answer_of, medians, open_session
from report import RESULTS, describe_conditions, heading, keep, result_name

from sublayer.training.checkpoints import LoopState, Snapshots
from sublayer.training.world import leave_world

SCRIPT = Path(__file__).resolve()
ARMS: dict[str, dict[str, Any]] = {
    "one thread, another idle": {"processes": 1, "train.threads": 1},
    "two threads": {"processes": 1, "train.threads": 2},
    "two processes, whole copies": {"processes": 2, "train.threads": 1},
    "two processes, shard = full": {"processes": 2, "train.threads": 1, "train.shard": "full"},
}
_QUIET_STEPS = 5
_LONGER = 3
"""Length of the steps during a save, as a multiple of a save that is waited for."""


def main() -> None:
    """Run the command line."""
    options = _options()
    if options.serve is not None:
        _serve(**json.loads(options.serve))
        return
    found: dict[str, list[dict[str, float]]] = {name: [] for name in ARMS}
    for index in range(options.rounds):
        for name in list(ARMS) if index % 2 == 0 else list(ARMS)[::-1]:
            waiting = _measure(name, options, steps=0)
            n_steps = math.ceil(_LONGER * waiting["delay_s"] / waiting["step_s"])
            beside = _measure(name, options, steps=n_steps)
            figures = {
                "step_s": beside["step_s"],
                "waiting_s": waiting["delay_s"],
                "delay_s": beside["delay_s"],
                "held_back": beside["delay_s"] / waiting["delay_s"],
                "megabytes": beside["megabytes"],
            }
            found[name].append(figures)
            print(f"round {index + 1}: {name}: {figures}", file=sys.stderr, flush=True)
    result = {
        "conditions": describe_conditions("cpu"),
        "description": f"GPT of {options.layers} layers, d {options.width}, T 128, AdamW, float32",
        "rounds": options.rounds,
        "saves": options.saves,
        "arms": {name: medians(figures) for name, figures in found.items()},
    }
    table = _markdown(result)
    keep(result, table, options.out or RESULTS / result_name("cpu", "saving"))
    print(table)


def _measure(name: str, options: argparse.Namespace, *, steps: int) -> dict[str, float]:
    """Measure a save beside so many steps; where there are none, training waits for it."""
    settings = dict(ARMS[name])
    n_processes = settings.pop("processes")
    asked = {
        "settings": {
            "model.n_layers": options.layers,
            "model.d_model": options.width,
            "model.n_heads": 8,
            "data.context": 128,
            "data.corpus": "python",
            "train.steps": 100_000,
            "train.batch_sequences": 8,
            "train.micro_batch_sequences": 4,
            "train.precision": "float32",
            "train.save_in_background": steps > 0,
            **settings,
        },
        "saves": options.saves,
        "steps": steps,
    }
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        return answer_of(SCRIPT, {**asked, "folder": folder}, n_processes)


def _serve(settings: Mapping[str, Any], saves: int, steps: int, folder: str) -> None:
    session = open_session(settings)
    world = session.place.world
    snapshots = Snapshots(Path(folder), session.train_step, lambda folder: None)
    state = LoopState()

    def take(n_steps: int) -> None:
        for _ in range(n_steps):
            session.train_step(state.step)
            state.step += 1

    def save() -> None:
        snapshots.save(state)
        take(steps)
        snapshots.wait()

    take(2)
    step_s, delay_s = [], []
    for _ in range(saves):
        step_s.append(_seconds(lambda: take(_QUIET_STEPS), world.wait) / _QUIET_STEPS)
        delay_s.append(_seconds(save, world.wait) - steps * step_s[-1])
    if world.is_main:
        newest = max((Path(folder) / "checkpoints").iterdir())
        n_bytes = sum(path.stat().st_size for path in newest.rglob("*") if path.is_file())
        figures = {
            "step_s": statistics.median(step_s),
            "delay_s": statistics.median(delay_s),
            "megabytes": n_bytes / 1e6,
        }
        print(json.dumps(figures), flush=True)
    world.wait()
    leave_world()


def _seconds(work: Callable[[], None], meet: Callable[[], None]) -> float:
    meet()
    begun = time.perf_counter()
    work()
    meet()
    return time.perf_counter() - begun


def _markdown(result: Mapping[str, Any]) -> str:
    lines = [
        f"{heading(result)}; {result['description']}; medians of {result['rounds']} rounds of "
        f"{result['saves']} saves.",
        "",
        "| arm | MB | a step | a save, waiting | its delay in the background | held back |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, each in result["arms"].items():
        lines.append(
            f"| {name} | {each['megabytes']:,.0f} | {each['step_s']:.3f} s | "
            f"{each['waiting_s']:.2f} s | {each['delay_s']:.2f} s | {each['held_back']:.2f} |"
        )
    return "\n".join(lines)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--saves", type=int, default=3)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--folder", type=Path, help="where checkpoints are written for the time")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
