"""Judge recorded comparisons again as verdicts are judged today: ``judged.json`` in each folder.

    python benchmarks/judge_again.py records/*

By the values that ``results.json`` keeps of each seed, and by what each item scored where the
record keeps that; else by seeds alone. Prints which verdicts changed. Records that were judged as
today are left alone.
"""

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

from sublayer.objective.families import FAMILIES
from sublayer.objective.metric import Metric
from sublayer.statistics.difference import FEWEST_SEEDS
from sublayer.statistics.judge import Evidence, judge
from sublayer.study.items.file_header import STUDY_ITEMS, RunItems
from sublayer.study.items.item_effects import item_effects
from sublayer.study.items.reading import read_study_items

JUDGED = "judged.json"
_TODAY = {"undecided": "cannot tell"}
"""What verdicts of earlier versions are called today."""


def metric_of(results: dict[str, Any], tables: set[str]) -> Metric:
    """Return the metric that decided, as far as judging needs it; ``tables`` are of its items."""
    name = results["metric"]
    known = [
        metric for family in FAMILIES.values() for metric in family.metrics if metric.name == name
    ]
    for metric in known:
        if metric.from_items is not None and metric.from_items.table in tables:
            return metric
    if known:
        return known[0]
    return Metric(
        name, name, is_lower_better=results["is_lower_better"], from_items=None, factor=100.0
    )


def judge_again(folder: Path) -> dict[str, Any] | None:
    """Judge a record; None where there is nothing to judge, or it was judged as today."""
    path = folder / "results.json"
    if not path.exists():
        return None
    results = json.loads(path.read_text())
    if "looks" in results or results["planned_seeds"] < FEWEST_SEEDS:
        return None
    kept = read_study_items(folder / STUDY_ITEMS) if (folder / STUDY_ITEMS).exists() else []
    metric = metric_of(results, {name for run in kept for name in run.items.tables})
    values = {
        arm["name"]: dict(zip(arm["seeds"], arm["values"], strict=True)) for arm in results["arms"]
    }
    baselines = {each["arm"]: each["baseline"] for each in results["differences"]}
    # An arm without a difference is compared with none.
    against = {arm: baselines.get(arm, arm) for arm in values if arm != results["baseline"]}
    failed: dict[str, list[int]] = {}
    for failure in results["failures"]:
        failed.setdefault(failure["arm"], []).append(failure["seed"])
    effects, step = _effects(kept, metric)
    shown = 10.0 ** -(metric.decimals + 1) / metric.factor
    evidence = Evidence(effects=effects or None, failed=failed, resolution=max(shown, step))
    judged = judge(
        results["baseline"],
        values,
        metric,
        planned_seeds=results["planned_seeds"],
        against=against,
        evidence=evidence,
    )
    before = {
        each["arm"]: _TODAY.get(each["verdict"], each["verdict"]) for each in results["differences"]
    }
    changed = []
    for each in judged.differences:
        if each.verdict != before[each.arm]:
            changed.append({"arm": each.arm, "before": before[each.arm], "now": each.verdict})
    return {
        "of": "seeds and test items" if effects else "seeds alone: no items were kept",
        "differences": [{**asdict(each), "seeds": list(each.seeds)} for each in judged.differences],
        "pairing": None if judged.pairing is None else asdict(judged.pairing),
        "changed": changed,
    }


def _effects(kept: list[RunItems], metric: Metric) -> tuple[dict[str, dict[int, Any]], float]:
    rule = metric.from_items
    effects: dict[str, dict[int, Any]] = {}
    step = 0.0
    for run in kept if rule is not None else ():
        assert rule is not None, "there is a rule"
        units = item_effects(run.items.tables[rule.table], rule)
        if units is not None:
            effects.setdefault(run.arm, {})[run.seed] = units.effects
            # Of items that were added together a step is of several.
            step = max(step, units.step if run.added[rule.table] == 1 else 0.0)
    return effects, step


def main(folders: list[Path]) -> None:
    """Judge the records in folders, and say what changed."""
    for folder in folders:
        found = judge_again(folder)
        if found is None:
            continue
        (folder / JUDGED).write_text(json.dumps(found, indent=1) + "\n")
        print(f"{folder.name} ({found['of']}): {len(found['changed'])} changed")
        for each in found["changed"]:
            print(f"  {each['arm']}: {each['before']} -> {each['now']}")


if __name__ == "__main__":
    main([Path(each) for each in sys.argv[1:]])
