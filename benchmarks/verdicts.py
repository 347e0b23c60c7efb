"""How often verdicts err, and what they find: simulated comparisons, and runs that were made.

    python benchmarks/verdicts.py simulate --out records/verdicts
    python benchmarks/verdicts.py looks --out records/verdicts
    python benchmarks/verdicts.py speed
    python benchmarks/verdicts.py runs STUDY... --out records/verdicts
    python benchmarks/verdicts.py tables --out records/verdicts

``simulate`` draws comparisons of arms that are alike, and of arms that differ, and judges each by
the rule of the program and by the one before it (Bonferroni's correction of paired t tests, over
seeds alone). ``looks`` draws comparisons that stop where they are decided, beside a fixed number of
seeds of equal power. ``runs`` draws comparisons of arms that are alike from the runs of a study:
its arms are one recipe at several rates, so that choosing among them is tuning.
"""

import argparse
import json
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import beta, t
from verdict_tables import verdict_tables

from sublayer.evaluation.items import FromItems, ItemTable
from sublayer.objective.metric import Metric
from sublayer.study.items.reading import read_study_items
from sublayer.study.judgement.choice_spread import Tuned
from sublayer.study.judgement.difference import DECIDED, Judgement
from sublayer.study.judgement.item_effects import item_effects
from sublayer.study.judgement.judge import Evidence, judge
from sublayer.study.judgement.looks import ERROR, until_decided
from sublayer.study.judgement.sequence import judge_looks, undecided_arms

LOWER = Metric("loss", "loss", is_lower_better=True, from_items=None)
SHARE = FromItems("t", lambda sums: float(sums["right"]) / float(sums["all"]))
Values = Mapping[str, Mapping[int, float]]


def before(values: Values) -> list[bool]:
    """Return which comparisons the rule before decided: paired t tests, corrected by Bonferroni."""
    baseline, *arms = values
    decided = []
    for arm in arms:
        pairs = np.array([values[arm][seed] - values[baseline][seed] for seed in values[arm]])
        error = pairs.std(ddof=1) / math.sqrt(len(pairs))
        p = 2 * t.sf(abs(pairs.mean()) / error, len(pairs) - 1) if error else 0.0
        decided.append(p * len(arms) <= 0.05)
    return decided


def now(values: Values, evidence: Evidence | None = None, **options: Any) -> list[bool]:
    """Return which comparisons the rule of today decides."""
    baseline = next(iter(values))
    n_seeds = len(values[baseline])
    judged = judge(
        baseline, values, LOWER, planned_seeds=n_seeds, evidence=evidence or Evidence(), **options
    )
    return [each.verdict in DECIDED for each in judged.differences]


def draw(
    rng: np.random.Generator,
    n_arms: int,
    n_seeds: int,
    *,
    correlation: float = 0.0,
    spreads: Sequence[float] | None = None,
    effect: float = 0.0,
) -> dict[str, dict[int, float]]:
    """Draw the values of a comparison; all arms but the first differ by ``effect`` spreads."""
    common = rng.normal(0, math.sqrt(correlation), n_seeds)
    table = common + rng.normal(0, math.sqrt(1 - correlation), (n_arms, n_seeds))
    table *= np.array(spreads if spreads is not None else [1.0] * n_arms)[:, None]
    table[1:] += effect
    return {str(arm): dict(enumerate(row)) for arm, row in enumerate(table.tolist())}


def share(count: int, n: int) -> dict[str, float]:
    """Return a share with its exact 95 % interval (Clopper and Pearson 1934)."""
    low = float(beta.ppf(0.025, count, n - count + 1)) if count else 0.0
    high = float(beta.ppf(0.975, count + 1, n - count)) if count < n else 1.0
    return {"share": count / n, "low": low, "high": high}


def simulate_alike(n_studies: int) -> Iterator[dict[str, Any]]:
    """Judge arms that are alike: the share of comparisons with any false verdict."""
    cases: list[tuple[int, int, float, tuple[int, ...] | None]] = [
        (n_arms, n_seeds, correlation, None)
        for n_arms in (2, 4, 6)
        for n_seeds in (3, 5, 8, 20)
        for correlation in (0.0, 0.5, 0.9)
    ]
    unequal: list[tuple[int, ...]] = [(1, 3), (1, 1, 1, 3), (3, 1, 1, 1)]
    for spreads in unequal:
        cases += [(len(spreads), n_seeds, 0.0, spreads) for n_seeds in (3, 5, 8, 20)]
    for n_arms, n_seeds, correlation, own_spreads in cases:
        rng = np.random.default_rng([n_arms, n_seeds, int(10 * correlation)])
        wrong = wrong_before = 0
        for _ in range(n_studies):
            values = draw(rng, n_arms, n_seeds, correlation=correlation, spreads=own_spreads)
            wrong += any(now(values))
            wrong_before += any(before(values))
        yield {
            "arms": n_arms,
            "seeds": n_seeds,
            "correlation": correlation,
            "spreads": own_spreads,
            "studies": n_studies,
            "now": share(wrong, n_studies),
            "before": share(wrong_before, n_studies),
        }


