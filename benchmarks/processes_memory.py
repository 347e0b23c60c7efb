"""The memory of processes that train together, as planned and as measured.

    python benchmarks/processes_memory.py              # up to an hour on two cores; 6 GB
    python benchmarks/processes_memory.py --only gpt   # the cases of a name

Each case is started by torchrun, in processes of one thread that talk through gloo. Measured is the
peak of each process's resident set beyond what it was once the program was loaded and had trained a
tiny model: while the model is built, and over two steps. What is kept for the day is not measured
again.
"""

import argparse
import itertools
import json
import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from launched import answer_of
from report import RESULTS, describe_conditions, heading, keep, result_name

from sublayer.config.load import load_recipe
from sublayer.config.recipe import Recipe
from sublayer.estimate.cluster import SHARDS, Shard
from sublayer.study.arms import Arm
from sublayer.study.budget import Resources, expected_vocabulary
from sublayer.study.cost_plan import Machine, make_plan, plan_processes
from sublayer.study.step_time import train_step
from sublayer.system.machine import PeakMemory, release_freed_memory
from sublayer.training.world import join_world, leave_world

SCRIPT = Path(__file__).resolve()
CPU = torch.device("cpu")
LIMIT = 0.1
"""By how much a plan may differ from the measured memory."""
STEPS = 2

_TINY = (
    "model.d_model=32",
    "model.n_heads=2",
    "data.context=32",
    "train.batch_sequences=4",
)


@dataclass(frozen=True)
class Case:
    """A recipe with settings."""

    name: str
    recipe: str
    settings: tuple[str, ...]


DECODER = (
    *("model.n_layers=8", "model.d_model=512", "model.n_heads=8"),
    *("data.context=128", "model.vocab_size=16384"),
)
ALBERT = ("model.n_layers=3", "model.d_model=1536", "model.n_heads=12", "data.context=64")
CASES = (
    Case("gpt, AdamW", "gpt", DECODER),
    Case("gpt, SGD", "gpt", (*DECODER, "optimizer.kind=sgd")),
    Case("gpt, Adafactor", "gpt", (*DECODER, "optimizer.kind=adafactor")),
    Case("ALBERT, LAMB", "albert-base", (*ALBERT, "optimizer.kind=lamb")),
    Case("translator, AdamW", "iwslt14-small-macaron", ("data.context=48",)),
)
BATCHES = {"one": (1, 1), "several": (3, 1)}
"""Windows of a process's batch and of its micro-batches, by how many of these a step has."""


def main() -> None:
    """Run the command line."""
    options = _options()
    if options.serve is not None:
        _serve(**json.loads(options.serve))
        return
    path = options.out or RESULTS / result_name("cpu", "processes-memory")
    rows = _kept(path)
    for case in CASES:
        if options.only not in case.name:
            continue
        for asked in itertools.product(options.processes, options.shards, BATCHES):
            if _find(rows, case, *asked) is None:
                rows.append(_measure(case, *asked))
                _keep(rows, path)
    print(_keep(rows, path))


def _kept(path: Path) -> list[dict[str, Any]]:
    """Read earlier measurements under this name, which are not repeated."""
    kept = path.with_name(f"{path.name}.json")
    return list(json.loads(kept.read_text())["rows"]) if kept.exists() else []


def _find(
    rows: Sequence[Mapping[str, Any]], case: Case, n_processes: int, shard: Shard, batch: str
) -> Mapping[str, Any] | None:
    settings = _settings(case, n_processes, shard, batch)
    asked = (case.name, n_processes, settings)
    for row in rows:
        if (row["case"], row["processes"], row["settings"]) == asked:
            return row
    return None


def _keep(rows: list[dict[str, Any]], path: Path) -> str:
    """Write the measurements beside the present plan; return the table."""
    by_name = {case.name: case for case in CASES}
    for row in rows:
        case = by_name[row["case"]]
        row["planned"] = _planned(case, row["settings"], row["processes"], row["shard"])
    result = {"conditions": describe_conditions("cpu"), "limit": LIMIT, "rows": rows}
    table = _markdown(result)
    keep(result, table, path)
    return table


