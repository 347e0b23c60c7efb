"""Judge recorded comparisons again as verdicts are judged today: ``judged.json`` in each folder.

    python benchmarks/judge_again.py records/*

Reads the values that ``results.json`` keeps of each seed, what each item scored where the record
keeps that, what the trials of tuned arms scored, and of ``records/claims.toml`` the contrasts and
further metrics that claims rest on. Prints which verdicts changed.
"""

import json
import math
import re
import sys
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from sublayer.evaluation.effects import TestUnits, item_effects
from sublayer.evaluation.items import Metric
from sublayer.judging.folders import RunItems, read_comparison_items
from sublayer.objective.base import KINDS, family
from sublayer.statistics.contrasts import (
    Contrast,
    Difference,
    Judgement,
    RunScores,
    Tuned,
    against_baseline,
    arm_less,
)
from sublayer.statistics.judge import ContrastFamily
from sublayer.statistics.looks import Looks, judge_looks
from sublayer.study.evidence import scores_of
from sublayer.tasks.registry import TASKS

JUDGED = "judged.json"
CLAIMS = Path(__file__).parent.parent / "records" / "claims.toml"
_TODAY = {"undecided": "cannot tell"}
"""Verdicts of earlier versions by their present names."""
_TRIALS = re.compile(
    r"(?P<arm>.+) chose \S+ by its validation (?P<label>[^:,]+)"
    r"(?:, the mean over (?P<runs>\d+) seeds)?: (?P<scores>\S+ [\d.]+(?:, \S+ [\d.]+)*)\."
)
"""A note of results.json before it had ``tunings``: what each trial of an arm scored."""


