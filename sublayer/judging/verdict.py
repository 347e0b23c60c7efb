"""The verdict on runs of any trainer: differences with intervals, and what a program is told."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from sublayer.counts import count
from sublayer.errors import ConfigError, DataError
from sublayer.judging.runs import Runs
from sublayer.statistics.ledger import Look, Plan, open_ledger, runs_of
from sublayer.statistics.ledger import Runs as LedgerRuns

Verdict = Literal["better", "worse", "no difference that matters", "cannot tell", "no verdict"]
EXIT_CODES: Mapping[Verdict, int] = {
    "better": 0,
    "no difference that matters": 10,
    "cannot tell": 11,
    "no verdict": 11,
    "worse": 12,
}
ERROR = 0.05
"""The probability of a false verdict, of all arms and looks together."""
FEWEST_SEEDS = 3
FEWEST_ITEMS = 10
"""Of one run an arm."""


@dataclass(frozen=True)
class Question:
    """What is asked of runs; empty texts and None: nothing."""

    baseline: str = ""
    new: str = ""
    margin: float | None = None
    """Differences smaller than this do not matter, in the metric's unit."""
    look: int | None = None
    looks: int | None = None
    ledger: Path | None = None
    """The file that counts the looks of a loop; ``looks`` are those that the loop has in all."""


@dataclass(frozen=True)
class Comparison:
    """An arm against the baseline: ``arm - baseline``, in the metric's unit."""

    arm: str
    baseline: str
    verdict: Verdict
    mean: float | None
    low: float | None
    high: float | None
    p: float | None
    n_failed: tuple[int, int] = (0, 0)
    """Failed runs of the arm and of its baseline."""
    by_ranks: bool = False
    """Whether runs failed, so that ranks decide, a failed run as the worst."""


@dataclass(frozen=True)
class RunsVerdict:
    """The verdict on runs, with what it rests on."""

    metric: str
    is_lower_better: bool
    baseline: str
    runs: Runs
    comparisons: tuple[Comparison, ...]
    new: str = ""
    """The arm that was asked for; empty: all."""
    level: float = ERROR
    """The probability of a false verdict that this look spends."""
    margin: float | None = None
    look: int | None = None
    looks: int | None = None
    said: tuple[str, ...] = ()
    """How the sources were read, a line each."""
    ledger: Path | None = None
    in_loop: Look | None = None
    """The look that the ledger has of it."""

    @property
    def verdict(self) -> Verdict:
        """The verdict on the arm that was asked for, or on all: better where any is."""
        if self.new:
            return next(each.verdict for each in self.comparisons if each.arm == self.new)
        found = {each.verdict for each in self.comparisons}
        if "better" in found:
            return "better"
        if found == {"worse"}:
            return "worse"
        return "cannot tell" if found & {"cannot tell", "no verdict"} else _SAME

    @property
    def exit_code(self) -> int:
        """What the command ends with: 0 better, 10 no difference, 11 cannot tell, 12 worse."""
        return EXIT_CODES[self.verdict]

    @property
    def is_of_items(self) -> bool:
        """Whether each arm is one run, so that only items vary."""
        return len(self.runs.seeds) == 1

    def mean_of(self, arm: str) -> float | None:
        """Return the mean of an arm's runs that did not fail."""
        values = self.runs.values[self.runs.arms.index(arm)]
        known = values[np.isfinite(values)]
        return float(known.mean()) if known.size else None


_SAME: Verdict = "no difference that matters"


def judge_runs(
    runs: Runs, question: Question, *, metric: str, is_lower_better: bool, said: Sequence[str] = ()
) -> RunsVerdict:
    """Judge runs; raise ConfigError for a question that has no meaning, DataError for too few."""
    baseline = _baseline(runs, question)
    level = _level(question)
    if len(runs.arms) < 2:
        raise DataError(f"there is one arm, {runs.arms[0]}: give another to judge against it")
    if len(runs.seeds) == 1 and runs.effects is None:
        raise DataError(
            "there is one run per arm, and no items: one run says nothing of others. Give at "
            "least 3 seeds of each arm, or what each item of the test scored"
        )
    if len(runs.seeds) == 1 and runs.n_items < FEWEST_ITEMS:
        raise DataError(
            f"there is one run per arm, of {count(runs.n_items, 'item')}: over items alone a "
            f"verdict takes {FEWEST_ITEMS} or more"
        )
    if 1 < len(runs.seeds) < FEWEST_SEEDS:
        raise DataError(
            f"there are {len(runs.seeds)} seeds per arm, which give no verdict: run "
            f"{FEWEST_SEEDS} or more"
        )
    compare = _by_items if len(runs.seeds) == 1 else _by_seeds
    look = None
    if question.ledger is None:
        comparisons = compare(runs, baseline, question, level, is_lower_better=is_lower_better)
    else:
        plan = Plan(metric, is_lower_better, question.margin, question.looks)
        champion, *candidates = _described(runs, baseline)
        with open_ledger(question.ledger, plan) as ledger:
            level = ledger.level_for(candidates, champion)
            comparisons = compare(runs, baseline, question, level, is_lower_better=is_lower_better)
            look = ledger.record(comparisons)
    return RunsVerdict(
        metric,
        is_lower_better,
        baseline,
        runs,
        tuple(comparisons),
        new=question.new,
        level=level,
        margin=question.margin,
        look=question.look,
        looks=question.looks if question.ledger is None else None,
        said=(*said, *runs.said),
        ledger=question.ledger,
        in_loop=look,
    )


