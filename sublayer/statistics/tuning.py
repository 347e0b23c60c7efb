"""Variance due to hyperparameter selection: another search may select another trial."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

_DRAWS = 4000
_SEED = 19690127
_FREEDOM = 4.0
"""Degrees of freedom that the arm's variance counts for beside that of a trial's own runs."""


@dataclass(frozen=True)
class Tuned:
    """Validation scores of an arm's trials, lower is better, in the unit of the judged metric."""

    scores: tuple[float, ...]
    """Of each trial, the mean over its runs. The lowest was selected."""
    n_runs: int
    """Of each trial."""
    compared: Mapping[int, float] = field(default_factory=dict)
    """Scores of the runs that are compared, by seed: further runs of the selected trial."""
    runs: tuple[Sequence[float], ...] = ()
    """The scores of each trial's runs, by tuning seed, where they are known."""


def choice_variance(tuned: Tuned, variance: float) -> float:
    """Estimate the variance of an arm's score over repetitions of its hyperparameter search.

    ``variance`` is that of a single run, beside what trials of one seed share. The search is
    repeated by parametric bootstrap, around the observed scores of the trials; the score of the
    selected trial is that of the runs that are compared, since it was selected by luck too. Squared
    distances between trials hold the noise of both, which is subtracted, but for half at most.
    """
    n_trials = len(tuned.scores)
    if n_trials < 2 or variance <= 0.0:
        return 0.0
    generator = np.random.default_rng(_SEED)
    scores = np.array(tuned.scores)
    errors = _variances(tuned, variance) / tuned.n_runs  # of each trial's score
    own = int(scores.argmin())
    noise = errors + errors[own]
    if tuned.compared:
        scores[own] = math.fsum(tuned.compared.values()) / len(tuned.compared)
        noise = errors + errors[own] * tuned.n_runs / len(tuned.compared)
    drawn = scores + np.sqrt(errors) * generator.standard_normal((_DRAWS, n_trials))
    distances = (scores - scores[own]) ** 2
    distances = np.maximum(distances - noise, distances / 2.0)
    distances[own] = 0.0
    return float(distances[drawn.argmin(1)].mean())


def _variances(tuned: Tuned, variance: float) -> np.ndarray:
    """Return the variance of a run of each trial: the arm's, and that of its own runs."""
    variances = np.full(len(tuned.scores), variance)
    if len(tuned.runs) != len(tuned.scores):
        return variances
    selected = np.array(tuned.runs[int(np.argmin(tuned.scores))])
    for index, runs in enumerate(tuned.runs):
        differences = np.array(runs) - selected if len(runs) == len(selected) else np.array(runs)
        halved = 2.0 if len(runs) == len(selected) else 1.0
        n = len(runs)
        if n > 1 and float(np.ptp(differences)) > 0.0:
            own = float(differences.var(ddof=1)) / halved
            variances[index] = (_FREEDOM * variance + (n - 1) * own) / (_FREEDOM + n - 1)
    return variances