def judge_again(folder: Path, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Judge a record; ``asked`` is what ``records/claims.toml`` has of it."""
    results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    kept = read_comparison_items(folder, results)
    metric = _metric_of(
        results, results["metric"], {name for run in kept for name in run.items.tables}
    )
    margin = _margin_of(results, asked, metric)
    contrasts = [Contrast(each["name"], "", each["weights"]) for each in asked.get("contrasts", ())]
    documents = asked.get("documents")
    judged, scores, level = _judge(results, kept, metric, margin, contrasts, documents)
    then = {
        (each["arm"], each["baseline"]): _TODAY.get(each["verdict"], each["verdict"])
        for each in results["differences"]
    }
    changed = [
        {"arm": each.arm, "before": then[(each.arm, each.baseline)], "now": each.verdict}
        for each in judged.differences
        if each.verdict != then.get((each.arm, each.baseline), each.verdict)
    ]
    further = []
    for name in asked.get("further", ()):
        other = _metric_of(results, name, {table for run in kept for table in run.items.tables})
        beside, *_ = _judge(_of_further(results, name), kept, other, None, (), documents)
        further.append(
            _metric_json(other) | {"differences": [_beside(each) for each in beside.differences]}
        )
    return {
        "of": _rests_on(results, scores.effects is not None),
        **_metric_json(metric),
        "margin": margin,
        "level": level,
        "looks": results.get("looks", []) if results.get("is_sequential") else [],
        "test": _test_of(results, kept, metric),
        "tuned": _trials(results),
        "differences": [_json(each) for each in judged.differences],
        "further": further,
        "pairing": None if judged.pairing is None else asdict(judged.pairing),
        "changed": changed,
    }


def _judge(
    results: Mapping[str, Any],
    kept: Sequence[RunItems],
    metric: Metric,
    margin: float | None,
    contrasts: Sequence[Contrast],
    documents: int | None,
) -> tuple[Judgement, RunScores, float]:
    """Judge a record by one metric, at its looks where it stopped when it was decided.

    Returns also the scores, and the level of the last look.
    """
    values = {
        arm["name"]: dict(zip(arm["seeds"], arm["values"], strict=True)) for arm in results["arms"]
    }
    # The difference that a hypothesis adds stands behind those of all arms.
    baselines = {each["arm"]: each["baseline"] for each in reversed(results["differences"])}
    # An arm without a difference is compared with none.
    against = {arm: baselines.get(arm, arm) for arm in values if arm != results["baseline"]}
    failed: dict[str, list[int]] = {}
    for failure in results["failures"]:
        failed.setdefault(failure["arm"], []).append(failure["seed"])
    units, step = _units(kept, metric)
    shown = 10.0 ** -(metric.decimals + 1) / metric.factor
    scores = scores_of(values, failed, units)
    if scores.n_documents is None:
        scores = replace(scores, n_documents=documents)
    tuned = _tuned(results, metric)
    compared = [*against_baseline(values, results["baseline"], against), *contrasts]
    own = results.get("hypothesis")
    if own is not None and not own["baseline"]:
        compared.append(_written_contrast(own["arm"]))
    elif own is not None and baselines.get(own["arm"]) != own["baseline"]:
        compared.append(arm_less(own["arm"], own["baseline"]))
    is_sequential = results.get("is_sequential", False)
    n_seeds = results["planned_seeds"]
    planned = tuple(results["looks"]) if is_sequential else (n_seeds,)
    looks = Looks(planned, is_sequential=is_sequential)
    taken = () if is_sequential else tuple(results.get("looks", ()))

    def level_of(look: int) -> float:
        return looks.level_of(look, taken, len(compared))

    def judge_at(look: int) -> Judgement:
        family = ContrastFamily(
            scores.first(look),
            compared,
            is_lower_better=metric.is_lower_better,
            n_seeds=look,
            level=level_of(look),
            next_level=looks.next_level(taken, len(compared)),
            margin=margin,
            tuned=tuned,
            resolution=max(shown, step),
        )
        return family.judge()

    taken_now = [look for look in planned if look <= n_seeds] if is_sequential else [n_seeds]
    return judge_looks(judge_at, taken_now), scores, level_of(taken_now[-1])


def _metric_of(results: Mapping[str, Any], name: str, tables: set[str]) -> Metric:
    """Return a metric as far as judging needs it; ``tables`` are those of the record's items."""
    known = [metric for kind in KINDS for metric in family(kind).metrics if metric.name == name]
    for metric in known:
        if metric.from_items is not None and metric.from_items.table in tables:
            return metric
    if known:
        return known[0]
    is_lower = next(
        (each["is_lower_better"] for each in results["further"] if each["metric"] == name),
        results["is_lower_better"],
    )
    unit = f"points of {_title(name)}"
    return Metric(name, name, is_lower_better=is_lower, from_items=None, unit=unit, factor=100.0)


def _title(name: str) -> str:
    """Return what a column of scores is called: by its task, and how many examples it had."""
    task, _, examples = name.partition("-")
    if task not in TASKS:
        return {"Avg": "the average"}.get(name, name)
    return f"{TASKS[task].title}, {int(examples):,} examples" if examples else TASKS[task].title


def _metric_json(metric: Metric) -> dict[str, Any]:
    return {
        "metric": metric.name,
        "unit": metric.difference,
        "factor": metric.factor,
        "is_lower_better": metric.is_lower_better,
    }


def _margin_of(
    results: Mapping[str, Any], asked: Mapping[str, Any], metric: Metric
) -> float | None:
    """Return the margin in the metric's own unit.

    That is what the study stated before it ran, or a narrower one of ``records/claims.toml``.
    """
    stated: float | None = results.get("margin")
    if "margin" not in asked:
        return stated
    narrower = float(asked["margin"]) / metric.factor
    assert stated is not None and narrower < stated, "a margin is only narrowed afterwards"
    return narrower


def _of_further(results: Mapping[str, Any], name: str) -> dict[str, Any]:
    """Return results with the values of a further metric instead of those that decided."""
    arms = [
        {**arm, **arm["further"][name]} for arm in results["arms"] if arm["further"][name]["seeds"]
    ]
    names = {arm["name"] for arm in arms}
    differences = [each for each in results["differences"] if each["arm"] in names]
    return {**results, "arms": arms, "differences": differences}


def _beside(difference: Difference) -> dict[str, Any]:
    """Return a difference of a metric that decides nothing: without verdict and p."""
    return _json(replace(difference, verdict="no verdict", p=None))


def _json(difference: Difference) -> dict[str, Any]:
    return {**asdict(difference), "seeds": list(difference.seeds)}


def _rests_on(results: Mapping[str, Any], has_items: bool) -> str:
    if results["planned_seeds"] < 3:
        return "one seed: no verdict" if results["planned_seeds"] == 1 else "two seeds: no verdict"
    return "seeds and test items" if has_items else "seeds alone: no items were kept"


def _test_of(
    results: Mapping[str, Any], kept: Sequence[RunItems], metric: Metric
) -> dict[str, Any]:
    """Return how many documents and items the test has, as far as the record says."""
    found: dict[str, Any] = {"split": results["split"], "documents": None, "items": None}
    text = results["reproduction"].get("text")
    if text is not None:
        found["documents"] = text["sizes"].get("test", {}).get("documents")
    if kept and metric.from_items is not None:
        table = kept[0].items.tables[metric.from_items.table]
        found["items"] = table.n_items * kept[0].added.get(metric.from_items.table, 1)
        if table.documents is not None:
            found["documents"] = len(np.unique(table.documents))
    return found


def _trials(results: Mapping[str, Any]) -> dict[str, Any]:
    """Return by arm what the trials scored on validation, and how many runs each had."""
    found = {}
    for arm in results["arms"]:
        for each in arm.get("tunings", ()):
            # In the unit in which notes had them.
            scores = {
                trial: each["factor"] * score
                for trial, score in each["scores"].items()
                if score is not None
            }
            found[arm["name"]] = {"by": each["label"], "runs": each["n_runs"], "scores": scores}
    for match in map(_TRIALS.match, results["notes"]):
        if match is not None:
            written = [each.split(" ") for each in match["scores"].split(", ")]
            found[match["arm"]] = {
                "by": match["label"],
                "runs": int(match["runs"] or 1),
                "scores": {trial: float(score) for trial, score in written},
            }
    return found


def _tuned(results: Mapping[str, Any], metric: Metric) -> dict[str, Tuned]:
    """Return what the trials of arms scored that were chosen by the metric."""
    sign = 1.0 if metric.is_lower_better else -1.0
    found = {}
    arms = {arm["name"]: arm for arm in results["arms"]}
    for name, trials in _trials(results).items():
        if trials["by"] == metric.label:
            # A run's score is that of its best checkpoint.
            compared = {
                curve["seed"]: min(sign * value for value in curve["values"])
                for curve in arms[name]["curves"]
            }
            scores = tuple(sign * score for score in trials["scores"].values())
            found[name] = Tuned(scores, trials["runs"], compared)
    return found


def _written_contrast(written: str) -> Contrast:
    """Read a contrast of several arms, as ``a - b - c + d`` of names in brackets."""
    weights = {}
    for sign, size, arm in re.findall(r"([+\N{MINUS SIGN}]?) ?(?:([\d.]+) × )?\[(.+?)\]", written):
        weights[arm] = (-1.0 if sign == "\N{MINUS SIGN}" else 1.0) * float(size or 1.0)
    assert abs(math.fsum(weights.values())) < 1e-9, written
    return Contrast(written, "", weights)


def _units(
    kept: Sequence[RunItems], metric: Metric
) -> tuple[dict[str, dict[int, TestUnits]], float]:
    rule = metric.from_items
    found: dict[str, dict[int, TestUnits]] = {}
    step = 0.0
    for run in kept if rule is not None else ():
        assert rule is not None, "there is a rule"
        if rule.table not in run.items.tables:
            continue
        units = item_effects(run.items.tables[rule.table], rule)
        if units is not None:
            found.setdefault(run.arm, {})[run.seed] = units
            # Of items that were added together a step is of several.
            step = max(step, units.step if run.added.get(rule.table, 1) == 1 else 0.0)
    return found, step


def asked_of(name: str) -> dict[str, Any]:
    """Return what ``records/claims.toml`` has of a record."""
    claims = tomllib.loads(CLAIMS.read_text(encoding="utf-8"))
    found: dict[str, Any] = claims["record"].get(name, {})
    return found


def main(folders: list[Path]) -> None:
    """Judge the records in folders, and say what changed."""
    for folder in folders:
        if not (folder / "results.json").exists():
            continue
        judged = judge_again(folder, asked_of(folder.name))
        (folder / JUDGED).write_text(json.dumps(judged, indent=1) + "\n", encoding="utf-8")
        print(f"{folder.name} ({judged['of']}): {len(judged['changed'])} changed")
        for each in judged["changed"]:
            print(f"  {each['arm']}: {each['before']} -> {each['now']}")


if __name__ == "__main__":
    main([Path(each) for each in sys.argv[1:]])
