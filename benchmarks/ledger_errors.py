"""False keeps and power of a loop that judges candidates by a ledger, simulated.

    python benchmarks/ledger_errors.py tests            # t tests of all loops at once
    python benchmarks/ledger_errors.py judge            # a ledger's file and the program's judge
    python benchmarks/ledger_errors.py judge --quick    # a first impression; nothing is kept

A loop judges candidate after candidate against its champion. A candidate that is better by the
level of its look is the champion of the next ones, by the same runs (``run anew``: by runs of new
seeds). Every loop is also walked on the same draws with Bonferroni's levels, 0.05 / 100 for each
candidate, on two sides and on one. Higher is better here; one standard deviation of a run is 1.
Levels are those of ``sublayer.judging.ledger``. ``tests`` computes paired t tests and Welch's
for all loops at once; ``judge`` walks fewer loops, by a ledger's file and the program's judge.
"""

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from report import RESULTS, describe_conditions, keep, result_name
from scipy.special import stdtr
from scipy.stats import beta

from sublayer.evaluation.items import Metric
from sublayer.judging.ledger import (
    ERROR,
    LedgerPlan,
    LedgerRuns,
    level_of,
    looks_to_share,
    open_ledger,
    runs_of,
)
from sublayer.statistics.contrasts import Difference, RunScores, arm_less
from sublayer.statistics.judge import ContrastFamily

Numbers = NDArray[np.float64]
CANDIDATES = 100
MOST_SEEDS = 8
GAINS_AT = (10, 40, 70)
"""Candidates that are better than the champion of their time, of loops with three."""
SCORE = Metric("score", "score", is_lower_better=False, from_items=None)


@dataclass(frozen=True)
class Loop:
    """A loop of one kind: what its candidates are like, and how they are judged."""

    name: str
    seeds: tuple[int, ...] = (5,)
    """Of a candidate, drawn from these."""
    test: str = "paired t"
    gains: Mapping[int, float] = field(default_factory=dict)
    """By candidate, over the champion of its time."""
    correlation: float = 0.0
    """Of two runs of the same seed."""
    spreads: tuple[float, ...] = (1.0,)
    """Of a candidate's runs, drawn from these."""
    tails: str = "normal"
    looks: int | None = CANDIDATES
    """Planned looks; None: the loop has no end."""
    again_below: float = 0.0
    """A candidate ahead with so small a p is judged again, with eight seeds, as champions have."""
    items: int = 0
    """Of the test, for the judge of the program: every arm has a taste for each of them."""
    is_run_anew: bool = False
    """True where a kept candidate is run with new seeds before it is the champion."""


Rule = Callable[[int, Numbers], tuple[Numbers, Numbers]]
"""Spent error and two-sided level of a look, [L], from its number and the error left."""


def by_ledger(loop: Loop) -> Rule:
    """Return the ledger's levels."""

    def levels(look: int, left: Numbers) -> tuple[Numbers, Numbers]:
        if loop.looks is not None and look > loop.looks:
            return np.zeros_like(left), np.full_like(left, -1.0)
        spending = left / looks_to_share(look, loop.looks)
        return spending, level_of(spending, 1)

    return levels


def by_bonferroni(loop: Loop, times: int) -> Rule:
    """Return 0.05 / 100 for each of 100 looks, on two sides (``times`` 1) or on one (2)."""
    level = times * ERROR / (loop.looks or CANDIDATES)

    def levels(look: int, left: Numbers) -> tuple[Numbers, Numbers]:
        return np.zeros_like(left), np.full_like(left, level)

    return levels