def simulate_items(n_studies: int) -> Iterator[dict[str, Any]]:
    """Judge models without skill, whose arms have a taste of their own for 470 test items."""
    for n_arms, n_seeds in ((2, 3), (2, 5), (2, 8), (4, 5), (2, 20)):
        rng = np.random.default_rng([7, n_arms, n_seeds])
        wrong = wrong_before = 0
        for _ in range(n_studies):
            values: dict[str, dict[int, float]] = {}
            effects: dict[str, dict[int, Any]] = {}
            for arm in map(str, range(n_arms)):
                taste = rng.random(470)
                values[arm], effects[arm] = {}, {}
                for seed in range(n_seeds):
                    right = (taste + 0.3 * rng.normal(size=470) > 0.5).astype(np.int64)
                    columns = {"right": right, "all": np.ones_like(right)}
                    units = item_effects(ItemTable("item", "", columns, None), SHARE)
                    assert units is not None, "470 items are enough"
                    values[arm][seed] = float(right.mean())
                    effects[arm][seed] = units.effects
            wrong += any(now(values, Evidence(effects=effects, resolution=1 / 470)))
            wrong_before += any(before(values))
        yield {
            "arms": n_arms,
            "seeds": n_seeds,
            "studies": n_studies,
            "now": share(wrong, n_studies),
            "before": share(wrong_before, n_studies),
        }


def simulate_power(n_studies: int) -> Iterator[dict[str, Any]]:
    """Judge arms that differ: the share of arms that are found to."""
    for n_arms in (2, 4, 6):
        for n_seeds in (3, 5, 8, 20):
            for correlation in (0.0, 0.5, 0.9):
                for effect in (1.0, 2.0, 3.0):
                    rng = np.random.default_rng([3, n_arms, n_seeds, int(10 * effect)])
                    found = found_before = 0
                    for _ in range(n_studies):
                        values = draw(rng, n_arms, n_seeds, correlation=correlation, effect=effect)
                        found += sum(now(values))
                        found_before += sum(before(values))
                    n = n_studies * (n_arms - 1)
                    yield {
                        "arms": n_arms,
                        "seeds": n_seeds,
                        "correlation": correlation,
                        "effect": effect,
                        "now": found / n,
                        "before": found_before / n,
                    }


def simulate_looks(n_studies: int, at_most: int, margin: float) -> Iterator[dict[str, Any]]:
    """Stop where it is decided, beside a fixed number of seeds that finds as much."""
    looks = until_decided(at_most)
    for n_arms in (2, 4):
        (level, *_) = looks.levels((), n_arms - 1).values()
        for effect in (0.0, 1.0, 1.5, 2.0, 3.0):
            rng = np.random.default_rng([5, n_arms, int(10 * effect)])
            # A higher loss is worse, however little; below the margin it does not matter, too.
            right = {"worse"} if effect else set()
            right |= {"no difference that matters"} if effect < margin else set()
            runs = decided = wrong = 0
            for _ in range(n_studies):
                values = draw(rng, n_arms, at_most, effect=effect)
                made, judged = _stopped(values, looks.planned, level, margin)
                runs += made
                for each in judged.differences:
                    decided += each.verdict in DECIDED
                    wrong += each.verdict in DECIDED and each.verdict not in right
            n = n_studies * (n_arms - 1)
            enough = _fixed_seeds(n_arms, effect, decided / n, margin, n_studies, at_most)
            yield {
                "arms": n_arms,
                "effect": effect,
                "margin": margin,
                "looks": list(looks.planned),
                "decided": decided / n,
                "wrong": wrong / n,
                "runs": runs / n_studies,
                "fixed_seeds_of_equal_power": enough,
                "fixed_runs": None if enough is None else enough * n_arms,
            }


def _stopped(
    values: Values, looks: Sequence[int], level: float, margin: float
) -> tuple[int, Judgement]:
    """Return how many runs a comparison makes that stops, and what it says."""
    evidence = Evidence(margin=margin)
    n_seeds = dict.fromkeys(values, 0)
    going_on = set(values)
    reached: list[int] = []

    def judge_at(look: int) -> Judgement:
        first = {
            arm: {seed: own[seed] for seed in own if seed < min(look, n_seeds[arm])}
            for arm, own in values.items()
        }
        return judge("0", first, LOWER, planned_seeds=look, evidence=evidence, level=level)

    for look in looks:
        for arm in going_on:
            n_seeds[arm] = look
        reached.append(look)
        judged = judge_looks(judge_at, reached)
        going_on = undecided_arms(judged, values, ())
        if not going_on:
            break
    return sum(n_seeds.values()), judged


def _fixed_seeds(
    n_arms: int, effect: float, power: float, margin: float, n_studies: int, at_most: int
) -> int | None:
    """Find the fewest seeds of which as many arms are decided, in a single look."""
    low, high = 2, 3 * at_most

    def decides(n_seeds: int) -> bool:
        rng = np.random.default_rng([9, n_arms, int(10 * effect), n_seeds])
        found = 0
        for _ in range(n_studies):
            values = draw(rng, n_arms, n_seeds, effect=effect)
            found += sum(now(values, Evidence(margin=margin), level=ERROR))
        return found / (n_studies * (n_arms - 1)) >= power

    if not decides(high):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if decides(middle):
            high = middle
        else:
            low = middle
    return high


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
            tuned[str(arm)] = Tuned(tuple(scores), 1)
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
    from sublayer.objective.families import FAMILIES

    for family in FAMILIES.values():
        for metric in family.metrics:
            is_it = metric.name == results["metric"] and metric.from_items is not None
            if is_it and metric.is_lower_better == results["is_lower_better"]:
                return metric
    raise SystemExit(f"{folder}: {results['metric']} follows from no items")


def speed() -> dict[str, float]:
    """Judge 8 arms of 20 seeds on 10,000 items, from tables of items to verdicts."""
    import resource

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
    parser.add_argument("what", choices=["simulate", "looks", "runs", "speed", "tables"])
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
