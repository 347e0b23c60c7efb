"""Contrasts of arms: the scores of runs and of tuning trials, and the verdict on each contrast."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
_DRAWS = 4000
_SEED = 19690127
_FREEDOM = 4.0
"""Weight of the arm's variance, in degrees of freedom, when pooled with that of a trial's runs."""


@dataclass(frozen=True)
class RunScores:
    """A metric of runs, in its unit, with the contribution of each unit of the test.

    Axes: arms A, seeds S, units of the test U (documents, or items of a test without documents).
    """

    arms: tuple[str, ...]
    seeds: tuple[int, ...]
    """In the order of their runs: a look takes the first."""
    values: Numbers
    """``[A, S]``; NaN for a run without a score."""
    failed: NDArray[np.bool_]
    """``[A, S]``: runs that ended without a score."""
    effects: Numbers | None = None
    """``[A, S, U]``: derivative of the metric with respect to the weight of each unit, 0 on average
    (infinitesimal jackknife); NaN for runs without kept items. None: no run has any."""
    n_items: int | None = None
    n_documents: int | None = None
    """None if items belong to no documents, or if unknown."""
    shares: Numbers | None = None
    """``[U]``, the share of the test in each unit. None: units are of equal size."""

    @classmethod
    def of(
        cls,
        values: Mapping[str, Mapping[int, float]],
        *,
        failed: Mapping[str, Collection[int]] | None = None,
        effects: Mapping[str, Mapping[int, Numbers]] | None = None,
        n_items: int | None = None,
        n_documents: int | None = None,
        shares: Numbers | None = None,
    ) -> "RunScores":
        """Arrange mappings by arm and seed as arrays; seeds in ascending order."""
        failed, effects = failed or {}, effects or {}
        arms = tuple(values)
        seeds = {seed for arm in arms for seed in (*values[arm], *failed.get(arm, ()))}
        ordered = tuple(sorted(seeds))
        shape = len(arms), len(ordered)
        n_units = {len(units) for arm in arms for units in effects.get(arm, {}).values()}
        runs = [(arm, seed) for arm in arms for seed in ordered]
        table = np.array([values[arm].get(seed, np.nan) for arm, seed in runs], np.float64)
        has_failed = np.array([seed in failed.get(arm, ()) for arm, seed in runs], np.bool_)
        moved = None
        for n in n_units:  # at most one number: all runs of a test have the same units
            unknown = np.full(n, np.nan)
            rows = [effects.get(arm, {}).get(seed, unknown) for arm, seed in runs]
            moved = np.array(rows, np.float64).reshape(*shape, n)
        table, has_failed = table.reshape(shape), has_failed.reshape(shape)
        return cls(arms, ordered, table, has_failed, moved, n_items, n_documents, shares)

    def first(self, n_seeds: int) -> "RunScores":
        """Return the scores of the first ``n_seeds`` seeds."""
        effects = None if self.effects is None else self.effects[:, :n_seeds]
        return replace(
            self,
            seeds=self.seeds[:n_seeds],
            values=self.values[:, :n_seeds],
            failed=self.failed[:, :n_seeds],
            effects=effects,
        )

    def row(self, arm: str) -> Numbers:
        """Return the scores of an arm, ``[S]``; all NaN for an arm without runs."""
        if arm not in self.arms:
            return np.full(len(self.seeds), np.nan)
        row: Numbers = self.values[self.arms.index(arm)]
        return row

    def scores_of(self, arm: str) -> Numbers:
        """Return the scores of those runs of an arm that have one."""
        row = self.row(arm)
        return row[~np.isnan(row)]

    def n_failed(self, arms: Iterable[str]) -> int:
        """Count the failed runs of arms."""
        return sum(int(self.failed[self.arms.index(arm)].sum()) for arm in arms if arm in self.arms)

    def common(self, arms: Iterable[str]) -> NDArray[np.bool_]:
        """Return the mask of seeds with a score in all of ``arms``, ``[S]``."""
        shared = np.ones(len(self.seeds), dtype=np.bool_)
        for arm in arms:
            shared &= ~np.isnan(self.row(arm))
        return shared


@dataclass(frozen=True)
class Contrast:
    """A weighted sum of the means of arms, 0 if all are equal; mostly one arm less another."""

    arm: str
    """The arm, or the name of the contrast."""
    baseline: str
    """The subtracted arm; empty for a contrast of more than two."""
    weights: Mapping[str, float] = field(default_factory=dict)
    """By arm; they add up to 0."""

    @property
    def names(self) -> tuple[str, str]:
        """The names that identify it among other contrasts."""
        return self.arm, self.baseline

    def side(self, sign: float) -> list[str]:
        """Return the arms with weights of the given sign."""
        return [arm for arm, weight in self.weights.items() if sign * weight > 0]

    def of_seeds(self, scores: RunScores) -> dict[int, float]:
        """Return the contrast of each seed common to its arms."""
        shared = scores.common(self.weights)
        total = np.zeros(len(scores.seeds))
        for arm, weight in self.weights.items():
            total += weight * scores.row(arm)
        return {
            seed: float(value)
            for seed, value, is_shared in zip(scores.seeds, total, shared, strict=True)
            if is_shared
        }

    def mean_of(self, scores: RunScores) -> float | None:
        """Return the contrast of the arms' means over all runs; None if an arm has none."""
        total = []
        for arm, weight in self.weights.items():
            values = scores.scores_of(arm)
            if not len(values):
                return None
            total.append(weight * math.fsum(values) / len(values))
        return math.fsum(total)


