"""What a comparison of so many seeds will be able to find, before anything is spent."""

import math

import numpy as np

from sublayer.study.judgement.contrast import arm_less, shared_correlation
from sublayer.study.judgement.difference import FEWEST_SEEDS
from sublayer.study.judgement.looks import Looks
from sublayer.study.judgement.power import detectable_effect
from sublayer.study.judgement.simultaneous import Family


def expected_detectable(
    spread: float, *, n_arms: int, looks: Looks, item_error: float = 0.0
) -> float:
    """Compute the true difference that is found four times in five, in the unit of ``spread``.

    ``spread`` is the standard deviation over seeds of one arm, the same of all, whose seeds do not
    vary together; ``item_error`` is the standard error of a difference over the items of the test,
    which no seed takes away. Of a comparison with several looks, at the last.
    """
    n_seeds = looks.planned[-1]
    n_comparisons = n_arms - 1
    level = looks.levels(looks.planned, n_comparisons)[n_seeds]
    own = n_seeds - 1
    # Two arms have Welch's test; of more the common spread counts as much as each arm's own.
    freedom = min(2.0 * own * (1.0 + min(1.0, (n_arms - 2) / 2)), float(n_arms * own))
    contrasts = [arm_less(str(arm), "baseline") for arm in range(n_comparisons)]
    correlation = shared_correlation(contrasts) if contrasts else np.eye(1)
    single = Family(correlation, [freedom] * max(1, n_comparisons)).single(level)
    variance = 2.0 * spread**2 / n_seeds + item_error**2
    return detectable_effect(round(freedom, 1), single) * math.sqrt(variance)


def has_verdict(looks: Looks) -> bool:
    """Return whether there are seeds enough for a verdict."""
    return looks.planned[-1] >= FEWEST_SEEDS
