"""Metrics of classes, numbers and groups, against scikit-learn, scipy and T5."""

import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from sublayer.tasks.metrics.averages import AVERAGES, suite_averages
from sublayer.tasks.metrics.metric import Contributions
from sublayer.tasks.metrics.numbers import spearman
from sublayer.tasks.metrics.score import score
from sublayer.tasks.metrics.units import find_units
from sublayer.tasks.prediction import Prediction
from tests.tasks.metrics.examples import labelled, said


def _value(name, gold, predicted):
    return score(labelled(gold), said(predicted), [name]).value


def _classes_cases(n_classes):
    generator = np.random.default_rng(n_classes)
    for n in (2, 3, 7, 40, 500):
        for p_right in (0.0, 0.3, 0.9):
            gold = generator.integers(n_classes, size=n)
            other = generator.integers(n_classes, size=n)
            predicted = np.where(generator.random(n) < p_right, gold, other)
            yield gold.tolist(), predicted.tolist()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_they_equal_scikit_learns(n_classes):
    for gold, predicted in _classes_cases(n_classes):
        assert _value("accuracy", gold, predicted) == pytest.approx(accuracy_score(gold, predicted))
        macro = f1_score(gold, predicted, average="macro", zero_division=0)
        assert _value("macro_f1", gold, predicted) == pytest.approx(macro)
        if len({*gold}) > 1 and len({*predicted}) > 1:
            expected = matthews_corrcoef(gold, predicted)
            assert _value("matthews", gold, predicted) == pytest.approx(expected)
        if n_classes == 2:
            expected = f1_score(gold, predicted, zero_division=0)
            assert _value("f1", gold, predicted) == pytest.approx(expected)


def test_the_f1_of_a_label_that_there_is_not_counts_as_the_opposite():
    assert _value("f1", [0, 1, 1, 0], [0, 1, 2, 2]) == 0.5
    assert _value("f1", [0, 1, 1, 0], [0, 1, None, None]) == 0.5


def test_macro_f1_is_that_of_t5():
    assert _value("macro_f1", [0, 1, 1, 2], [0, 0, 2, 2]) == pytest.approx(4 / 9)
    # Class 1 is never predicted; what is no label is missed, and is no class of its own.
    assert _value("macro_f1", [0, 1, 1, 2], [0, None, None, 2]) == pytest.approx(2 / 3)


def test_what_is_no_label_is_wrong_and_counted():
    result = score(labelled([0, 1, 1]), [*said([0, None]), None], ["accuracy"])
    assert result.value == pytest.approx(1 / 3)
    assert result.n_outside == 2


def test_matthews_of_a_constant_prediction_is_0_and_says_why():
    result = score(labelled([0, 1, 1]), said([1, 1, 1]), ["matthews"])
    assert result.value == 0
    assert result.metrics["matthews"].reason == "all predictions are the same"
    assert result.standard_error is None
    result = score(labelled([1, 1, 1]), said([0, 1, 1]), ["matthews"])
    assert result.metrics["matthews"].reason == "all labels are the same"


def test_matthews_takes_what_is_no_label_for_a_class_of_its_own():
    gold, predicted = [0, 1, 1, 0, 1], [0, 1, None, 0, 0]
    expected = matthews_corrcoef(gold, [0, 1, -1, 0, 0])
    assert _value("matthews", gold, predicted) == pytest.approx(expected)


def test_right_choices_are_counted_as_classes_are():
    predictions = [Prediction(label=2, probabilities=(0.1, 0.1, 0.8)), Prediction(label=0)]
    assert score(labelled([2, 1]), predictions, ["accuracy"]).value == 0.5


def _numbers_cases():
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
    for gold, predicted in _numbers_cases():
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


def test_multircs_metrics_by_hand():
    # Three questions: all right; one of two; all right.
    examples = labelled([0, 1, 1, 1, 0], ["q1", "q1", "q2", "q2", "q3"])
    predictions = said([0, 1, 1, 0, 0])
    result = score(examples, predictions, ["f1a", "group_exact_match"])
    assert result.metrics["f1a"].value == pytest.approx(4 / 5)
    assert result.metrics["group_exact_match"].value == pytest.approx(2 / 3)
    assert result.value == pytest.approx((4 / 5 + 2 / 3) / 2)


def test_known_values_of_t5():
    examples = labelled([0, 1, 1, 0], ["a", "a", "b", "b"])
    result = score(examples, said([0, 1, 1, 1]), ["group_exact_match"])
    assert result.value == 0.5
    assert score(examples, said([0, 1, 1, None]), ["group_exact_match"]).value == 0.5


def test_groups_may_be_scattered_and_single():
    examples = labelled([0, 1, 1, 0, 1], ["a", "b", "a", "", ""])
    assert score(examples, said([0, 1, 0, 0, 0]), ["group_exact_match"]).value == 0.5


def test_parity_asks_for_the_same_not_for_the_right():
    examples = labelled([1, 1, 0, 0, 1, 1, 0], ["1", "1", "2", "2", "3", "3", ""])
    predictions = said([0, 0, 0, 1, 1, 1, 0])
    result = score(examples, predictions, ["accuracy", "gender_parity"])
    assert result.metrics["gender_parity"].value == pytest.approx(2 / 3)
    assert result.metrics["accuracy"].value == pytest.approx(4 / 7)


def test_two_that_are_no_label_are_not_the_same():
    examples = labelled([1, 1], ["1", "1"])
    assert score(examples, said([None, None]), ["gender_parity"]).value == 0


def test_parity_without_pairs_has_no_value():
    result = score(labelled([1, 1]), said([1, 1]), ["gender_parity"])
    assert result.metrics["gender_parity"].reason == "no two examples are a pair"


def test_glue_has_nine_tasks_and_the_papers_eight():
    scores = {task: [0.8] for task in AVERAGES["GLUE"]} | {"wnli": [0.35], "ax": [0.1]}
    assert len(AVERAGES["GLUE"]) == 9
    assert suite_averages(scores) == pytest.approx(
        {"GLUE": (8 * 0.8 + 0.35) / 9, "GLUE without WNLI": 0.8}
    )


def test_a_suite_without_one_of_its_tasks_has_no_average():
    scores = {task: [0.5] for task in AVERAGES["SuperGLUE"]}
    assert suite_averages(scores) == {"SuperGLUE": 0.5}
    del scores["wsc"]
    assert suite_averages(scores) == {}


def test_mnlis_score_is_the_mean_of_its_two_sets():
    scores = {task: [0.0] for task in AVERAGES["GLUE without WNLI"]} | {"mnli": [0.8, 0.6]}
    assert suite_averages(scores) == {"GLUE without WNLI": pytest.approx(0.7 / 8)}
