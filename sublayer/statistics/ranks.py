"""Rank tests: of failed runs, the worst of all, and of two-valued scores, which are not normal."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_GAP = 3.0
"""Of two clusters of scores, the least gap between them over the range of the wider one."""
_FEWEST_SPLIT = 5
"""Runs of an arm from which on two clusters of them tell something."""


def rank_p(
    values: Sequence[float] | NDArray[np.float64],
    others: Sequence[float] | NDArray[np.float64],
    n_failed: int,
    n_others_failed: int,
    *,
    is_lower_better: bool,
) -> tuple[float, float]:
    """Test by ranks whether one arm's runs are better than another's, failed ones the worst.

    Returns the two-sided p of the exact permutation test of the rank sum, ties in it (Mann and
    Whitney 1947; Lachin 1999 for failures as the worst rank), and by how much the mean rank of
    ``values`` and their failures is better than the others', in ranks: positive is better.
    """
    sign = -1.0 if is_lower_better else 1.0
    own = [sign * value for value in values] + [-np.inf] * n_failed
    rest = [sign * value for value in others] + [-np.inf] * n_others_failed
    ranks = _ranks(np.array([*own, *rest]))
    doubled = np.rint(2 * ranks).astype(np.int64)  # whole numbers, ties too
    n, total = len(own), len(ranks)
    observed = int(doubled[:n].sum())
    counts = _rank_sums(doubled, n)
    sums = np.arange(len(counts))
    expected = n * float(doubled.sum()) / total
    is_as_far = np.abs(sums - expected) >= abs(observed - expected) - 1e-9
    p = float(counts[is_as_far].sum() / counts.sum())
    surplus = float(ranks[:n].mean() - ranks[n:].mean())
    return min(1.0, p), surplus


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return the rank of each value, 1 the lowest, equal ones their mean rank."""
    order = np.argsort(values, kind="stable")
    ranks = np.empty(len(values))
    ranks[order] = np.arange(1, len(values) + 1)
    for value in np.unique(values):
        same = values == value
        ranks[same] = ranks[same].mean()
    return ranks


def _rank_sums(doubled: np.ndarray, n: int) -> np.ndarray:
    """Count, by their sum, the choices of ``n`` of the ranks, as floating-point numbers."""
    most = int(np.sort(doubled)[-n:].sum())
    counts = np.zeros((n + 1, most + 1))
    counts[0, 0] = 1.0
    for rank in doubled:
        for chosen in range(n, 0, -1):
            counts[chosen, rank:] += counts[chosen - 1, : most + 1 - rank]
    found: np.ndarray = counts[n]
    return found


def is_two_valued(values: NDArray[np.float64]) -> bool:
    """Return whether scores, ``[A, S]``, fall into two clusters that follow neither arms nor seeds.

    So do fine-tunings of which some collapse. A gap of three times the range of either cluster
    divides them, each has two runs at least, and an arm and a seed have runs in both: clusters of
    whole arms, or of whole seeds, are effects of these.
    """
    ordered = np.sort(values[~np.isnan(values)])
    if len(ordered) < 4 or ordered[0] == ordered[-1]:
        return False
    cut = int(np.diff(ordered).argmax())
    low, high = ordered[: cut + 1], ordered[cut + 1 :]
    if min(len(low), len(high)) < 2:
        return False
    if high[0] - low[-1] < _GAP * max(float(np.ptp(low)), float(np.ptp(high))):
        return False
    is_high, is_low = values > low[-1], values <= low[-1]
    return all(bool((is_high.any(axis) & is_low.any(axis)).any()) for axis in (0, 1))


def one_cluster_p(values: NDArray[np.float64], rows: Sequence[int]) -> float:
    """Bound the probability that an arm's runs are all in one of two clusters by luck.

    Where the runs of half of the arms or more, ``values`` ``[A, S]``, form two clusters in each,
    those of an arm in ``rows`` that form but one may do so by chance, ``2 / 2 ** n``: how little
    they spread tells little. 0 where there is no such arm.
    """
    runs = [row[~np.isnan(row)] for row in values]
    are_split = np.array([len(own) >= _FEWEST_SPLIT and _is_split(own) for own in runs])
    if are_split.sum() < max(2.0, len(runs) / 2.0):
        return 0.0
    return max((2.0 * 0.5 ** len(runs[row]) for row in rows if not are_split[row]), default=0.0)


def _is_split(values: NDArray[np.float64]) -> bool:
    ordered = np.sort(values)
    cut = int(np.diff(ordered).argmax())
    widest = max(float(np.ptp(ordered[: cut + 1])), float(np.ptp(ordered[cut + 1 :])))
    return bool(ordered[cut + 1] - ordered[cut] > _GAP * widest)


def separation_p(
    values: NDArray[np.float64], others: NDArray[np.float64], times: float = 20.0
) -> float:
    """Bound the probability that two alike arms are told apart by luck, were runs two-valued.

    Where the gap between two arms is so many ``times`` the range of either, they may be two
    clusters by chance, each run with probability one half: ``2 / 4 ** n``. 0 for closer arms.
    """
    n = min(len(values), len(others))
    if not n:
        return 0.0
    gap = max(float(values.min() - others.max()), float(others.min() - values.max()))
    widest = max(float(np.ptp(values)), float(np.ptp(others)))
    return 2.0 * 0.25**n if gap > times * widest else 0.0
