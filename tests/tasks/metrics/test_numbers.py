"""Correlations, against scipy's."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr

from sublayer.tasks.metrics.metric import Contributions
from sublayer.tasks.metrics.numbers import spearman
from sublayer.tasks.metrics.score import score
from sublayer.tasks.metrics.units import find_units
from tests.tasks.metrics.examples import labelled, said


def _value(name, gold, predicted):
    return score(labelled(gold), said(predicted), [name]).value


def _cases():
    generator = np.random.default_rng(0)
    for n in (2, 5, 60, 700):
        for decimals in (0, 1, 9):
            x = generator.normal(size=n).round(decimals)
            y = (x + generator.normal(size=n)).round(decimals)
            if np.ptp(x) and np.ptp(y):
                yield x.tolist(), y.tolist()


@pytest.mark.filterwarnings("ignore::scipy.stats.NearConstantInputWarning")
@pytest.mark.parametrize(("times", "more"), [(1, 0), (-3, 1e6), (1e-9, 5), (1e200, 0)])
def test_they_equal_scipys_with_ties_at_any_scale(times, more):
    for gold, predicted in _cases():
        moved = [times * each + more for each in predicted]
        pearson = np.sign(times) * pearsonr(gold, predicted).statistic
        # What is left of 1e-9 beside 5 has seven digits.
        assert _value("pearson", gold, moved) == pytest.approx(pearson, abs=1e-6)
        assert _value("spearman", gold, moved) == pytest.approx(
            np.sign(times) * spearmanr(gold, predicted).statistic
        )


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_constant_numbers_have_none_and_it_says_why(name):
    for gold, predicted, reason in [
        ([1, 2, 3], [0.1, 0.1, 0.1], "all predictions are the same"),
        ([2, 2, 2], [0.1, 0.2, 0.1], "all labels are the same"),
        ([1, 2, 3], [0.1, float("nan"), 1], "1 of the predicted numbers are not finite"),
    ]:
        result = score(labelled(gold), said(predicted), [name])
        assert result.value == 0
        assert result.metrics[name].reason == reason


def test_a_text_that_is_no_number_is_t5s_minus_1_and_counted():
    gold, predicted = [0.0, 2.0, 5.0, 3.0], [0.5, None, 4.0, 3.5]
    expected = pearsonr(gold, [0.5, -1, 4.0, 3.5]).statistic
    result = score(labelled(gold), said(predicted), ["pearson"])
    assert result.value == pytest.approx(expected)
    assert result.n_outside == 1


@pytest.mark.parametrize("groups", [(), ("a", "", "b", "a", "", "b", "b", "")])
def test_samples_have_ranks_of_their_own(groups):
    gold, predicted = [1, 2, 2, 4, 5, 0, 3, 3], [2, 1, 1, 5, 4, 3, 3, 0]
    examples = labelled(gold, groups)
    units = find_units(examples)
    contributions: Contributions = spearman(examples, said(predicted), units)
    weights = np.array([[(3 * unit + row) % 4 for unit in range(units.n)] for row in range(4)])
    values = contributions.at(weights.astype(float))
    for row, value in zip(weights, values, strict=True):
        times = row[units.of_examples]
        expected = spearmanr(np.repeat(gold, times), np.repeat(predicted, times)).statistic
        assert value == pytest.approx(expected)


def test_influences_of_ranks_are_slopes_by_weight():
    generator = np.random.default_rng(1)
    gold = generator.integers(6, size=30)
    predicted = gold + generator.integers(4, size=30)
    examples = labelled(gold.tolist(), [str(index // 2) for index in range(30)])
    contributions = spearman(examples, said(predicted.tolist()), find_units(examples))
    step = 1e-6
    more = contributions.at(np.ones((15, 15)) + step * np.eye(15))
    less = contributions.at(np.ones((15, 15)) - step * np.eye(15))
    slopes = (more - less) / (2 * step)
    np.testing.assert_allclose(contributions.influences(), 15 * slopes, atol=1e-7)
