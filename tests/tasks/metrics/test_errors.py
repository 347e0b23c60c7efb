"""A score, its error, and two models compared example by example."""

import numpy as np
import pytest
from scipy.stats import binomtest, bootstrap, spearmanr

from sublayer.errors import DataError
from sublayer.tasks.example import Example
from sublayer.tasks.metrics import paired as module
from sublayer.tasks.metrics.paired import paired
from sublayer.tasks.metrics.points import points
from sublayer.tasks.metrics.score import score
from sublayer.tasks.metrics.table import METRICS
from sublayer.tasks.registry import TASKS
from tests.tasks.metrics.examples import labelled, said


def _score_drawn(n, seed=3):
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


@pytest.mark.parametrize("name", ["f1", "macro_f1", "matthews", "spearman"])
def test_the_error_of_others_is_how_far_they_spread_over_sets(name):
    values, errors = [], []
    for seed in range(300):
        gold, predicted = _score_drawn(200, seed)
        if name in ("pearson", "spearman"):
            noise = np.random.default_rng(seed).normal(size=(2, 200))
            gold, predicted = (noise[0]).tolist(), (noise[0] + noise[1]).tolist()
        result = score(labelled(gold), said(predicted), [name])
        values.append(result.value)
        errors.append(result.standard_error)
    assert np.mean(errors) == pytest.approx(np.std(values), rel=0.12)


def test_the_error_of_a_mean_knows_that_its_metrics_agree():
    gold, predicted = _score_drawn(200)
    alone = score(labelled(gold), said(predicted), ["macro_f1"])
    mean = score(labelled(gold), said(predicted), ["macro_f1", "accuracy"])
    assert mean.standard_error == pytest.approx(alone.standard_error, rel=0.05)


def test_the_error_is_over_groups_where_there_are_some():
    # Every example four times is no more than it is once.
    gold, predicted = _score_drawn(100)
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


def _paired_drawn(n, p_right, seed):
    return (np.random.default_rng(seed).random(n) < p_right).astype(int)


def test_mcnemars_p_is_that_of_what_one_alone_has_right():
    gold = [1] * 20
    ours, theirs = [1] * 15 + [0] * 5, [1] * 8 + [0] * 9 + [1] * 3
    result = paired(labelled(gold), said(ours), said(theirs), ["accuracy"])
    assert (result.n_only_first, result.n_only_other) == (7, 3)
    # Seven of ten heads or a rarer number: 2 * (120 + 45 + 10 + 1) / 1024.
    assert result.p_mcnemar == pytest.approx(352 / 1024)
    assert result.p_mcnemar == pytest.approx(binomtest(7, 10).pvalue)
    assert result.difference == pytest.approx(0.2)
    assert not result.is_decided


def test_equal_predictions_do_not_differ():
    gold = _paired_drawn(50, 0.5, 0).tolist()
    ours = said(_paired_drawn(50, 0.5, 1).tolist())
    for name in ("accuracy", "f1", "matthews", "spearman"):
        result = paired(labelled(gold), ours, ours, [name])
        assert result.difference == 0
        assert result.interval == (0, 0)
    assert paired(labelled(gold), ours, ours, ["accuracy"]).p_mcnemar == 1


def test_the_interval_is_scipys():
    right, other = _paired_drawn(300, 0.8, 1), _paired_drawn(300, 0.7, 2)
    result = paired(labelled([1] * 300), said(right.tolist()), said(other.tolist()), ["accuracy"])
    expected = bootstrap(
        (right - other,), np.mean, method="percentile", rng=np.random.default_rng(0)
    ).confidence_interval
    assert result.interval == pytest.approx((expected.low, expected.high), abs=0.006)


def test_the_interval_of_ranks_is_scipys():
    generator = np.random.default_rng(3)
    gold = generator.normal(size=150)
    ours, theirs = (gold + generator.normal(size=150) * scale for scale in (0.5, 1.0))
    examples = labelled(gold.tolist())
    result = paired(examples, said(ours.tolist()), said(theirs.tolist()), ["spearman"])
    expected = bootstrap(
        (gold, ours, theirs),
        lambda x, a, b: spearmanr(x, a).statistic - spearmanr(x, b).statistic,
        paired=True,
        vectorized=False,
        n_resamples=2000,
        method="percentile",
        rng=np.random.default_rng(0),
    ).confidence_interval
    assert result.interval == pytest.approx((expected.low, expected.high), abs=0.02)
    assert result.is_decided
    assert result.p_mcnemar is None


@pytest.mark.parametrize("metrics", [["f1", "accuracy"], ["macro_f1"]])
def test_drawing_kinds_of_examples_is_drawing_examples(metrics, monkeypatch):
    gold = _paired_drawn(400, 0.5, 1)
    ours = np.where(_paired_drawn(400, 0.8, 2), gold, 1 - gold).tolist()
    theirs = np.where(_paired_drawn(400, 0.7, 3), gold, 1 - gold).tolist()
    arguments = labelled(gold.tolist()), said(ours), said(theirs), metrics
    of_kinds = paired(*arguments)
    monkeypatch.setattr(module, "_MOST_PATTERNS", 0)
    of_examples = paired(*arguments)
    assert of_kinds.difference == of_examples.difference
    width = of_examples.interval[1] - of_examples.interval[0]
    assert of_kinds.interval == pytest.approx(of_examples.interval, abs=0.1 * width)


def test_groups_are_drawn_whole():
    right, other = _paired_drawn(100, 0.8, 1), _paired_drawn(100, 0.6, 2)
    alone = paired(labelled([1] * 100), said(right.tolist()), said(other.tolist()), ["accuracy"])
    groups = [str(index) for index in range(100) for _ in range(3)]
    repeated = [said(np.repeat(each, 3).tolist()) for each in (right, other)]
    result = paired(labelled([1] * 300, groups), *repeated, ["accuracy"])
    assert result.interval == pytest.approx(alone.interval, abs=0.02)
    assert result.p_mcnemar is None


def test_what_has_no_labels_is_not_compared():
    with pytest.raises(DataError, match="no examples"):
        paired([], [], [], ["accuracy"])
