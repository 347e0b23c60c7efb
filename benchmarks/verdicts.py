"""How often verdicts err, and what they find: simulated comparisons, and runs that were made.

    python benchmarks/verdicts.py simulate --out records/verdicts
    python benchmarks/verdicts.py looks --out records/verdicts
    python benchmarks/verdicts.py peeking --out records/verdicts
    python benchmarks/verdicts.py speed
    python benchmarks/verdicts.py runs STUDY... --out records/verdicts
    python benchmarks/verdicts.py tables --out records/verdicts

``simulate`` draws comparisons of arms that are alike, and of arms that differ, and judges each by
the rule of the program and by the one before it (Bonferroni's correction of paired t tests, over
seeds alone). ``looks`` draws comparisons that stop where they are decided, beside a fixed number of
seeds of equal power; ``peeking`` looks as often by the rule before, and stops at a verdict.
``runs`` draws comparisons of arms that are alike from the runs of a study: its arms are one recipe
at several rates, so that choosing among them is tuning.
"""

import argparse
import json
import resource
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from verdict_draws import (
    LOWER,
    SHARE,
    simulate_alike,
    simulate_items,
    simulate_looks,
    simulate_peeking,
    simulate_power,
)
from verdict_runs import drawn_from_runs
from verdict_tables import verdict_tables

from sublayer.evaluation.items import ItemTable
from sublayer.statistics.judge import Evidence, judge
from sublayer.study.items.item_effects import item_effects


def speed() -> dict[str, float]:
    """Judge 8 arms of 20 seeds on 10,000 items, from tables of items to verdicts."""
    rng = np.random.default_rng(0)
    tables: dict[str, dict[int, ItemTable]] = {}
    values: dict[str, dict[int, float]] = {}
    for arm in map(str, range(8)):
        tables[arm], values[arm] = {}, {}
        for seed in range(20):
            right = rng.integers(0, 2, 10_000)
            columns = {"right": right, "all": np.ones_like(right)}
            tables[arm][seed] = ItemTable("item", "", columns, None)
            values[arm][seed] = float(right.mean())
    begun = time.monotonic()
    effects: dict[str, dict[int, Any]] = {}
    for arm, own in tables.items():
        for seed, table in own.items():
            units = item_effects(table, SHARE)
            assert units is not None, "10,000 items are enough"
            effects.setdefault(arm, {})[seed] = units.effects
    judge("0", values, LOWER, planned_seeds=20, evidence=Evidence(effects=effects))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return {"seconds": time.monotonic() - begun, "peak_bytes": peak}


def main() -> None:
    """Run what is asked for, and write its table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", choices=["simulate", "looks", "peeking", "runs", "speed", "tables"])
    parser.add_argument("folders", nargs="*", type=Path, help="studies whose runs are drawn from")
    parser.add_argument("--studies", type=int, default=1000, help="comparisons of each case")
    parser.add_argument("--seeds-at-most", type=int, default=20)
    parser.add_argument(
        "--margin", type=float, nargs="+", default=[1.0, 2.0], help="in standard deviations"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    found: dict[str, Any] = {}
    match options.what:
        case "simulate":
            found["alike"] = _shown(simulate_alike(options.studies))
            found["items"] = _shown(simulate_items(max(1, options.studies // 3)))
            found["power"] = _shown(simulate_power(max(1, options.studies // 5)))
        case "looks":
            found["looks"] = []
            for margin in options.margin:
                rows = simulate_looks(options.studies, options.seeds_at_most, margin)
                found["looks"] += _shown(rows)
        case "peeking":
            found["peeking"] = _shown(simulate_peeking(options.studies))
        case "runs":
            found["runs"] = [
                row
                for folder in options.folders
                for row in _shown(drawn_from_runs(folder, options.studies))
            ]
        case "tables":
            tables = "\n".join(verdict_tables(options.out))
            (options.out / "TABLES.md").write_text(f"{tables}\n")
            return
        case "speed":
            found["speed"] = speed()
            print(found["speed"])
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        path = options.out / f"{options.what}.json"
        path.write_text(json.dumps(found, indent=1) + "\n")


def _shown(rows: Iterator[dict[str, Any]]) -> list[dict[str, Any]]:
    kept = []
    for row in rows:
        print(json.dumps(row), flush=True)
        kept.append(row)
    return kept


if __name__ == "__main__":
    main()
