"""What is said of one arm against another: the difference, its interval, its verdict."""

from dataclasses import dataclass, field
from typing import Literal

Verdict = Literal["better", "worse", "no difference that matters", "cannot tell", "no verdict"]
"""No verdict is given where one seed was planned, or where a comparison is not to be had."""
DECIDED: frozenset[Verdict] = frozenset({"better", "worse", "no difference that matters"})

CONFIDENCE = 0.95
"""Of all intervals of a study together, over all of its looks."""
FOR_PAIRING = 0.01
"""Of the error of all intervals, what is kept back for the choice whether to pair by seed."""
POWER = 0.8
"""Of a test, at the smallest difference that is called detectable."""
FEWEST_SEEDS = 3
"""Of each arm, from which on a spread over seeds is estimated."""
MOST_SEEDS = 1000
"""More are never proposed."""


@dataclass(frozen=True)
class Parts:
    """What a standard error is made of, each in the metric's unit."""

    seeds: float
    """What would be left of it with endless text: other seeds."""
    items: float | None
    """What would be left of it with endless seeds: other text. None: not known, no item is kept."""
    tuning: float = 0.0
    """What would be left of it with both: another tuning, which may choose otherwise."""


@dataclass(frozen=True)
class Difference:
    """One arm against another: ``arm - baseline``, over the seeds that finished.

    Differences are in the metric's unit. What needs two seeds of both is None where fewer are left.
    """

    arm: str
    baseline: str
    seeds: tuple[int, ...]
    """Those that both finished, in order."""
    mean: float | None
    """None where one of them finished none."""
    sd: float | None = None
    """Over seeds, of the difference of one seed each, as it is estimated from all arms."""
    low: float | None = None
    """Of the 95% CI of the mean, simultaneous over all comparisons and valid at every look."""
    high: float | None = None
    p: float | None = None
    """Two-sided, of the same procedure: at most 0.05 where the interval leaves 0 out, only there.
    """
    p_raw: float | None = None
    """As ``p``, of this comparison alone and of one look."""
    verdict: Verdict = "cannot tell"
    standard_error: float | None = None
    """Of the mean, over seeds and items together."""
    parts: Parts | None = None
    more_seeds: int | None = None
    """About how many more would decide four times in five, were the difference the one observed.

    None: more than a thousand, or not a question of seeds.
    """
    fewest_more_seeds: int | None = None
    """As ``more_seeds``, were the spread over seeds at the lower end of its 95% CI."""
    most_more_seeds: int | None = None
    """As ``more_seeds``, were the spread over seeds at the upper end of its 95% CI."""
    detectable: float | None = None
    """The smallest true difference that so many seeds decide four times in five, at this spread."""
    n_failed: tuple[int, int] = (0, 0)
    """Runs of the arm and of its baseline that ended without a score."""
    by_ranks: bool = False
    """Whether runs failed, so that ranks decide, a failed run as the worst, and not the interval.
    """
    n_seeds: int = 0
    """Of the look at which it was judged: the seeds that were planned until then."""
    note: str = ""
    """What the numbers cannot say, in words."""


@dataclass(frozen=True)
class Pairing:
    """Whether arms are compared seed by seed, and what that brought."""

    is_paired: bool
    correlation: float
    """Of two arms' values of the same seed, over all arms."""
    n_arms: int


@dataclass(frozen=True)
class Judgement:
    """The differences of a family of comparisons."""

    differences: tuple[Difference, ...] = ()
    pairing: Pairing | None = None
    """None where no spread was estimated."""
    margin: float | None = None
    """Differences smaller than this do not matter, in the metric's unit; None: none was named."""
    level: float = field(default=1.0 - CONFIDENCE)
    """The probability of a false verdict that this look may spend, all comparisons together."""
