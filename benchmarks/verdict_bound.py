"""Bound on the power of any rule whose verdicts hold for unequal spreads, by linear programming.

    python benchmarks/verdict_bound.py --arms 4 --seeds 3
    python benchmarks/verdict_bound.py --arms 8 --seeds 20 --correlation 0.5

A rule gives each difference from the baseline a half-width that follows from residuals, treats arms
alike, and errs for no covariance matrix of the list in more than 5 % of studies. How often can it
find a difference of 1 to 4 standard deviations of a run where arms spread alike? By the duality of
linear programs, any weights of the matrices bound it from above. That one of several differences
errs is counted where the largest of them does, which is no more than the truth. Weights are chosen
by subgradients on one half of the draws, and the bound is that of the other half; beside it stands
what the judge of the package finds there.
"""

import argparse
import math
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import chdtri, logsumexp, ndtr

Numbers = NDArray[np.float64]

ALLOWED = 0.05
CORRELATIONS = (0.0, 0.5, 0.9)
"""Of arms that spread alike, by seed."""
DIFFERENCES = (1.0, 2.0, 3.0, 4.0)
STEPS = 300
NODES = np.linspace(-7.5, 7.5, 61)
NODE_WEIGHTS = np.exp(-(NODES**2) / 2) / np.exp(-(NODES**2) / 2).sum()
WIDTHS = np.geomspace(0.3, 40.0, 70)
"""Half-widths that a rule may choose, in pooled standard deviations."""
FEW_PLACES = 28


def matrices(n_arms: int) -> dict[str, Numbers]:
    """Return covariance matrices of the runs of arms by name, the baseline first."""
    found = {}
    for correlation in CORRELATIONS:
        alike = np.full((n_arms, n_arms), correlation) + (1.0 - correlation) * np.eye(n_arms)
        for name, scales in _scales(n_arms):
            found[f"correlation {correlation:g}, {name}"] = alike * np.outer(scales, scales)
    signs = np.ones(n_arms)
    signs[0] = -1.0
    against = 0.6 * np.outer(signs, signs) + 0.4 * np.eye(n_arms)
    for name, scales in _scales(n_arms):
        if name in ("alike", "baseline ×2", "baseline ×4", "other ×4"):
            found[f"correlation -0.6, {name}"] = against * np.outer(scales, scales)
    return found


def _scales(n_arms: int) -> Iterator[tuple[str, Numbers]]:
    yield "alike", np.ones(n_arms)
    for factor in (0.25, 1.5, 2.0, 3.0, 4.0):
        yield f"baseline ×{factor:g}", np.array([factor] + [1.0] * (n_arms - 1))
    for factor in (2.0, 4.0):
        yield f"other ×{factor:g}", np.array([1.0, factor] + [1.0] * (n_arms - 2))
    rising = np.geomspace(1.0, 4.0, n_arms)
    yield "rising", rising
    yield "falling", rising[::-1]


def placed(matrix: Numbers, rng: np.random.Generator) -> list[Numbers]:
    """Return a matrix with its arms but the baseline in other places: all of these, or some.

    A rule treats arms alike, so that it cannot tell these apart.
    """
    n_others = len(matrix) - 1
    orders = [list(order) for order in permutations(range(n_others))] if n_others < 5 else []
    orders = orders or [rng.permutation(n_others).tolist() for _ in range(400)]
    found: dict[bytes, Numbers] = {}
    for order in orders:
        places = [0, *(1 + place for place in order)]
        moved = matrix[np.ix_(places, places)]
        found.setdefault(moved.round(9).tobytes(), moved)
    return list(found.values())[:FEW_PLACES]


def tails(covariance: Numbers, freedom: float, sizes: Numbers, normal: Numbers) -> Numbers:
    """Return how often each contrast is the largest of all and reaches ``sizes``, ``[C, N]``.

    Contrasts are divided by their estimated spread.
    """
    values, vectors = np.linalg.eigh(covariance)
    contrasts = np.abs(normal @ (vectors * np.sqrt(np.maximum(values, 0.0))).T)
    largest, which = contrasts.max(1), contrasts.argmax(1)
    reached = sizes[:, None] * np.sqrt(chdtri(freedom, ndtr(-NODES)) / freedom)
    found = []
    for contrast in range(len(covariance)):
        own = np.sort(largest[which == contrast])
        found.append((len(own) - np.searchsorted(own, reached)) @ NODE_WEIGHTS / len(normal))
    return np.stack(found)


