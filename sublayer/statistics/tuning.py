"""How far another tuning would move an arm: it may choose another value, for all seeds alike."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

_DRAWS = 4000
_SEED = 19690127


@dataclass(frozen=True)
class Tuned:
    """What an arm scored on validation, in the unit of the metric that is judged.

    All scores are lower the better.
    """

    scores: tuple[float, ...]
    """Of each trial, means over its runs. The lowest was chosen."""
    n_runs: int
    """Of each trial."""
    compared: Mapping[int, float] = field(default_factory=dict)
    """Of the runs that are compared, by seed: further ones of the trial that was chosen."""


def choice_variance(tuned: Tuned, variance: float) -> float:
    """Estimate how far, squared, an arm's score lies from those that other tunings would give it.

    ``variance`` is that of one run over seeds, less what trials of one seed share. The trials are
    scored again, around what they scored (parametric bootstrap), and the arm's score lies so far
    from what the best of each draw scores. What was chosen scored by luck, too: of it the runs
    that are compared tell more, where there are any. Scores of few runs lie further apart than the
    trials do, so that it is rather too large than too small.
    """
    if len(tuned.scores) < 2 or variance <= 0.0:
        return 0.0
    generator = np.random.default_rng(_SEED)
    scores = np.array(tuned.scores)
    own = int(scores.argmin())
    if tuned.compared:
        scores[own] = math.fsum(tuned.compared.values()) / len(tuned.compared)
    error = math.sqrt(variance / tuned.n_runs)
    drawn = scores + error * generator.standard_normal((_DRAWS, len(scores)))
    chosen = scores[drawn.argmin(1)]
    return float(((chosen - scores[own]) ** 2).mean())
