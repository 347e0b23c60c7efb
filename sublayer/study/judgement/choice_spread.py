"""How far another tuning would move an arm: it may choose another value, for all seeds alike."""

import math
from dataclasses import dataclass

import numpy as np

_DRAWS = 4000
_SEED = 19690127


@dataclass(frozen=True)
class Tuned:
    """What each trial of an arm scored on validation, in the unit of the metric that is judged."""

    scores: tuple[float, ...]
    """Means over the runs of each trial, lower the better."""
    n_runs: int
    """Of each trial."""


def choice_variance(tuned: Tuned, variance: float) -> float:
    """Estimate the variance of an arm's score over tunings, which choose by few runs.

    ``variance`` is that of one run over seeds, less what trials of one seed share. The trials are
    scored again, around what they scored (parametric bootstrap), and what the best of each draw
    scored spreads by so much. Scores of few runs lie further apart than the trials do, so that it
    is rather too large than too small.
    """
    if len(tuned.scores) < 2 or variance <= 0.0:
        return 0.0
    generator = np.random.default_rng(_SEED)
    scores = np.array(tuned.scores)
    error = math.sqrt(variance / tuned.n_runs)
    drawn = scores + error * generator.standard_normal((_DRAWS, len(scores)))
    chosen = scores[drawn.argmin(1)]
    return float(chosen.var())
