"""Comparisons of arms that are alike, drawn from runs that were made."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from verdict_draws import LOWER, Values, share

from sublayer.objective.families import FAMILIES
from sublayer.objective.metric import Metric
from sublayer.statistics.difference import DECIDED, Judgement
from sublayer.statistics.judge import Evidence, judge
from sublayer.statistics.looks import until_decided
from sublayer.statistics.sequence import judge_looks
from sublayer.statistics.tuning import Tuned
from sublayer.study.items.item_effects import item_effects
from sublayer.study.items.reading import read_study_items


def drawn_from_runs(folder: Path, n_studies: int) -> Iterator[dict[str, Any]]:
    """Draw comparisons of arms that are alike from a study's runs, with looks and with tuning."""
    results = json.loads((folder / "results.json").read_text())
    metric = _metric(folder, results)
    values = {
        arm["name"]: dict(zip(arm["seeds"], arm["values"], strict=True)) for arm in results["arms"]
    }
    effects: dict[str, dict[int, Any]] = {}
    step = 0.0
    for run in read_study_items(folder / "items.safetensors.xz"):
        assert metric.from_items is not None, "a pool keeps items"
        units = item_effects(run.items.tables[metric.from_items.table], metric.from_items)
        if units is not None:
            effects.setdefault(run.arm, {})[run.seed] = units.effects
            step = max(step, units.step)
    sign = 1.0 if metric.is_lower_better else -1.0
    best = min(values, key=lambda arm: sign * float(np.mean(list(values[arm].values()))))
    for n_arms in (2, 4):
        for n_seeds in (3, 5, 8, 20):
            for how in ("fixed", "looks", "tuned"):
                rng = np.random.default_rng([11, n_arms, n_seeds, len(how)])
                if n_arms * n_seeds > len(values[best]) or (how == "looks" and n_seeds < 8):
                    continue
                wrong = 0
                for _ in range(n_studies):
                    wrong += _is_wrong(rng, how, values, effects, step, best, n_arms, n_seeds, sign)
                yield {
                    "study": folder.name,
                    "metric": metric.name,
                    "runs": len(values[best]),
                    "how": how,
                    "arms": n_arms,
                    "seeds": n_seeds,
                    "studies": n_studies,
                    "now": share(wrong, n_studies),
                }


def _is_wrong(
    rng: np.random.Generator,
    how: str,
    values: Values,
    effects: Mapping[str, Mapping[int, Any]],
    step: float,
    best: str,
    n_arms: int,
    n_seeds: int,
    sign: float,
) -> bool:
    seeds = rng.permutation(list(values[best]))
    drawn: dict[str, dict[int, float]] = {}
    tuned: dict[str, Tuned] = {}
    moved: dict[str, dict[int, Any]] = {}
    for arm in range(n_arms):
        source = best
        own = seeds[arm * n_seeds : (arm + 1) * n_seeds]
        if how == "tuned":
            # One run of each rate, with a seed that is compared in no arm, chooses.
            rest = seeds[n_arms * n_seeds :]
            chosen = rng.choice(rest if len(rest) else seeds, len(values))
            scores = [sign * values[rate][s] for rate, s in zip(values, chosen, strict=True)]
            source = list(values)[int(np.argmin(scores))]
            compared = {n: sign * values[source][seed] for n, seed in enumerate(own)}
            tuned[str(arm)] = Tuned(tuple(scores), 1, compared)
        drawn[str(arm)] = {n: values[source][seed] for n, seed in enumerate(own)}
        if source in effects:
            moved[str(arm)] = {n: effects[source][seed] for n, seed in enumerate(own)}
    evidence = Evidence(effects=moved or None, resolution=step, tuned=tuned or None)
    if how != "looks":
        judged = judge("0", drawn, LOWER, planned_seeds=n_seeds, evidence=evidence)
        return any(each.verdict in DECIDED for each in judged.differences)
    looks = until_decided(n_seeds)
    levels = looks.levels((), n_arms - 1)

    def judge_at(look: int) -> Judgement:
        first = {arm: {n: own[n] for n in range(look)} for arm, own in drawn.items()}
        seen = {arm: {n: own[n] for n in range(look)} for arm, own in moved.items()}
        known = Evidence(effects=seen or None, resolution=step)
        return judge("0", first, LOWER, planned_seeds=look, evidence=known, level=levels[look])

    judged = judge_looks(judge_at, looks.planned)
    return any(each.verdict in DECIDED for each in judged.differences)


def _metric(folder: Path, results: Mapping[str, Any]) -> Metric:
    for family in FAMILIES.values():
        for metric in family.metrics:
            is_it = metric.name == results["metric"] and metric.from_items is not None
            if is_it and metric.is_lower_better == results["is_lower_better"]:
                return metric
    raise SystemExit(f"{folder}: {results['metric']} follows from no items")