def _described(runs: Runs, baseline: str) -> list[LedgerRuns]:
    """Describe the runs of all arms for a ledger, the baseline's first."""
    described = []
    for arm in sorted(runs.arms, key=lambda arm: arm != baseline):
        place = runs.arms.index(arm)
        is_known = dict(zip(runs.seeds, ~runs.failed[place], strict=True))
        values = dict(zip(runs.seeds, runs.values[place].tolist(), strict=True))
        effects = None
        if runs.effects is not None:
            effects = dict(zip(runs.seeds, runs.effects[place], strict=True))
        known = {seed: values[seed] if is_known[seed] else None for seed in runs.seeds}
        described.append(runs_of(arm, known, effects))
    return described


def _baseline(runs: Runs, question: Question) -> str:
    for option, name in (("--baseline", question.baseline), ("--new", question.new)):
        if name and name not in runs.arms:
            raise ConfigError(f"{option} {name} is no arm: there are {', '.join(runs.arms)}")
    first = next(arm for arm in runs.arms if arm != question.new) if len(runs.arms) > 1 else ""
    baseline = question.baseline or first
    if question.new and question.new == baseline:
        raise ConfigError(f"--baseline and --new are both {baseline}: name two arms")
    return baseline


def _level(question: Question) -> float:
    """Return what this look may spend of the probability of a false verdict: an equal share."""
    if question.margin is not None and not 0.0 < question.margin < math.inf:
        raise ConfigError(
            f"--margin {question.margin:g} is no size of a difference: give one above 0, in the "
            "metric's unit"
        )
    look, looks = question.look, question.looks
    if question.ledger is not None:
        if look is not None:
            raise ConfigError(f"--look {look} has no effect: --ledger counts the looks")
        return ERROR
    if (look is None) != (looks is None):
        given, other = ("--look", "--looks") if looks is None else ("--looks", "--look")
        raise ConfigError(f"{given} has a meaning beside {other} alone: give both, or neither")
    if look is None or looks is None:
        return ERROR
    if looks < 1 or not 1 <= look <= looks:
        raise ConfigError(
            f"--look {look} is none of {count(looks, 'planned look')}: a verdict holds for the "
            "looks that were planned before the first"
        )
    return ERROR / looks


def _by_seeds(
    runs: Runs, baseline: str, question: Question, level: float, *, is_lower_better: bool
) -> list[Comparison]:
    """Judge runs that vary over seeds, and over items where those are known.

    All that is asked of the package of statistics is asked here.
    """
    from sublayer.statistics.judge import judge
    from sublayer.statistics.scores import Scores, against_baseline

    has_items = runs.effects is not None and runs.n_items >= FEWEST_ITEMS
    scores = Scores(
        runs.arms,
        tuple(range(len(runs.seeds))),
        runs.values,
        runs.failed,
        runs.effects if has_items else None,
        runs.n_items or None,
        runs.n_documents,
    )
    judged = judge(
        scores,
        against_baseline(runs.arms, baseline),
        is_lower_better=is_lower_better,
        n_seeds=len(runs.seeds),
        level=level,
        margin=question.margin,
        resolution=runs.resolution,
    )
    return [
        Comparison(
            each.arm,
            each.baseline,
            each.verdict,
            each.mean,
            each.low,
            each.high,
            each.p,
            each.n_failed,
            each.by_ranks,
        )
        for each in judged.differences
    ]


def _by_items(
    runs: Runs, baseline: str, question: Question, level: float, *, is_lower_better: bool
) -> list[Comparison]:
    """Judge two runs, or one of each arm, over items: paired t, Bonferroni's over arms."""
    from scipy.special import stdtr, stdtrit

    assert runs.effects is not None, "one run an arm is judged over its items"
    margin = question.margin
    base = runs.arms.index(baseline)
    comparisons = []
    for a, arm in enumerate(runs.arms):
        if a == base:
            continue
        moved = runs.effects[a, 0] - runs.effects[base, 0]  # [U]
        mean = float(runs.values[a, 0] - runs.values[base, 0])
        n_failed = (int(runs.failed[a, 0]), int(runs.failed[base, 0]))
        if any(n_failed):
            raise DataError(
                f"of {arm} and {baseline} one run each is there, and one failed: nothing can be "
                "judged over items"
            )
        n_units = len(moved)
        error = math.sqrt(float((moved**2).sum()) * n_units / (n_units - 1))
        n_comparisons = len(runs.arms) - 1
        half = -float(stdtrit(n_units - 1, level / n_comparisons / 2)) * error
        p = float(mean == 0.0)
        if error:
            p = min(1.0, n_comparisons * 2 * float(stdtr(n_units - 1, -abs(mean) / error)))
        low, high = mean - half, mean + half
        verdict: Verdict = "cannot tell"
        if margin is not None and -margin < low and high < margin:
            verdict = _SAME
        elif low > 0.0 or high < 0.0:
            verdict = "better" if (high < 0.0) == is_lower_better else "worse"
        comparisons.append(Comparison(arm, baseline, verdict, mean, low, high, p))
    return comparisons
