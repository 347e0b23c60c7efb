"""Two models on the same examples, compared example by example."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sublayer.tasks.example import Example
from sublayer.tasks.metrics.metric import Contributions, Numbers, Predictions, Sums
from sublayer.tasks.metrics.score import check_labelled
from sublayer.tasks.metrics.table import METRICS, parts_of_score
from sublayer.tasks.metrics.units import find_units

SEED = 12345
"""The same sets are drawn every time."""
N_RESAMPLES = 1000
_PERCENTILES = (2.5, 97.5)
_MOST_PATTERNS = 1000
"""Kinds of units, of which whole sets are drawn at once where there are no more."""
_MOST_WEIGHTS = 1 << 22
"""Drawn at once."""


@dataclass(frozen=True)
class Paired:
    """How two models differ on the same examples."""

    value: float
    other: float
    difference: float
    """``value - other``: positive where the first has more."""
    interval: tuple[float, float]
    """The difference's over sets that are drawn again, of 95 %."""
    p_mcnemar: float | None
    """Of accuracy alone, over examples without groups: how probable it is that a difference at
    least as large, of either sign, falls out between models that are as often right."""
    n_only_first: int | None
    """Of accuracy: examples that the first alone has right."""
    n_only_other: int | None

    @property
    def is_decided(self) -> bool:
        """Return whether the interval leaves out 0."""
        return self.interval[0] > 0 or self.interval[1] < 0


def paired(
    examples: Sequence[Example],
    predictions: Predictions,
    others: Predictions,
    metrics: Sequence[str],
) -> Paired:
    """Compare two models' predictions for the same examples by their score, the mean of metrics.

    Examples, or groups of them, are drawn 1,000 times with replacement, the same for both models
    and every metric; the interval is from the 2.5th to the 97.5th percentile. Of accuracy
    McNemar's exact test is computed, too. Raises DataError as ``score`` does.
    """
    check_labelled(examples)
    metrics = parts_of_score(metrics)
    units = find_units(examples)
    ours = [METRICS[name].contributions(examples, predictions, units) for name in metrics]
    theirs = [METRICS[name].contributions(examples, others, units) for name in metrics]
    value = float(np.mean([each.value for each in ours]))
    other = float(np.mean([each.value for each in theirs]))
    differences = _resampled(ours, theirs, units.n)
    low, high = np.percentile(differences, _PERCENTILES)
    n_only_first = n_only_other = p_value = None
    if tuple(metrics) == ("accuracy",) and units.are_examples:
        n_only_first, n_only_other = _discordant(examples, predictions, others)
        p_value = _mcnemar(n_only_first, n_only_other)
    return Paired(
        value=value,
        other=other,
        difference=value - other,
        interval=(float(low), float(high)),
        p_mcnemar=p_value,
        n_only_first=n_only_first,
        n_only_other=n_only_other,
    )


def _resampled(
    ours: Sequence[Contributions], theirs: Sequence[Contributions], n_units: int
) -> Numbers:
    generator = np.random.default_rng(SEED)
    kinds = _kinds(ours, theirs)
    if kinds is not None:
        (ours, theirs), counts = kinds
        drawn = generator.multinomial(n_units, counts / n_units, size=N_RESAMPLES)
        return _differences(ours, theirs, np.asarray(drawn, dtype=np.float64))
    size = max(1, _MOST_WEIGHTS // n_units)
    differences = []
    for first in range(0, N_RESAMPLES, size):
        n_rows = min(size, N_RESAMPLES - first)
        indices = generator.integers(n_units, size=(n_rows, n_units))
        indices += np.arange(n_rows)[:, None] * n_units
        n_drawn = np.bincount(indices.ravel(), minlength=n_rows * n_units)
        weights = np.asarray(n_drawn.reshape(n_rows, n_units), dtype=np.float64)
        differences.append(_differences(ours, theirs, weights))
    return np.concatenate(differences)


def _differences(
    ours: Sequence[Contributions], theirs: Sequence[Contributions], weights: Numbers
) -> Numbers:
    pairs = zip(ours, theirs, strict=True)
    differences = [our.at(weights) - their.at(weights) for our, their in pairs]
    mean: Numbers = np.mean(differences, axis=0)
    return mean


def _kinds(
    ours: Sequence[Contributions], theirs: Sequence[Contributions]
) -> tuple[tuple[list[Sums], list[Sums]], Numbers] | None:
    """Return the contributions of units that differ, and how many there are of each.

    None where there are too many. Right or wrong, of both models, are four kinds of any number of
    examples.
    """
    both = [each for each in (*ours, *theirs) if isinstance(each, Sums)]
    if len(both) < len(ours) + len(theirs):
        return None
    joined = np.concatenate([each.columns for each in both], axis=1)
    rows, counts = np.unique(joined, axis=0, return_counts=True)
    if len(rows) > _MOST_PATTERNS:
        return None
    ends = np.cumsum([each.columns.shape[1] for each in both])
    parts = np.split(rows, ends[:-1], axis=1)
    sums = [Sums(part, each.from_sums) for part, each in zip(parts, both, strict=True)]
    return (sums[: len(ours)], sums[len(ours) :]), counts.astype(np.float64)


def _discordant(
    examples: Sequence[Example], predictions: Predictions, others: Predictions
) -> tuple[int, int]:
    n_only_first = n_only_other = 0
    for example, ours, theirs in zip(examples, predictions, others, strict=True):
        is_right = ours is not None and ours.label == example.label
        is_other_right = theirs is not None and theirs.label == example.label
        n_only_first += is_right and not is_other_right
        n_only_other += is_other_right and not is_right
    return n_only_first, n_only_other


def _mcnemar(n_only_first: int, n_only_other: int) -> float:
    from scipy.stats import binomtest  # slow to import, and needed where two are compared

    n = n_only_first + n_only_other
    return float(binomtest(n_only_first, n).pvalue) if n else 1.0
