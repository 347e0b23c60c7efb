"""Simulated comparisons, of arms that are alike and of arms that differ, judged by two rules."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from scipy.stats import beta, t

from sublayer.evaluation.items import FromItems, ItemTable
from sublayer.objective.metric import Metric
from sublayer.statistics.difference import DECIDED, Judgement
from sublayer.statistics.judge import Evidence, judge
from sublayer.statistics.looks import ERROR, until_decided
from sublayer.statistics.sequence import judge_looks, undecided_arms
from sublayer.study.items.item_effects import item_effects

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


def simulate_peeking(n_studies: int) -> Iterator[dict[str, Any]]:
    """Look at arms that are alike again and again by the rule before, up to its first verdict."""
    looks = until_decided(20).planned
    for n_arms in (2, 4):
        rng = np.random.default_rng([13, n_arms])
        wrong = wrong_once = 0
        for _ in range(n_studies):
            values = draw(rng, n_arms, looks[-1])
            found = [
                any(before({arm: {n: own[n] for n in range(look)} for arm, own in values.items()}))
                for look in looks
            ]
            wrong += any(found)
            wrong_once += found[-1]
        yield {
            "arms": n_arms,
            "looks": list(looks),
            "studies": n_studies,
            "every_look": share(wrong, n_studies),
            "last_look": share(wrong_once, n_studies),
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
