"""How the estimates of a family of contrasts vary together."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from sublayer.statistics.contrast import Contrast, shared_correlation
from sublayer.statistics.items import ArmEffects
from sublayer.statistics.whole_estimate import WholeEstimate

Numbers = NDArray[np.float64]


def correlate(
    contrasts: Sequence[Contrast],
    estimates: Sequence[WholeEstimate],
    effects: Mapping[str, ArmEffects] | None,
    choice: Mapping[str, float],
) -> Numbers:
    """Return the correlation of estimates, ``[C, C]``: by arms that they share, and by the items.

    ``effects`` are those of the test's items, by arm and seed, and ``choice`` is the variance, by
    arm, over what tuning chooses.
    """
    sds = np.sqrt([each.seeds.variance for each in estimates])
    covariance = shared_correlation(contrasts) * np.outer(sds, sds)
    alone = [each.items.alone for each in estimates if each.items is not None]
    if len(alone) == len(estimates):
        item_sds = np.sqrt(alone)
        covariance += _over_items(contrasts, effects or {}) * np.outer(item_sds, item_sds)
    arms = list(choice)
    weights = np.array([[each.weights.get(arm, 0.0) for arm in arms] for each in contrasts])
    covariance += (weights * np.array([choice[arm] for arm in arms])) @ weights.T
    scale = np.sqrt(np.maximum(np.diag(covariance), np.finfo(float).tiny))
    correlation: Numbers = covariance / np.outer(scale, scale)
    np.fill_diagonal(correlation, 1.0)
    return correlation


def _over_items(contrasts: Sequence[Contrast], effects: Mapping[str, ArmEffects]) -> Numbers:
    """Return the correlation of contrasts over the units of their test, ``[C, C]``."""
    means = {arm: np.mean(list(own.values()), axis=0) for arm, own in effects.items() if own}
    rows = [
        np.sum([weight * means[arm] for arm, weight in each.weights.items()], axis=0)
        for each in contrasts
    ]
    table = np.stack(rows)
    table = table - table.mean(1, keepdims=True)
    norms = np.sqrt((table**2).sum(1))
    norms[norms == 0.0] = 1.0
    correlation: Numbers = (table @ table.T) / np.outer(norms, norms)
    return correlation