def arm_less(arm: str, baseline: str) -> Contrast:
    """Return the contrast of one arm less another."""
    return Contrast(arm, baseline, {arm: 1.0, baseline: -1.0})


def against_baseline(
    arms: Iterable[str], baseline: str, against: Mapping[str, str] | None = None
) -> list[Contrast]:
    """Return the contrast of each arm with the baseline, or with its arm in ``against``.

    An arm against itself is a control, without a contrast.
    """
    against = against or {}
    pairs = [(arm, against.get(arm, baseline)) for arm in arms]
    return [arm_less(arm, other) for arm, other in pairs if arm != other]


def weights_of(contrasts: Sequence[Contrast], arms: Sequence[str]) -> Numbers:
    """Return the weights of contrasts as an array, ``[C, A]``."""
    rows = [[contrast.weights.get(arm, 0.0) for arm in arms] for contrast in contrasts]
    return np.array(rows, dtype=np.float64).reshape(len(contrasts), len(arms))


@dataclass(frozen=True)
class Tuned:
    """Validation scores of an arm's trials, lower is better, in the unit of the judged metric."""

    scores: tuple[float, ...]
    """Mean of each trial over its runs. The lowest was selected."""
    n_runs: int
    """Runs of each trial."""
    compared: Mapping[int, float] = field(default_factory=dict)
    """Scores of the compared runs, by seed: further runs of the selected trial."""
    runs: tuple[Sequence[float], ...] = ()
    """The scores of each trial's runs, by tuning seed, if known."""

    def of_seeds(self, seeds: Iterable[int]) -> "Tuned":
        """Return the trials with only the scores of these compared seeds."""
        compared = {seed: self.compared[seed] for seed in seeds if seed in self.compared}
        return replace(self, compared=compared)

    def choice_variance(self, variance: float) -> float:
        """Estimate the variance of an arm's score over repetitions of its hyperparameter search.

        ``variance`` is a single run's, without the part that trials share by seed. The search is
        repeated by parametric bootstrap, around the observed scores of the trials; the selected
        trial has the score of the compared runs, since chance helped select it. The noise in
        squared distances between trials is subtracted, down to half of them.
        """
        n_trials = len(self.scores)
        if n_trials < 2 or variance <= 0.0:
            return 0.0
        generator = np.random.default_rng(_SEED)
        scores = np.array(self.scores)
        best = int(scores.argmin())
        # Of a run of each trial: the arm's, and the trial's.
        variances = np.full(n_trials, variance)
        if len(self.runs) == n_trials:
            selected = np.array(self.runs[best])
            for index, runs in enumerate(self.runs):
                is_paired, n = len(runs) == len(selected), len(runs)
                differences = np.array(runs) - selected if is_paired else np.array(runs)
                if n > 1 and float(np.ptp(differences)) > 0.0:
                    observed = float(differences.var(ddof=1)) / (2.0 if is_paired else 1.0)
                    variances[index] = (_FREEDOM * variance + (n - 1) * observed) / (
                        _FREEDOM + n - 1
                    )
        errors = variances / self.n_runs  # of each trial's score
        noise = errors + errors[best]
        if self.compared:
            scores[best] = math.fsum(self.compared.values()) / len(self.compared)
            noise = errors + errors[best] * self.n_runs / len(self.compared)
        drawn = scores + np.sqrt(errors) * generator.standard_normal((_DRAWS, n_trials))
        distances = (scores - scores[best]) ** 2
        distances = np.maximum(distances - noise, distances / 2.0)
        distances[best] = 0.0
        return float(distances[drawn.argmin(1)].mean())


