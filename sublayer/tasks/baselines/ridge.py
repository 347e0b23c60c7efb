"""Linear regression with a penalty on squared weights. Source: scikit-learn's ``Ridge``."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse.linalg import LinearOperator, lsqr

from sublayer.tasks.baselines.logistic import Features, Numbers


@dataclass(frozen=True)
class Ridge:
    """Weights, and a bias, which has no penalty."""

    weights: Numbers
    bias: float

    def predict(self, features: Features) -> Numbers:
        """Return a number for each row."""
        numbers: Numbers = features @ self.weights + self.bias
        return numbers


def fit_ridge(features: Features, numbers: Numbers, *, penalty: float) -> Ridge:
    """Minimise the squared errors plus ``penalty`` times the squared weights."""
    means = np.asarray(features.mean(axis=0)).ravel()
    centre = numbers.mean()
    centred = LinearOperator(
        features.shape,
        matvec=lambda weights: features @ weights - means @ weights,
        rmatvec=lambda errors: features.T @ errors - means * errors.sum(),
        dtype=np.float64,
    )
    weights = lsqr(
        centred, numbers - centre, damp=np.sqrt(penalty), atol=1e-8, btol=1e-8, iter_lim=1000
    )[0]
    return Ridge(weights, float(centre - means @ weights))
