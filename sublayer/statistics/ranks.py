"""Comparisons in which runs failed: by ranks, a failed run as the worst of all."""

from collections.abc import Sequence

import numpy as np


def rank_p(
    values: Sequence[float],
    others: Sequence[float],
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
