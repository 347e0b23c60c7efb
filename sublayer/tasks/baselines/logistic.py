"""Logistic regression with a penalty on squared weights, solved by L-BFGS.

Source: scikit-learn's ``LogisticRegression``: the same minimum. It is found among weights that are
scaled by how much the loss can bend along them, which takes a fifth of the steps.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_matrix
from scipy.special import expit, logsumexp, softmax

from sublayer.tasks.baselines.lbfgs import minimise

Numbers = NDArray[np.float64]
Features: TypeAlias = csr_matrix | Numbers
_MOST_STEPS = 1000
_MOST_CURVED = 0.25
"""Of the logistic loss, its second derivative at 0."""


@dataclass(frozen=True)
class Logistic:
    """Weights and biases, of two classes those of the second alone."""

    weights: Numbers
    """[features, classes], or [features, 1]."""
    biases: Numbers
    classes: NDArray[np.int64]
    """Those that were there to learn from."""
    n_classes: int

    def probabilities(self, features: Features) -> Numbers:
        """Return the probability of each class, [N, n_classes]: 0 where it was never seen."""
        result = np.zeros((features.shape[0], self.n_classes))
        scores = features @ self.weights + self.biases
        if len(self.classes) == 1:
            result[:, self.classes] = 1
        elif len(self.classes) == 2:
            second = expit(scores)
            result[:, self.classes] = np.concatenate([1 - second, second], axis=1)
        else:
            result[:, self.classes] = softmax(scores, axis=1)
        return result


def fit_logistic(
    features: Features,
    labels: NDArray[np.int64],
    *,
    n_classes: int,
    inverse_penalty: float,
    is_balanced: bool = False,
    tolerance: float = 1e-4,
) -> Logistic:
    """Minimise the penalty, half of the squared weights, plus ``inverse_penalty`` times the losses.

    Biases have no penalty. ``is_balanced``: every class counts as much as any other, as the rows
    of rare ones weigh more. ``tolerance`` is of the largest slope along a scaled weight, of the
    objective by ``inverse_penalty`` and the number of rows.
    """
    classes, places = np.unique(labels, return_inverse=True)
    counts = np.bincount(places)
    row_weights = (len(labels) / (len(classes) * counts))[places]
    row_weights = (row_weights if is_balanced else np.ones(len(labels))) / len(labels)
    n_outputs = len(classes) if len(classes) > 2 else 1
    loss = _binary_loss if n_outputs == 1 else _multinomial_loss
    penalty = 1 / (inverse_penalty * len(labels))
    shape = (features.shape[1] + 1, n_outputs)
    if len(classes) == 1:
        solution = np.zeros(shape)
    else:
        scales = _scales(features, row_weights, penalty)[:, None]
        objective = _objective(features, places, row_weights, penalty, scales, loss)
        start = np.zeros(shape[0] * shape[1])
        flat = minimise(objective, start, tolerance=tolerance, most_steps=_MOST_STEPS)
        solution = flat.reshape(shape) * scales
    return Logistic(solution[:-1], solution[-1], classes.astype(np.int64), n_classes)


_Loss = Callable[[Numbers, NDArray[np.int64]], tuple[Numbers, Numbers]]


def _scales(features: Features, row_weights: Numbers, penalty: float) -> Numbers:
    """Return for each feature, and the bias, the root of what the objective bends at most."""
    squares = features.multiply(features) if isinstance(features, csr_matrix) else features**2
    curvature = _MOST_CURVED * np.asarray(squares.T @ row_weights).ravel() + penalty
    scales: Numbers = 1 / np.sqrt(np.append(curvature, _MOST_CURVED))
    return scales


def _objective(
    features: Features,
    places: NDArray[np.int64],
    row_weights: Numbers,
    penalty: float,
    scales: Numbers,
    loss: _Loss,
) -> Callable[[Numbers], tuple[float, Numbers]]:
    transposed = features.T.tocsr() if isinstance(features, csr_matrix) else features.T

    def compute(flat: Numbers) -> tuple[float, Numbers]:
        parameters = flat.reshape(len(scales), -1) * scales
        weights = parameters[:-1]
        losses, slopes = loss(features @ weights + parameters[-1], places)
        slopes = slopes * row_weights[:, None]
        value = (row_weights * losses).sum() + penalty / 2 * (weights**2).sum()
        by_weights = transposed @ slopes + penalty * weights
        return float(value), (np.vstack([by_weights, slopes.sum(0)]) * scales).ravel()

    return compute


def _binary_loss(scores: Numbers, places: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
    score = scores[:, 0]
    losses = np.logaddexp(0, score) - places * score
    return losses, (expit(score) - places)[:, None]


def _multinomial_loss(scores: Numbers, places: NDArray[np.int64]) -> tuple[Numbers, Numbers]:
    rows = np.arange(len(places))
    losses = logsumexp(scores, axis=1) - scores[rows, places]
    slopes = softmax(scores, axis=1)
    slopes[rows, places] -= 1
    return losses, slopes