class Walk:
    """Many loops of one kind, walked together by one rule."""

    def __init__(self, loop: Loop, rule: Rule, n_loops: int, seed: int) -> None:
        self.loop, self.rule, self.n = loop, rule, n_loops
        self.rng = np.random.default_rng(seed)
        self.left = np.full(n_loops, ERROR)
        self.look = np.zeros(n_loops, dtype=int)
        self.mean = np.zeros(n_loops)
        self.shared = self._noise()
        self.champion = self._runs(np.ones(n_loops))
        self.champion_seeds = self._seeds_of_champion(self.rng.choice(loop.seeds, n_loops))
        self.is_false = np.zeros(n_loops, dtype=bool)
        self.found: dict[int, Numbers] = {}

    def walk(self) -> "Walk":
        """Judge all candidates in turn."""
        for number in range(1, CANDIDATES + 1):
            gain = self.loop.gains.get(number, 0.0)
            spreads = self.rng.choice(self.loop.spreads, self.n)
            runs = self.mean[:, None] + gain + self._runs(spreads)
            anew = self._noise() if self.loop.is_run_anew else None
            seeds = self.rng.choice(self.loop.seeds, self.n)
            kept, p = self._judge(runs, seeds, np.ones(self.n, dtype=bool))
            if self.loop.again_below:
                again = ~kept & (p < self.loop.again_below) & (seeds < MOST_SEEDS)
                more = np.where(again, MOST_SEEDS, seeds)
                kept |= self._judge(runs, more, again)[0]
                seeds = more
            if gain > 0:
                self.found[number] = kept
            else:
                self.is_false |= kept
            self.mean = self.mean + gain * kept
            then = runs if anew is None else self.mean[:, None] + spreads[:, None] * anew
            self.champion = np.where(kept[:, None], then, self.champion)
            now = self._seeds_of_champion(seeds)
            self.champion_seeds = np.where(kept, now, self.champion_seeds)
        return self

    def _seeds_of_champion(self, seeds: NDArray[Any]) -> NDArray[Any]:
        return np.full_like(seeds, MOST_SEEDS) if self.loop.again_below else seeds

    def _judge(self, runs: Numbers, seeds: NDArray[Any], is_judged: NDArray[Any]) -> Any:
        """Judge runs against the champion's; return which are kept, and p of a gain, ``[L]``."""
        p = one_sided_p(self.loop.test, runs, seeds, self.champion, self.champion_seeds)
        kept = np.zeros(self.n, dtype=bool)
        self.look[is_judged] += 1
        for look in np.unique(self.look[is_judged]):
            at = is_judged & (self.look == look)
            spending, level = self.rule(int(look), self.left[at])
            kept[at] = 2 * p[at] <= level
            self.left[at] -= spending * ~kept[at]
        return kept, p

    def _noise(self) -> Numbers:
        shape = (self.n, MOST_SEEDS)
        match self.loop.tails:
            case "normal":
                return self.rng.standard_normal(shape)
            case "heavy":  # Student's t with three degrees of freedom, of variance 1
                heavy: Numbers = self.rng.standard_t(3, shape) / np.sqrt(3)
                return heavy
            case _:  # two-valued: a fine-tuning that fails one time in five, a little noise beside
                failed: Numbers = (self.rng.random(shape) < 0.2).astype(float)
                return -2.4 * (failed - 0.2) + 0.2 * self.rng.standard_normal(shape)

    def _runs(self, spreads: Numbers) -> Numbers:
        together = self.loop.correlation
        own = np.sqrt(1 - together) * self._noise() + np.sqrt(together) * self.shared
        runs: Numbers = spreads[:, None] * own
        return runs


def one_sided_p(
    test: str, runs: Numbers, seeds: NDArray[Any], base: Numbers, base_seeds: NDArray[Any]
) -> Numbers:
    """Compute the p of a gain, ``[L]``, of ``[L, S]`` runs of which the first ``seeds`` count."""
    if test == "paired t":
        n = np.minimum(seeds, base_seeds)
        mean, variance = moments(runs - base, n)
        squared, freedom = variance / n, n - 1.0
    else:
        (ours, own), (theirs, other) = moments(runs, seeds), moments(base, base_seeds)
        mean, own, other = ours - theirs, own / seeds, other / base_seeds
        squared = own + other
        freedom = squared**2 / (own**2 / (seeds - 1) + other**2 / (base_seeds - 1))
    p: Numbers = stdtr(freedom, -mean / np.sqrt(squared))
    return p


