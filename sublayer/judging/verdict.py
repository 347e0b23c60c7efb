"""The verdict on runs of any trainer: differences with intervals, and the exit code."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from sublayer.counts import count
from sublayer.errors import ConfigError, DataError
from sublayer.judging.ledger import Look, Plan, open_ledger, runs_of
from sublayer.judging.ledger import Runs as LedgerRuns
from sublayer.judging.runs import Runs
from sublayer.statistics.difference import ERROR, FEWEST_SEEDS, Difference, Verdict
from sublayer.statistics.judge import judge
from sublayer.statistics.scores import Scores, against_baseline

EXIT_CODES: Mapping[Verdict, int] = {
    "better": 0,
    "no difference that matters": 10,
    "cannot tell": 11,
    "no verdict": 11,
    "worse": 12,
}
FEWEST_ITEMS = 10
"""From which on items are judged."""


@dataclass(frozen=True)
class Question:
    """Options of a judgement; empty texts and None: not given."""

    baseline: str = ""
    new: str = ""
    margin: float | None = None
    """Differences smaller than this do not matter, in the metric's unit."""
    look: int | None = None
    looks: int | None = None
    ledger: Path | None = None
    """The file that counts the looks of a loop; ``looks`` are those that the loop has in all."""


@dataclass(frozen=True)
class RunsVerdict:
    """The verdict on runs, with the runs and options that it rests on."""

    metric: str
    is_lower_better: bool
    baseline: str
    runs: Runs
    comparisons: tuple[Difference, ...]
    new: str = ""
    """The arm that was asked for; empty: all."""
    level: float = ERROR
    """The probability of a false verdict that this look spends."""
    margin: float | None = None
    look: int | None = None
    looks: int | None = None
    said: tuple[str, ...] = ()
    """The meaning found for the sources, a line each."""
    ledger: Path | None = None
    in_loop: Look | None = None
    """The look that the ledger has of it."""

    @property
    def verdict(self) -> Verdict:
        """The verdict on the arm that was asked for, or on all: better where any is."""
        if self.new:
            return next(
                difference.verdict for difference in self.comparisons if difference.arm == self.new
            )
        found = {difference.verdict for difference in self.comparisons}
        if "better" in found:
            return "better"
        if found == {"worse"}:
            return "worse"
        return "cannot tell" if found & {"cannot tell", "no verdict"} else _SAME

    @property
    def exit_code(self) -> int:
        """The exit code: 0 better, 10 no difference that matters, 11 cannot tell, 12 worse."""
        return EXIT_CODES[self.verdict]

    @property
    def is_of_items(self) -> bool:
        """True where there is one run per arm, so that only items vary."""
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
    if len(runs.seeds) == 1 and runs.failed.any():
        failed = [
            arm for arm, is_failed in zip(runs.arms, runs.failed[:, 0], strict=True) if is_failed
        ]
        raise DataError(
            f"there is one run per arm, and that of {failed[0]} failed: nothing can be judged over "
            "items"
        )
    if 1 < len(runs.seeds) < FEWEST_SEEDS:
        raise DataError(
            f"there are {len(runs.seeds)} seeds per arm, which give no verdict: run "
            f"{FEWEST_SEEDS} or more"
        )
    look = None
    if question.ledger is None:
        comparisons = _judge(runs, baseline, question, level, is_lower_better=is_lower_better)
    else:
        plan = Plan(metric, is_lower_better, question.margin, question.looks)
        champion, *candidates = _described(runs, baseline)
        with open_ledger(question.ledger, plan) as ledger:
            level = ledger.level_for(candidates, champion)
            comparisons = _judge(runs, baseline, question, level, is_lower_better=is_lower_better)
            look = ledger.record(comparisons)
    return RunsVerdict(
        metric,
        is_lower_better,
        baseline,
        runs,
        comparisons,
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
    """Return the level of this look: an equal share of 5 %."""
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


def _judge(
    runs: Runs, baseline: str, question: Question, level: float, *, is_lower_better: bool
) -> tuple[Difference, ...]:
    """Judge runs over seeds, and over items where those are known; single runs over items alone."""
    has_items = runs.effects is not None and runs.n_items >= FEWEST_ITEMS
    scores = Scores(
        runs.arms,
        tuple(range(len(runs.seeds))),
        runs.values,
        runs.failed,
        runs.effects if has_items else None,
        runs.n_items or None,
        runs.n_documents,
        runs.shares,
    )
    judged = judge(
        scores,
        against_baseline(runs.arms, baseline),
        is_lower_better=is_lower_better,
        n_seeds=len(runs.seeds),
        level=level,
        margin=question.margin,
        resolution=runs.resolution,
        over_items=len(runs.seeds) == 1,
    )
    return judged.differences
