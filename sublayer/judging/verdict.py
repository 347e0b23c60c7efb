"""The verdict on runs of any trainer: differences with intervals, and the exit code."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sublayer.counts import count
from sublayer.errors import ConfigError, DataError
from sublayer.judging.ledger import LedgerLook, LedgerPlan, open_ledger, runs_of
from sublayer.judging.options import JudgingOptions
from sublayer.judging.runs import ScoredRuns
from sublayer.statistics.difference import FEWEST_SEEDS, Difference, Verdict
from sublayer.statistics.judge import ContrastFamily
from sublayer.statistics.scores import RunScores, against_baseline

EXIT_CODES: Mapping[Verdict, int] = {
    "better": 0,
    "no difference that matters": 10,
    "cannot tell": 11,
    "no verdict": 11,
    "worse": 12,
}
FEWEST_ITEMS = 10
"""Number of items from which on they are judged."""


@dataclass(frozen=True)
class RunsVerdict:
    """The verdict on runs, with the judged runs and options."""

    asked: JudgingOptions
    metric: str
    is_lower_better: bool
    baseline: str
    runs: ScoredRuns
    comparisons: tuple[Difference, ...]
    level: float
    """The probability of a false verdict that this look spends."""
    said: tuple[str, ...] = ()
    """Interpretations of the sources, a line each."""
    in_loop: LedgerLook | None = None
    """The look's entry in the ledger."""

    @property
    def verdict(self) -> Verdict:
        """The verdict on the chosen arm, or on all: better if any is."""
        verdicts = {difference.arm: difference.verdict for difference in self.comparisons}
        if self.asked.new:
            return verdicts[self.asked.new]
        kinds = set(verdicts.values())
        if "better" in kinds:
            return "better"
        if kinds == {"worse"}:
            return "worse"
        is_open = kinds & {"cannot tell", "no verdict"}
        return "cannot tell" if is_open else "no difference that matters"

    @property
    def exit_code(self) -> int:
        """The exit code: 0 better, 10 no difference that matters, 11 cannot tell, 12 worse."""
        return EXIT_CODES[self.verdict]

    @property
    def is_of_items(self) -> bool:
        """True with one run per arm, so that only items vary."""
        return len(self.runs.seeds) == 1

    def mean_of(self, arm: str) -> float | None:
        """Return the mean of an arm's runs that did not fail."""
        values = self.runs.values[self.runs.arms.index(arm)]
        known = values[np.isfinite(values)]
        return float(known.mean()) if known.size else None


def judge_runs(
    runs: ScoredRuns,
    asked: JudgingOptions,
    *,
    metric: str,
    is_lower_better: bool,
    said: Sequence[str] = (),
) -> RunsVerdict:
    """Judge runs; raise ConfigError for unknown arms, DataError for too few runs."""
    for option, name in (("--baseline", asked.baseline), ("--new", asked.new)):
        if name and name not in runs.arms:
            raise ConfigError(f"{option} {name} is no arm: there are {', '.join(runs.arms)}")
    others = [arm for arm in runs.arms if arm != asked.new]
    baseline = asked.baseline or next(iter(others), "")
    if asked.new and asked.new == baseline:
        raise ConfigError(f"--baseline and --new are both {baseline}: name two arms")
    if len(runs.arms) < 2:
        raise DataError(f"there is one arm, {runs.arms[0]}: give another to judge against it")
    n_seeds = len(runs.seeds)
    if 1 < n_seeds < FEWEST_SEEDS:
        raise DataError(
            f"there are {n_seeds} seeds per arm, which give no verdict: run {FEWEST_SEEDS} or more"
        )
    if n_seeds == 1 and runs.n_items < FEWEST_ITEMS:
        raise DataError(
            f"there is one run per arm, with {count(runs.n_items, 'item')}, and one run says "
            f"nothing of others: give at least {FEWEST_SEEDS} seeds of each arm, or what each item "
            f"of the test scored, for {FEWEST_ITEMS} items or more"
        )
    if n_seeds == 1 and runs.failed.any():
        failed = runs.arms[int(runs.failed[:, 0].argmax())]
        raise DataError(
            f"there is one run per arm, and that of {failed} failed: nothing can be judged over "
            "items"
        )
    has_items = runs.effects is not None and runs.n_items >= FEWEST_ITEMS
    scores = RunScores(
        runs.arms,
        tuple(range(n_seeds)),
        runs.values,
        runs.failed,
        runs.effects if has_items else None,
        runs.n_items or None,
        runs.n_documents,
        runs.shares,
    )

    def differences(level: float) -> tuple[Difference, ...]:
        # Over seeds, and known items; single runs only over items.
        family = ContrastFamily(
            scores,
            against_baseline(runs.arms, baseline),
            is_lower_better=is_lower_better,
            n_seeds=n_seeds,
            level=level,
            margin=asked.margin,
            resolution=runs.resolution,
            over_items=n_seeds == 1,
        )
        return family.judge().differences

    look, level = None, asked.level
    if asked.ledger is None:
        comparisons = differences(level)
    else:
        described = []
        for arm, values, failed in zip(runs.arms, runs.values.tolist(), runs.failed, strict=True):
            pairs = zip(runs.seeds, values, failed, strict=True)
            known = {seed: None if is_failed else value for seed, value, is_failed in pairs}
            effects = None
            if runs.effects is not None:
                arm_effects = runs.effects[runs.arms.index(arm)]
                effects = dict(zip(runs.seeds, arm_effects, strict=True))
            described.append(runs_of(arm, known, effects))
        champion = described.pop(runs.arms.index(baseline))
        plan = LedgerPlan(metric, is_lower_better, asked.margin, asked.looks)
        with open_ledger(asked.ledger, plan) as ledger:
            level = ledger.level_for(described, champion)
            comparisons = differences(level)
            look = ledger.record(comparisons)
    lines = (*said, *runs.said)
    return RunsVerdict(
        asked, metric, is_lower_better, baseline, runs, comparisons, level, lines, look
    )