class Draws:
    """Residuals of studies, what each matrix makes of them, and what widths would cost and find."""

    def __init__(
        self, n_seeds: int, truths: dict[str, Numbers], alike: Numbers, n: int, seed: int
    ) -> None:
        rng = np.random.default_rng(seed)
        n_arms = len(alike)
        freedom = n_arms * (n_seeds - 1)
        minus = np.concatenate([-np.ones((n_arms - 1, 1)), np.eye(n_arms - 1)], axis=1)
        normal = np.random.default_rng(48).standard_normal((4096, n_arms - 1))
        drawn = [
            np.linalg.cholesky(matrix) @ rng.standard_normal((count, n_arms, n_seeds))
            for matrix, count in [*((each, n) for each in truths.values()), (alike, 3 * n)]
        ]
        self.values = np.concatenate(drawn)
        residuals = self.values - self.values.mean(2, keepdims=True)
        squares = residuals @ residuals.transpose(0, 2, 1)

        def density(matrix: Numbers) -> tuple[Numbers, Numbers]:
            """Return the log density of residuals' direction, and their mean square."""
            traces = np.einsum("ab,rab->r", np.linalg.inv(matrix), squares)
            logs = -(n_seeds - 1) / 2 * np.linalg.slogdet(matrix)[1]
            return logs - freedom / 2 * np.log(traces), traces / freedom

        of_alike, mean_squares = density(alike)
        error = math.sqrt(float((minus @ alike @ minus.T)[-1, -1]) / n_seeds)
        factors = np.sqrt(chdtri(freedom, ndtr(-NODES)) / freedom)
        self.finds = {
            difference: ndtr((difference - WIDTHS[:, None] * factors) / error) @ NODE_WEIGHTS
            for difference in DIFFERENCES
        }
        sizes = np.geomspace(0.01, 400.0, 240)
        logs, costs = [], []
        for matrix in truths.values():
            found = [(each, *density(each)) for each in placed(matrix, rng)]
            own_logs = np.stack([log for _, log, _ in found])
            shares = np.exp(own_logs - logsumexp(own_logs, axis=0))
            cost: Any = 0.0
            for share, (each, _, scale) in zip(shares, found, strict=True):
                table = tails(minus @ each @ minus.T / n_seeds, freedom, sizes, normal)
                relative = np.log(WIDTHS * np.sqrt(mean_squares / scale)[:, None])
                own = [np.interp(relative, np.log(sizes), row) for row in table]
                cost = cost + share[:, None, None] * np.stack(own, axis=1)
            logs.append(logsumexp(own_logs, axis=0) - math.log(len(own_logs)))
            costs.append(cost.astype(np.float32))
        stacked = np.stack([*logs, of_alike])
        counts = np.array([1.0] * len(truths) + [3.0])
        mixture = logsumexp(stacked, axis=0, b=(counts / counts.sum())[:, None])
        self.alike: Numbers = np.exp(of_alike - mixture)
        self.costs = np.stack(costs)
        """``[K, R, C, W]``: how much each width of each difference adds to each matrix' errors."""
        self.costs *= np.exp(np.stack(logs) - mixture)[:, :, None, None]

    def bound(self, weights: Numbers, difference: float) -> tuple[float, float, Numbers]:
        """Return the bound by weights ``[K]``, its standard error, and each matrix' errors."""
        n_contrasts = self.costs.shape[2]
        gains = self.alike[:, None, None] * self.finds[difference] / n_contrasts
        gains = gains - np.tensordot(weights.astype(np.float32), self.costs, 1)  # [R, C, W]
        best = gains.argmax(2)[:, :, None]
        gained = np.take_along_axis(gains, best, 2).sum((1, 2))
        errors = np.take_along_axis(self.costs, best[None], 3).sum((2, 3)).mean(1)
        bound = float(gained.mean()) + ALLOWED * float(weights.sum())
        return bound, float(gained.std()) / math.sqrt(len(gained)), errors


def weights_of(draws: Draws, difference: float) -> Numbers:
    """Return the weights of matrices whose bound is lowest, by subgradients."""
    n = len(draws.costs)
    weights = np.full(n, 1.0 / n)
    best, lowest = weights, math.inf
    for step in range(STEPS):
        bound, _, errors = draws.bound(weights, difference)
        if bound < lowest:
            best, lowest = weights, bound
        weights = np.maximum(weights + 5.0 * (errors - ALLOWED) / (1.0 + step / 25.0), 0.0)
    return best


def excess(values: Numbers) -> float:
    """Return the difference above which the package finds the last arm worse than the baseline."""
    from sublayer.statistics.contrasts import RunScores, against_baseline
    from sublayer.statistics.judge import ContrastFamily

    n_arms, n_seeds = values.shape
    arms = tuple(map(str, range(n_arms)))
    scores = RunScores(arms, tuple(range(n_seeds)), values, np.zeros(values.shape, dtype=np.bool_))
    contrasts = against_baseline(arms, "0")
    found = ContrastFamily(scores, contrasts, is_lower_better=True, n_seeds=n_seeds).judge()
    low = found.differences[-1].low
    assert low is not None, "runs are compared"
    return -low


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--arms", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--correlation", type=float, default=0.0, choices=CORRELATIONS)
    parser.add_argument("--draws", type=int, default=400, help="of each covariance matrix")
    options = parser.parse_args()
    truths = matrices(options.arms)
    alike = truths[f"correlation {options.correlation:g}, alike"]
    first, second = (Draws(options.seeds, truths, alike, options.draws, seed) for seed in (48, 49))
    excesses = np.array([excess(values) for values in second.values[-3 * options.draws :]])
    setting = f"{options.arms} arms, {options.seeds} seeds, correlation {options.correlation:g}"
    print(f"{setting}: {len(truths)} covariance matrices, {len(second.values):,} draws")
    print("| difference, sd | no rule finds more than | ± | the judge | binding matrices |")
    print("| ---: | ---: | ---: | ---: | --- |")
    for difference in DIFFERENCES:
        weights = weights_of(first, difference)
        bound, error, _ = second.bound(weights, difference)
        found = float((excesses < difference).mean())
        binding = [list(truths)[place] for place in np.argsort(-weights)[:3]]
        print(
            f"| {difference:g} | {bound:.1%} | {1.96 * error:.1%} | {found:.1%} | "
            f"{'; '.join(binding)} |"
        )


if __name__ == "__main__":
    main()
