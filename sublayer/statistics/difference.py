"""The verdict on a contrast: effect, interval, decision."""

from dataclasses import dataclass
from typing import Literal

from sublayer.statistics.simultaneous import Parts

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