def _settings(case: Case, n_processes: int, shard: Shard, batch: str) -> list[str]:
    sequences, micro = BATCHES[batch]
    return [
        *case.settings,
        f"train.shard={shard}",
        "train.precision=float32",
        "train.threads=1",
        "optimizer.warmup_steps=1",
        f"train.batch_sequences={n_processes * sequences}",
        f"train.micro_batch_sequences={micro}",
    ]


def _measure(case: Case, n_processes: int, shard: Shard, batch: str) -> dict[str, Any]:
    settings = _settings(case, n_processes, shard, batch)
    asked = {"recipe": case.recipe, "settings": settings}
    return {
        "case": case.name,
        "settings": settings,
        "processes": n_processes,
        "shard": shard,
        "micro_batches": operator.floordiv(*BATCHES[batch]),
        **answer_of(SCRIPT, asked, n_processes),
    }


def _planned(case: Case, settings: list[str], n_processes: int, shard: Shard) -> dict[str, int]:
    # No checkpoint is written meanwhile.
    waiting = [*settings, "train.save_in_background=false"]
    arm = Arm(case.name, load_recipe(case.recipe, waiting), {})
    resources = Resources("cpu", None, None, has_fast_bfloat16=False, cores=n_processes)
    (plan,) = make_plan([arm], "none", resources).arms
    planned = plan_processes(arm, plan, Machine(n_processes, resources))
    memory: dict[str, int] = next(
        row["memory"] for row in planned["shards"] if row["shard"] == shard
    )
    return memory


def _serve(recipe: str, settings: list[str]) -> None:
    """Train in this process; the first one prints the bytes of all."""
    world = join_world(CPU)
    loaded = load_recipe(recipe, settings)
    tiny = loaded.vary([*_TINY, *_fewest_layers(loaded.recipe)]).recipe
    warm = train_step(tiny, expected_vocabulary(tiny).size, CPU, world)
    warm(0)
    del warm
    release_freed_memory()
    with PeakMemory(CPU) as whole:
        with PeakMemory(CPU) as building:
            step = train_step(loaded.recipe, expected_vocabulary(loaded.recipe).size, CPU, world)
        for number in range(STEPS):
            step(number)
    assert building.bytes is not None and whole.bytes is not None
    own = torch.tensor([building.bytes, whole.bytes])
    gathered = [each.tolist() for each in world.gather_equal(own)]
    if world.is_main:
        print(json.dumps({"building": [b for b, _ in gathered], "peak": [w for _, w in gathered]}))
    world.part()
    leave_world()


def _fewest_layers(recipe: Recipe) -> Iterator[str]:
    yield f"model.n_layers={recipe.model.share_groups * recipe.model.share_inner}"
    if recipe.model.n_decoder_layers is not None:
        yield "model.n_decoder_layers=1"


def _markdown(result: Mapping[str, Any]) -> str:
    limit = result["limit"]
    ratios = [each["planned"]["total"] / max(each["peak"]) for each in result["rows"]]
    n_within = sum(abs(ratio - 1) <= limit for ratio in ratios)
    lines = [
        f"{heading(result)}; float32; processes of one thread, gloo; peak beyond the program, of "
        f"the process that takes most; {n_within} of {len(ratios)} within {limit:.0%}.",
        "",
        "| case | processes | shard | micro-batches | planned | measured | planned / measured |",
        "| --- | ---: | --- | ---: | ---: | ---: | ---: |",
    ]
    for each, ratio in zip(result["rows"], ratios, strict=True):
        cells = [each["case"], str(each["processes"]), each["shard"], str(each["micro_batches"])]
        for size in (each["planned"]["total"], max(each["peak"])):
            cells.append(f"{size / 1e6:,.0f} MB")
        shown = f"{ratio:.2f}"
        cells.append(shown if abs(ratio - 1) <= limit else f"**{shown}**")
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join([*lines, ""])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", default="", metavar="NAME", help="cases whose names have this")
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4], metavar="N")
    parser.add_argument("--shards", nargs="+", default=SHARDS, choices=SHARDS)
    parser.add_argument("--out", type=Path, help="where the result is kept")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    return parser.parse_args()


if __name__ == "__main__":
    main()