def moments(values: Numbers, n: NDArray[Any]) -> tuple[Numbers, Numbers]:
    """Return the mean and variance of the first ``n`` values of each row."""
    counted = np.arange(values.shape[1]) < n[:, None]
    mean = (values * counted).sum(1) / n
    variance = (((values - mean[:, None]) * counted) ** 2).sum(1) / (n - 1)
    return mean, variance


def loops() -> Iterator[Loop]:
    """Name the kinds of loops: without any gain, with three, with many; and what else may vary."""
    for test in ("paired t", "Welch"):
        for seeds in (3, 5, 8):
            plain = Loop("no gain", (seeds,), test)
            yield plain
            for gain in (1.0, 2.0, 4.0):
                yield replace(plain, name="three gains", gains=dict.fromkeys(GAINS_AT, gain))
            thirds = dict.fromkeys(range(1, CANDIDATES + 1, 3), 30.0)
            yield replace(plain, name="34 large gains", gains=thirds)
            yield replace(plain, name="no gain", looks=None)
            yield replace(plain, name="three gains", gains=dict.fromkeys(GAINS_AT, 4.0), looks=None)
            yield replace(plain, name="34 large gains", gains=thirds, is_run_anew=True)
            yield replace(plain, name="no gain", tails="heavy")
            yield replace(plain, name="no gain", tails="two-valued")
            yield replace(plain, name="no gain", spreads=(1.0, 2.0, 4.0))
            yield replace(plain, name="34 large gains", gains=thirds, spreads=(1.0, 2.0, 4.0))
        mixed = Loop("no gain", (3, 5, 8), test)
        yield mixed
        yield replace(mixed, name="three gains", gains=dict.fromkeys(GAINS_AT, 4.0))
        again = Loop("no gain", (3,), test, again_below=0.2, looks=2 * CANDIDATES)
        yield again
        yield replace(again, name="three gains", gains=dict.fromkeys(GAINS_AT, 4.0))
    for gain in (0.0, 2.0, 4.0):
        gains = dict.fromkeys(GAINS_AT, gain) if gain else {}
        name = "three gains" if gain else "no gain"
        yield Loop(name, (5,), gains=gains, correlation=0.9)


def judged_loops() -> Iterator[Loop]:
    """Name the kinds of loops that the program's judge walks."""
    for seeds, items in ((5, 0), (8, 50)):
        yield Loop("no gain", (seeds,), items=items)
        gains = dict.fromkeys(GAINS_AT, 4.0)
        yield Loop("three gains", (seeds,), gains=gains, items=items)


def measured(loop: Loop, n_loops: int) -> dict[str, Any]:
    """Walk loops of one kind by the three rules on the same draws."""
    row = described(loop) | {"loops": n_loops}
    rules = {
        "ledger": by_ledger(loop),
        "bonferroni": by_bonferroni(loop, 1),
        "bonferroni_one_sided": by_bonferroni(loop, 2),
    }
    for name, rule in rules.items():
        walk = Walk(loop, rule, n_loops, seed=20211004).walk()
        row[name] = {
            "false": share(int(walk.is_false.sum()), n_loops),
            "found": {str(at): float(kept.mean()) for at, kept in walk.found.items()},
        }
    return row


def described(loop: Loop) -> dict[str, Any]:
    """Return the row's description of its loops."""
    return {
        "name": loop.name,
        "test": loop.test,
        "seeds": list(loop.seeds),
        "gain": max(loop.gains.values(), default=0.0),
        "correlation": loop.correlation,
        "spreads": list(loop.spreads),
        "tails": loop.tails,
        "items": loop.items,
        "planned_looks": loop.looks,
        "again": bool(loop.again_below),
        "champion": "run anew" if loop.is_run_anew else "by its runs",
    }


def share(count: int, n: int) -> dict[str, float]:
    """Return a share with its exact 95 % interval (Clopper and Pearson 1934)."""
    low = float(beta.ppf(0.025, count, n - count + 1)) if count else 0.0
    high = float(beta.ppf(0.975, count + 1, n - count)) if count < n else 1.0
    return {"share": count / n, "low": low, "high": high}


