"""A task's score and its error."""

import numpy as np
import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Example
from sublayer.tasks.metrics.points import points
from sublayer.tasks.metrics.score import score
from sublayer.tasks.metrics.table import METRICS
from sublayer.tasks.registry import TASKS
from tests.tasks.metrics.examples import labelled, said


def _drawn(n, seed=3):
    generator = np.random.default_rng(seed)
    gold = generator.integers(2, size=n)
    predicted = np.where(generator.random(n) < 0.8, gold, 1 - gold)
    return gold.tolist(), predicted.tolist()


def test_every_tasks_metrics_are_in_the_table():
    assert {name for task in TASKS.values() for name in task.metrics} <= METRICS.keys()


def test_a_score_is_the_mean_of_its_metrics():
    result = score(labelled([0, 1, 1, 0]), said([0, 1, 0, 0]), ["f1", "accuracy"])
    assert result.metrics["f1"].value == pytest.approx(2 / 3)
    assert result.metrics["accuracy"].value == 0.75
    assert result.value == pytest.approx((2 / 3 + 0.75) / 2)


def test_the_error_of_accuracy_is_that_of_a_proportion():
    # SST-2's 872 sentences at 82.0: 1.3 points.
    gold = [1] * 872
    predicted = [1] * 715 + [0] * 157
    result = score(labelled(gold), said(predicted), ["accuracy"])
    assert points(result.value) == "82.0"
    assert points(result.standard_error) == "1.3"
    assert result.standard_error == np.sqrt(715 / 872 * 157 / 872 / 872)


@pytest.mark.parametrize("name", ["f1", "macro_f1", "matthews", "pearson", "spearman"])
def test_the_error_of_others_is_how_far_they_spread_over_sets(name):
    values, errors = [], []
    for seed in range(300):
        gold, predicted = _drawn(200, seed)
        if name in ("pearson", "spearman"):
            noise = np.random.default_rng(seed).normal(size=(2, 200))
            gold, predicted = (noise[0]).tolist(), (noise[0] + noise[1]).tolist()
        result = score(labelled(gold), said(predicted), [name])
        values.append(result.value)
        errors.append(result.standard_error)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.12)


def test_the_error_of_a_mean_knows_that_its_metrics_agree():
    gold, predicted = _drawn(200)
    alone = score(labelled(gold), said(predicted), ["macro_f1"])
    mean = score(labelled(gold), said(predicted), ["macro_f1", "accuracy"])
    assert mean.standard_error == pytest.approx(alone.standard_error, rel=0.05)


def test_the_error_is_over_groups_where_there_are_some():
    # Every example four times is no more than it is once.
    gold, predicted = _drawn(100)
    once = score(labelled(gold), said(predicted), ["accuracy"])
    groups = [str(index) for index in range(100) for _ in range(4)]
    repeated = labelled(np.repeat(gold, 4).tolist(), groups)
    result = score(repeated, said(np.repeat(predicted, 4).tolist()), ["accuracy"])
    assert result.value == once.value
    assert result.standard_error == pytest.approx(once.standard_error, rel=0.01)


def test_one_example_has_no_error():
    assert score(labelled([1]), said([1]), ["accuracy"]).standard_error is None


def test_what_has_no_labels_is_not_scored():
    with pytest.raises(DataError, match="2 of 2 examples have no label"):
        score([Example("0", {}, is_labelled=False)] * 2, said([0, 1]), ["accuracy"])
    with pytest.raises(DataError, match="no examples"):
        score([], [], ["accuracy"])


def test_an_examples_influence_on_accuracy_is_its_distance_from_it():
    # Three of four right: 1 - 3/4 and 0 - 3/4, which spread as the score does over sets.
    found = score(labelled([1, 1, 0, 0]), said([1, 1, 0, 1]), ["accuracy"])
    assert found.influences[""] == pytest.approx([0.25, 0.25, 0.25, -0.75])
    assert found.influences["accuracy"] == pytest.approx(found.influences[""])


def test_the_influence_on_a_score_is_the_mean_of_those_on_its_metrics():
    found = score(labelled([1, 1, 0, 0, 1]), said([1, 0, 0, 1, 1]), ["accuracy", "f1"])
    both = (found.influences["accuracy"] + found.influences["f1"]) / 2
    assert found.influences[""] == pytest.approx(both)
