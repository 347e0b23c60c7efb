"""The verdict on a contrast: effect, interval, decision."""

from dataclasses import dataclass
from typing import Literal

from sublayer.statistics.simultaneous import Parts

Verdict = Literal["better", "worse", "no difference that matters", "cannot tell", "no verdict"]
"""There is none where one seed was planned, or where two arms cannot be compared."""
DECIDED: frozenset[Verdict] = frozenset({"better", "worse", "no difference that matters"})

CONFIDENCE = 0.95
"""Of all intervals of a study together, at the number of seeds that was planned."""
ERROR = 0.05
POWER = 0.8
"""Of a test, at the difference that is called detectable."""
FEWEST_SEEDS = 3
"""Of each arm, from which on a variance over seeds is estimated."""
MOST_SEEDS = 1000
"""More are never proposed."""


@dataclass(frozen=True)
class Difference:
    """One arm less another, over the seeds that finished, in the metric's unit.

    What needs two seeds of both is None where there are fewer.
    """

    arm: str
    baseline: str
    seeds: tuple[int, ...]
    """Those that both finished, in order."""
    mean: float | None
    """None where one of them finished none."""
    sd: float | None = None
    """Standard deviation over seeds of the difference of a single seed."""
    low: float | None = None
    """Of the confidence interval of the mean, simultaneous over all comparisons, at ``level``."""
    high: float | None = None
    p: float | None = None
    """Two-sided, of the same procedure, corrected for comparisons and looks: at most 0.05 where the
    interval excludes 0, and only there."""
    p_raw: float | None = None
    """As ``p``, of this comparison alone and of a single look."""
    verdict: Verdict = "cannot tell"
    standard_error: float | None = None
    """Of the mean, all sources together."""
    parts: Parts | None = None
    level: float = ERROR
    """The probability of a false verdict that this look may spend, all comparisons together."""
    single_level: float | None = None
    """The level of this comparison alone, uncorrected, at which its interval is computed."""
    excluded: float | None = None
    """Larger differences, in either direction, are excluded by the interval."""
    equivalent: float | None = None
    """The smallest margin with which the verdict would be equivalence (two one-sided tests)."""
    n_items: int | None = None
    n_documents: int | None = None
    """None where items belong to no documents, or it is not known."""
    on_this_text: bool = False
    """True where the verdict holds for this test text alone: it is of one or two documents."""
    more_seeds: int | None = None
    """Further seeds with which a difference of the margin would be found four times in five, at the
    level of the look that would judge them. None: no margin, over a thousand, or decided."""
    detectable: float | None = None
    """The true difference that so many seeds find four times in five, at this spread and level."""
    n_failed: tuple[int, int] = (0, 0)
    """Runs of the arm and of its baseline that ended without a score."""
    by_ranks: bool = False
    """True where ranks decide, not the interval: runs failed (the worst), or scores are
    two-valued."""
    n_seeds: int = 0
    """Seeds planned until the look at which it was judged."""
    note: str = ""
    """A remark, such as seeds that are missing."""


@dataclass(frozen=True)
class Pairing:
    """Correlation of arms over seeds."""

    is_paired: bool
    """True where differences were taken seed by seed; not without common seeds."""
    correlation: float
    """Of the scores of two arms over seeds, the mean over all pairs of arms."""
    n_arms: int


@dataclass(frozen=True)
class Judgement:
    """The differences of a family of comparisons."""

    differences: tuple[Difference, ...] = ()
    pairing: Pairing | None = None
    """None where no spread was estimated."""