def judged(loop: Loop, n_loops: int) -> dict[str, Any]:
    """Walk loops by the judge of the program, with a ledger's file and with Bonferroni's levels."""
    row = described(loop) | {"loops": n_loops, "test": "judge"}
    levels = {"ledger": None, "bonferroni": 0.05 / CANDIDATES}
    levels["bonferroni_one_sided"] = 2 * 0.05 / CANDIDATES
    for name, level in levels.items():
        rng = np.random.default_rng(20190606)
        n_false = 0
        found = dict.fromkeys(loop.gains, 0)
        for _ in range(n_loops):
            with tempfile.TemporaryDirectory() as folder:
                path = Path(folder) / "loop.jsonl"
                is_false, kept = walk_judged(loop, rng, path if level is None else level)
            n_false += is_false
            for at in kept:
                found[at] += 1
        row[name] = {
            "false": share(n_false, n_loops),
            "found": {str(at): count / n_loops for at, count in found.items()},
        }
    return row


def walk_judged(
    loop: Loop, rng: np.random.Generator, judging: Path | float
) -> tuple[bool, list[int]]:
    """Walk one loop by a ledger or at one level.

    Return whether anything was kept falsely, and which gains were kept.
    """
    plan = LedgerPlan(SCORE.name, is_lower_better=False, looks=loop.looks)
    mean, is_false, found = 0.0, False, []
    champion = draw_scores(loop, rng)
    for number in range(1, CANDIDATES + 1):
        gain = loop.gains.get(number, 0.0)
        candidate = mean + gain + draw_scores(loop, rng)
        scores = scores_of(loop, champion, candidate)
        if isinstance(judging, float):
            is_kept = judged_at(judging, scores)[0].verdict == "better"
        else:
            base, new = (described_runs(scores, arm) for arm in (0, 1))
            with open_ledger(judging, plan) as ledger:
                level = ledger.level_for([new], base)
                is_kept = bool(ledger.record(judged_at(level, scores)).kept)
        if is_kept:
            champion = candidate
            mean += gain
            is_false |= not gain
            found += [number] if gain else []
    return is_false, found


def draw_scores(loop: Loop, rng: np.random.Generator) -> Numbers:
    """Draw the scores of an arm's runs on each item, ``[S, U]``, or in all, ``[S, 1]``.

    Over seeds a run's score varies by 1, half of the variance from each item anew. An arm's taste
    for items moves its mean by half as much.
    """
    (n_seeds,) = loop.seeds
    noise = rng.standard_normal((n_seeds, 1))
    if not loop.items:
        return noise
    taste = 0.5 * np.sqrt(loop.items) * rng.standard_normal((1, loop.items))
    own = np.sqrt(loop.items) * rng.standard_normal((n_seeds, loop.items))
    scores: Numbers = np.sqrt(0.5) * (noise + own) + taste
    return scores


def scores_of(loop: Loop, champion: Numbers, candidate: Numbers) -> RunScores:
    """Arrange the scores of a champion and a candidate for the judge."""
    stacked = np.stack([champion, candidate])  # [A, S, U]
    values = stacked.mean(2)
    effects = (stacked - values[:, :, None]) / stacked.shape[2] if loop.items else None
    has_failed = np.zeros(values.shape, dtype=np.bool_)
    seeds = tuple(range(values.shape[1]))
    return RunScores(("base", "new"), seeds, values, has_failed, effects, loop.items or None)


def described_runs(scores: RunScores, arm: int) -> LedgerRuns:
    """Describe an arm's runs for a ledger."""
    values = dict(zip(scores.seeds, scores.values[arm].tolist(), strict=True))
    effects = scores.effects
    items = None if effects is None else dict(zip(scores.seeds, effects[arm], strict=True))
    return runs_of(scores.arms[arm], values, items)


