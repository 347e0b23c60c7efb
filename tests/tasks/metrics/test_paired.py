"""Two models compared example by example."""

import numpy as np
import pytest
from scipy.stats import binomtest, bootstrap, spearmanr

from sublayer.errors import DataError
from sublayer.tasks.metrics import paired as module
from sublayer.tasks.metrics.paired import paired
from tests.tasks.metrics.examples import labelled, said


def _drawn(n, p_right, seed):
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
    gold = _drawn(50, 0.5, 0).tolist()
    ours = said(_drawn(50, 0.5, 1).tolist())
    for name in ("accuracy", "f1", "matthews", "spearman"):
        result = paired(labelled(gold), ours, ours, [name])
        assert result.difference == 0
        assert result.interval == (0, 0)
    assert paired(labelled(gold), ours, ours, ["accuracy"]).p_mcnemar == 1


def test_the_interval_is_scipys():
    right, other = _drawn(300, 0.8, 1), _drawn(300, 0.7, 2)
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


@pytest.mark.parametrize("metrics", [["f1", "accuracy"], ["matthews"], ["macro_f1"]])
def test_drawing_kinds_of_examples_is_drawing_examples(metrics, monkeypatch):
    gold = _drawn(400, 0.5, 1)
    ours = np.where(_drawn(400, 0.8, 2), gold, 1 - gold).tolist()
    theirs = np.where(_drawn(400, 0.7, 3), gold, 1 - gold).tolist()
    arguments = labelled(gold.tolist()), said(ours), said(theirs), metrics
    of_kinds = paired(*arguments)
    monkeypatch.setattr(module, "_MOST_PATTERNS", 0)
    of_examples = paired(*arguments)
    assert of_kinds.difference == of_examples.difference
    width = of_examples.interval[1] - of_examples.interval[0]
    assert of_kinds.interval == pytest.approx(of_examples.interval, abs=0.1 * width)


def test_groups_are_drawn_whole():
    right, other = _drawn(100, 0.8, 1), _drawn(100, 0.6, 2)
    alone = paired(labelled([1] * 100), said(right.tolist()), said(other.tolist()), ["accuracy"])
    groups = [str(index) for index in range(100) for _ in range(3)]
    repeated = [said(np.repeat(each, 3).tolist()) for each in (right, other)]
    result = paired(labelled([1] * 300, groups), *repeated, ["accuracy"])
    assert result.interval == pytest.approx(alone.interval, abs=0.02)
    assert result.p_mcnemar is None


def test_what_has_no_labels_is_not_compared():
    with pytest.raises(DataError, match="no examples"):
        paired([], [], [], ["accuracy"])
