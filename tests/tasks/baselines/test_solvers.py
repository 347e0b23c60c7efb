"""Logistic and ridge regression, against scikit-learn's."""

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression
from sklearn.linear_model import Ridge as ScikitRidge

from sublayer.tasks.baselines.lbfgs import minimise
from sublayer.tasks.baselines.logistic import fit_logistic
from sublayer.tasks.baselines.ridge import fit_ridge


def _drawn(n_classes, n=130, n_features=7):
    generator = np.random.default_rng(n_classes)
    features = generator.normal(size=(n, n_features)) * (generator.random((n, n_features)) < 0.5)
    scores = features @ generator.normal(size=(n_features, n_classes))
    scores[:, 0] += 1  # classes of unlike frequency
    labels = (scores + generator.gumbel(size=scores.shape)).argmax(1)
    return csr_matrix(features), labels


@pytest.mark.parametrize("is_balanced", [False, True])
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_logistic_regression_is_scikit_learns(n_classes, is_balanced):
    features, labels = _drawn(n_classes)
    expected = LogisticRegression(
        C=0.7, tol=1e-9, max_iter=5000, class_weight="balanced" if is_balanced else None
    ).fit(features, labels)
    model = fit_logistic(
        features,
        labels,
        n_classes=n_classes,
        inverse_penalty=0.7,
        is_balanced=is_balanced,
        tolerance=1e-9,
    )
    np.testing.assert_allclose(
        model.probabilities(features), expected.predict_proba(features), atol=1e-6
    )
    dense = fit_logistic(
        features.toarray(),
        labels,
        n_classes=n_classes,
        inverse_penalty=0.7,
        is_balanced=is_balanced,
        tolerance=1e-9,
    )
    np.testing.assert_allclose(dense.weights, model.weights, atol=1e-6)


def test_the_minimum_of_a_long_valley_is_found_in_few_steps():
    # It bends a hundred thousand times as much along the last as along the first.
    bends = 10.0 ** np.arange(6)
    lowest = np.array([3.0, -2, 1, 0, 0, 0])
    n_computed = 0

    def objective(place):
        nonlocal n_computed
        n_computed += 1
        away = place - lowest
        return float((np.cosh(away) - 1) @ bends), np.sinh(away) * bends

    found = minimise(objective, np.zeros(6), tolerance=1e-9, most_steps=200)
    np.testing.assert_allclose(found, lowest, atol=1e-8)
    assert n_computed < 100


def test_steps_end_where_they_are_to_end():
    places = []

    def objective(place):
        places.append(place)
        return float(place @ place), 2 * place

    minimise(objective, np.array([100.0, 1.0]), tolerance=0, most_steps=0)
    assert len(places) == 1


def test_a_label_that_was_never_seen_is_never_predicted():
    features, labels = _drawn(3)
    model = fit_logistic(features, np.array([0, 3, 4])[labels], n_classes=6, inverse_penalty=1)
    probabilities = model.probabilities(features)
    assert (probabilities[:, [1, 2, 5]] == 0).all()
    np.testing.assert_allclose(probabilities.sum(1), 1)


def test_two_labels_of_many_keep_their_places():
    features, labels = _drawn(2)
    model = fit_logistic(features, np.array([1, 4])[labels], n_classes=5, inverse_penalty=1)
    plain = fit_logistic(features, labels, n_classes=2, inverse_penalty=1)
    np.testing.assert_array_equal(
        model.probabilities(features)[:, [1, 4]], plain.probabilities(features)
    )


def test_one_label_alone_is_certain():
    features, _ = _drawn(2)
    model = fit_logistic(features, np.full(features.shape[0], 1), n_classes=2, inverse_penalty=1)
    assert (model.probabilities(features) == [0, 1]).all()


@pytest.mark.parametrize("penalty", [0.1, 30])
def test_ridge_regression_is_scikit_learns(penalty):
    features, labels = _drawn(4)
    numbers = labels + 10.0
    expected = ScikitRidge(penalty).fit(features.toarray(), numbers)
    model = fit_ridge(features, numbers, penalty=penalty)
    np.testing.assert_allclose(model.weights, expected.coef_, atol=1e-6)
    assert model.bias == pytest.approx(expected.intercept_)
    np.testing.assert_allclose(
        model.predict(features), expected.predict(features.toarray()), atol=1e-6
    )