def judged_at(level: float, scores: RunScores) -> Sequence[Difference]:
    """Judge a candidate by the judge of the program."""
    n_seeds, contrasts = len(scores.seeds), [arm_less("new", "base")]
    family = ContrastFamily(scores, contrasts, is_lower_better=False, n_seeds=n_seeds, level=level)
    return family.judge().differences


def table(rows: list[dict[str, Any]]) -> str:
    """Render rows as Markdown: shares of loops in percent, power as the mean over the gains."""
    lines = [
        "| loop | test | seeds | planned looks | loops | false keeps, ledger | Bonferroni, "
        "two-sided | one-sided | gains found, ledger | Bonferroni, two-sided | one-sided |",
        "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for row in rows:
        cells = [
            loop_words(row),
            row["test"],
            ", ".join(map(str, row["seeds"])),
            "no end" if row["planned_looks"] is None else str(row["planned_looks"]),
            f"{row['loops']:,}",
        ]
        rules = [row.get(name) for name in ("ledger", "bonferroni", "bonferroni_one_sided")]
        for index, rule in enumerate(rules):
            if rule is None:
                cells.append("")
            elif index:
                cells.append(f"{100 * rule['false']['share']:.2f}")
            else:
                false = rule["false"]
                low, high = 100 * false["low"], 100 * false["high"]
                cells.append(f"{100 * false['share']:.2f} ({low:.2f} to {high:.2f})")
        for rule in rules:
            found = list(rule["found"].values()) if rule else []
            cells.append(f"{100 * np.mean(found):.1f}" if found else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def loop_words(row: Mapping[str, Any]) -> str:
    """Describe a row's loop in words."""
    words = [row["name"]]
    if row["gain"]:
        words[0] += f" of {row['gain']:g} sd"
    if row["correlation"]:
        words.append(f"seeds correlated at {row['correlation']:g}")
    if len(row["spreads"]) > 1:
        words.append("spreads × 1, 2 or 4")
    if row["tails"] != "normal":
        words.append(f"{row['tails']} runs")
    if row["items"]:
        words.append(f"{row['items']} items with tastes")
    if row["again"]:
        words.append("second look with 8 seeds where p < 0.2")
    if row["champion"] == "run anew":
        words.append("champion run anew")
    return ", ".join(words)


def main() -> None:
    """Walk all loops, print their table, keep the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("by", choices=["tests", "judge"])
    parser.add_argument("--loops", type=int, help="of each kind; unless given 20,000 or 200")
    parser.add_argument("--quick", action="store_true", help="a tenth of the loops")
    parser.add_argument("--out", type=Path, help="where results are kept, without the suffix")
    options = parser.parse_args()
    is_judged = options.by == "judge"
    n_loops = options.loops or (200 if is_judged else 20_000)
    n_loops = n_loops // 10 if options.quick else n_loops
    begun = time.monotonic()
    rows = []
    for loop in judged_loops() if is_judged else loops():
        rows.append(judged(loop, n_loops) if is_judged else measured(loop, n_loops))
        print(table(rows[-1:]).splitlines()[-1], flush=True)
    minutes = (time.monotonic() - begun) / 60
    if options.quick:
        return
    conditions = describe_conditions("cpu")
    result = {"conditions": conditions, "minutes": minutes, "rows": rows}
    head = (
        f"{conditions['time']}, commit {conditions['commit']}: "
        f"{conditions['machine']['processor']}; `python benchmarks/ledger_errors.py {options.by}`, "
        f"{minutes:.0f} minutes.\n\n"
        f"Loops of {CANDIDATES} candidates against a moving champion. False keeps: the share of "
        "loops, in percent, that keep at least one candidate that is no better, with its exact "
        "95 % interval. Gains found: the share, in percent, of the candidates that are better. "
        "The three rules judge the same draws.\n\n"
    )
    name = result_name("cpu", "ledger-judge" if is_judged else "ledger")
    keep(result, f"{head}{table(rows)}\n", options.out or RESULTS / name)


if __name__ == "__main__":
    main()