Verdict = Literal["better", "worse", "no difference that matters", "cannot tell", "no verdict"]
"""No verdict: a single planned seed, or two arms that cannot be compared."""
DECIDED: frozenset[Verdict] = frozenset({"better", "worse", "no difference that matters"})

CONFIDENCE = 0.95
"""Confidence level of all intervals of a study together, at the planned number of seeds."""
ERROR = 0.05
POWER = 0.8
"""Power of a test at the detectable difference."""
FEWEST_SEEDS = 3
"""Fewest planned seeds per arm for a verdict by the variance over seeds."""
MOST_SEEDS = 1000
"""Most seeds that are proposed."""


@dataclass(frozen=True)
class Parts:
    """Standard errors of a difference by source, each in the metric's unit."""

    seeds: float
    """Due to seeds: the standard error with an unlimited test set."""
    items: float | None
    """Due to test items: the standard error with unlimited seeds. None without kept items."""
    tuning: float = 0.0
    """Due to hyperparameter selection: the standard error with both."""


@dataclass(frozen=True)
class Difference:
    """One arm less another, over the seeds that finished, in the metric's unit.

    Fields that need two seeds of both are None with fewer.
    """

    arm: str
    baseline: str
    seeds: tuple[int, ...]
    """Seeds that both arms finished, in order."""
    mean: float | None
    """None if one of the arms finished no run."""
    sd: float | None = None
    """Standard deviation over seeds of a single seed's difference."""
    low: float | None = None
    """Lower end of the mean's confidence interval, simultaneous over comparisons, at ``level``."""
    high: float | None = None
    p: float | None = None
    """Two-sided, from the same procedure, corrected for comparisons and looks: at most 0.05 if and
    only if the interval excludes 0."""
    p_raw: float | None = None
    """As ``p``, for this comparison alone and a single look, uncorrected."""
    verdict: Verdict = "cannot tell"
    standard_error: float | None = None
    """Standard error of the mean, all sources together."""
    parts: Parts | None = None
    level: float = ERROR
    """Probability of a false verdict allotted to this look, over all comparisons."""
    single_level: float | None = None
    """Uncorrected level of this comparison, at which its interval is computed."""
    excluded: float | None = None
    """Bound of the interval: larger differences, in either direction, are excluded."""
    equivalent: float | None = None
    """Smallest margin for a verdict of equivalence (two one-sided tests)."""
    n_items: int | None = None
    n_documents: int | None = None
    """None if items belong to no documents, or if unknown."""
    on_this_text: bool = False
    """True if the verdict holds only for this test text of one or two documents."""
    more_seeds: int | None = None
    """Further seeds that detect a difference of the margin with power 0.8, at the level of their
    look. None: no margin, over a thousand, or decided."""
    detectable: float | None = None
    """True difference that this many seeds detect with power 0.8, at this spread and level."""
    n_failed: tuple[int, int] = (0, 0)
    """Runs of the arm and of its baseline that ended without a score."""
    by_ranks: bool = False
    """True if ranks decide, not the interval: runs failed (the worst), or scores are two-valued."""
    n_seeds: int = 0
    """Seeds planned until the look of this judgement."""
    note: str = ""
    """A remark, such as missing seeds."""


@dataclass(frozen=True)
class Pairing:
    """Correlation of arms over seeds."""

    is_paired: bool
    """True if differences are paired by seed; False with fewer than two common seeds."""
    correlation: float
    """Correlation of two arms' scores over seeds, averaged over all pairs of arms."""
    n_arms: int


@dataclass(frozen=True)
class Judgement:
    """The differences of a family of comparisons."""

    differences: tuple[Difference, ...] = ()
    pairing: Pairing | None = None
    """None if no spread was estimated."""
