"""Metrics against scikit-learn, scipy, T5 and SQuAD's scripts; their errors; models in pairs."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics import CHRF
from scipy.stats import binomtest, bootstrap, pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from sublayer.errors import DataError
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.metrics.averages import AVERAGES, suite_averages
from sublayer.tasks.metrics.numbers import spearman
from sublayer.tasks.metrics.paired import paired
from sublayer.tasks.metrics.points import points
from sublayer.tasks.metrics.score import score
from sublayer.tasks.metrics.spans import RougeWords, normalise
from sublayer.tasks.metrics.table import METRICS
from sublayer.tasks.metrics.thresholds import best_thresholds, by_answerable, with_threshold
from sublayer.tasks.metrics.units import find_units
from sublayer.tasks.own_table.task import METRICS as OF_KINDS
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS

METRICS_OF_TEXTS = OF_KINDS["text"]


def labelled(labels, groups=()):
    rows = enumerate(zip(labels, groups or [""] * len(labels), strict=True))
    return [Example(str(index), {}, label, group=group) for index, (label, group) in rows]


def said(labels):
    return [Prediction(label=label) for label in labels]


def _scored(gold, predicted, *names, groups=()):
    return score(labelled(gold, groups), said(predicted), names)


def _values(gold, predicted, *names):
    found = _scored(gold, predicted, *names).metrics
    return {name: each.value for name, each in found.items()}


WORDS = st.lists(st.sampled_from(["the", "cat", "a", "Matte,", "Größe", "猫", "!"]), max_size=9)


@given(st.lists(st.tuples(st.lists(WORDS, min_size=1, max_size=3), WORDS), min_size=1, max_size=5))
@settings(max_examples=30, deadline=None)
def test_metrics_of_written_texts_are_sacrebleus_and_rouge_scores(rows):
    texts = [([" ".join(each) for each in golds], " ".join(said)) for golds, said in rows]
    examples = [Example("", {}, answers=tuple(map(Answer, golds))) for golds, _ in texts]
    found = score(examples, [Prediction(text=text) for _, text in texts], METRICS_OF_TEXTS)
    most = max(len(golds) for golds, _ in texts)
    streams = [[g[n] if n < len(g) else None for g, _ in texts] for n in range(most)]
    chrf = CHRF().corpus_score([text for _, text in texts], streams).score / 100
    assert found.value == found.metrics["chrf"].value == pytest.approx(chrf, abs=1e-12)
    same = [any(text.split() == gold.split() for gold in golds) for golds, text in texts]
    assert found.metrics["exact_text"].value == pytest.approx(np.mean(same))
    if all(text.isascii() for golds, said in texts for text in (*golds, said)):
        for name in ("rouge1", "rouge2", "rougeL"):
            scorer = RougeScorer([name])
            each = [scorer.score_multi(golds, text)[name].fmeasure for golds, text in texts]
            assert found.metrics[name].value == pytest.approx(np.mean(each))


def test_rouge_has_letters_of_all_scripts():
    found = RougeWords().tokenize("Größe_x: naïve, हिन्दी में 猫が")
    assert found == ["größe", "x", "naïve", "हिन्दी", "में", "猫", "が"]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.UndefinedMetricWarning")
@pytest.mark.parametrize("n_classes", [2, 3, 5])
def test_metrics_of_classes_are_scikit_learns(n_classes):
    generator = np.random.default_rng(n_classes)
    for n, p_right in product((2, 3, 7, 40, 500), (0.0, 0.3, 0.9)):
        gold, other = generator.integers(n_classes, size=(2, n))
        both = gold.tolist(), np.where(generator.random(n) < p_right, gold, other).tolist()
        expected = {"accuracy": accuracy_score(*both)}
        expected["macro_f1"] = f1_score(*both, average="macro", zero_division=0)
        if all(len({*each}) > 1 for each in both):
            expected["matthews"] = matthews_corrcoef(*both)
        if n_classes == 2:
            expected["f1"] = f1_score(*both, zero_division=0)
        assert _values(*both, *expected) == pytest.approx(expected)


@pytest.mark.parametrize("name, gold, predicted, groups, value", [
    # Of a label that there is not the opposite counts.
    ("f1", [0, 1, 1, 0], [0, 1, 2, 2], "", 0.5),
    # T5's; class 1 is never predicted; what is no label is missed, and is no class.
    ("macro_f1", [0, 1, 1, 2], [0, 0, 2, 2], "", 4 / 9),
    ("macro_f1", [0, 1, 1, 2], [0, None, None, 2], "", 2 / 3),
    # What is no label is a class of its own.
    ("matthews", [0, 1, 1, 0, 1], [0, 1, None, 0, 0], "",
     matthews_corrcoef([0, 1, 1, 0, 1], [0, 1, -1, 0, 0])),
    # A text that is no number is T5's -1.
    ("pearson", [0.0, 2.0, 5.0, 3.0], [0.5, None, 4.0, 3.5], "",
     pearsonr([0.0, 2.0, 5.0, 3.0], [0.5, -1, 4.0, 3.5]).statistic),
    # Three questions: all right; one of two; all right.
    ("f1a", [0, 1, 1, 1, 0], [0, 1, 1, 0, 0], "aabbc", 4 / 5),
    ("group_exact_match", [0, 1, 1, 1, 0], [0, 1, 1, 0, 0], "aabbc", 2 / 3),
    ("group_exact_match", [0, 1, 1, 0, 1], [0, 1, 0, 0, 0], ["a", "b", "a", "", ""], 0.5),
    # Parity asks for the same, not for the right; two that are no label are not the same.
    ("gender_parity", [1, 1, 0, 0, 1, 1, 0], [0, 0, 0, 1, 1, 1, 0], [*"112233", ""], 2 / 3),
])  # fmt: skip
def test_values_by_hand(name, gold, predicted, groups, value):
    found = _scored(gold, predicted, name, groups=groups)
    assert found.value == pytest.approx(value)
    assert found.n_outside == predicted.count(None) or 2 in predicted


@pytest.mark.filterwarnings("ignore::scipy.stats.NearConstantInputWarning")
@pytest.mark.parametrize(("times", "more"), [(-3, 1e6), (1e-9, 5), (1e200, 0)])
def test_correlations_are_scipys_with_ties_at_any_scale(times, more):
    generator = np.random.default_rng(0)
    for n, decimals in product((5, 60, 700), (0, 1, 9)):
        x = generator.normal(size=n).round(decimals)
        y = (x + generator.normal(size=n)).round(decimals)
        found = _values(x.tolist(), (times * y + more).tolist(), "pearson", "spearman")
        # What is left of 1e-9 beside 5 has seven digits.
        pearson, rank = (np.sign(times) * of(x, y).statistic for of in (pearsonr, spearmanr))
        assert found["pearson"] == pytest.approx(pearson, abs=1e-6)
        assert found["spearman"] == pytest.approx(rank)


@pytest.mark.parametrize("name, gold, predicted, reason", [
    ("matthews", [0, 1, 1], [1, 1, 1], "all predictions are the same"),
    ("pearson", [1, 2, 3], [0.1, 0.1, 0.1], "all predictions are the same"),
    ("pearson", [1, 2, 3], [0.1, float("nan"), 1], "1 of the predicted numbers are not finite"),
    ("gender_parity", [1, 1], [1, 1], "no two examples are a pair"),
])  # fmt: skip
def test_a_metric_without_a_value_says_why(name, gold, predicted, reason):
    found = _scored(gold, predicted, name)
    assert (found.value, found.metrics[name].reason) == (0, reason) and not found.standard_error


def test_schools_of_race_are_beside_its_score():
    examples = [Example(id_, {}, 0) for id_ in ("high1.txt.0", "middle2.txt.0", "middle3.txt.1")]
    found = score(examples, said([0, 1, 0]), TASKS["race"].metrics)
    assert found.value == found.metrics["accuracy"].value == pytest.approx(2 / 3)
    assert (found.metrics["middle"].value, found.metrics["high"].value) == (0.5, 1.0)
    pair = paired(examples, said([0, 1, 0]), said([1, 1, 0]), TASKS["race"].metrics)
    assert (pair.value, pair.n_only_first) == (found.value, 1)


def test_influences_are_slopes_by_weight():
    generator = np.random.default_rng(1)
    gold = generator.integers(6, size=30)
    predicted = gold + generator.integers(4, size=30)
    examples = labelled(gold.tolist(), [str(index // 2) for index in range(30)])
    contributions = spearman(examples, said(predicted.tolist()), find_units(examples))
    more, less = (contributions.at(np.ones((15, 15)) + step * np.eye(15)) for step in (1e-6, -1e-6))
    slopes = 15 * (more - less) / 2e-6
    np.testing.assert_allclose(contributions.influences(), slopes, atol=1e-7)
    # Three of four right: 1 - 3/4 and 0 - 3/4; of a score the mean of its metrics' influences.
    found = _scored([1, 1, 0, 0], [1, 1, 0, 1], "accuracy", "f1").influences
    assert found["accuracy"] == pytest.approx([0.25, 0.25, 0.25, -0.75])
    assert found[""] == pytest.approx((found["accuracy"] + found["f1"]) / 2)


def test_averages_of_suites():
    assert {name for task in TASKS.values() for name in task.metrics} <= METRICS.keys()
    glue = {task: [0.8] for task in AVERAGES["GLUE"]} | {"wnli": [0.35], "ax": [0.1]}
    means = {"GLUE": (8 * 0.8 + 0.35) / 9, "GLUE without WNLI": 0.8}
    assert suite_averages(glue) == pytest.approx(means)
    # MNLI's score is the mean of its two sets; without one of its tasks a suite has no average.
    zeros = {task: [0.0] for task in AVERAGES["GLUE without WNLI"]} | {"mnli": [0.8, 0.6]}
    assert suite_averages(zeros) == {"GLUE without WNLI": pytest.approx(0.7 / 8)}
    superglue = {task: [0.5] for task in AVERAGES["SuperGLUE"]}
    assert suite_averages(superglue) == {"SuperGLUE": 0.5}
    assert suite_averages({task: [0.5] for task in superglue if task != "wsc"}) == {}


V1 = ("exact_match", "token_f1")
V2 = ("exact_match_v2", "token_f1_v2")


def asked(golds):
    return [Example(str(n), {}, answers=tuple(map(Answer, each))) for n, each in enumerate(golds)]


def test_an_answer_is_normalised_in_the_scripts_order_and_of_a_choice_its_text_is_scored():
    texts = {"The-Cat": "thecat", "  An  apple,\ta\u00a0day ": "apple day", "‘the’ “a”": "‘ ’ “ ”"}
    assert {text: normalise(text) for text in texts} == texts
    golds = (Answer("the new york"), Answer("NY"))
    example = Example("0", {}, choices=("New York", "Iran"), answers=golds)
    found = score([example] * 3, [*said([0, 1]), Prediction(text="york")], V1)
    values = [each.value for each in found.metrics.values()]
    assert values == pytest.approx([1 / 3, (1 + 2 / 3) / 3]) and found.n_outside == 1


_T5 = [["big moose", "hippo"], ["correct1"], ["correct2.1", "correct2.2"], ["a", "b"]]
_WRITTEN = ["‘a big  Moose!‘", "wrong", "correct2.2", "c"]


@pytest.mark.parametrize("golds, texts, metrics, values", [
    # Known values of T5.
    (_T5, _WRITTEN, V1, (0.25, 0.35)),
    ([["abc abd", "$$$$"]], ["abd"], V1, (0, 2 / 3)),
    # 2 of 3 words, and 2 of 4: a repeated word counts as often as both have it.
    ([["x x y z"]], ["x x x"], V1, (0, 4 / 7)),
    # Equal, but no word is shared; "the" is no gold answer of 2.0, but where it is alone.
    ([["the", "cat"]], ["an"], V1, (1, 0)),
    ([["the", "cat"]], ["an"], V2, (0, 0)),
    ([["the"]], ["an"], V2, (1, 1)),
    ([[], []], ["", "cat"], V2, (0.5, 0.5)),
    # A question without prediction is wrong in 1.1, and left out in 2.0.
    ([["cat"], ["dog"]], ["cat", None], V1, (0.5, 0.5)),
    ([["cat"], ["dog"]], ["cat", None], V2, (1, 1)),
])  # fmt: skip
def test_answers_score_as_in_squads_scripts(golds, texts, metrics, values):
    predictions = [None if text is None else Prediction(text=text) for text in texts]
    found = score(asked(golds), predictions, metrics)
    assert [each.value for each in found.metrics.values()] == pytest.approx(values)


def _told(*answers):
    return [Prediction(text=text, no_answer=no_answer) for text, no_answer in answers]


@pytest.mark.parametrize("golds, predictions, exact, f1", [
    # Answers are given while they gain.
    ([["cat"], [], ["dog"], []],
     _told(("cat", -2.0), ("bird", 1.0), ("dog", 0.5), ("fish", 3.0)), (1, 0.5), (1, 0.5)),
    ([["big cat"], []], _told(("cat", 1.0), ("dog", 2.0)), (0.5, 0), ((2 / 3 + 1) / 2, 1)),
    # An empty answer costs nothing where there is none.
    # Equal scores are walked in order, so the threshold may promise too much.
    ([["cat"], []], _told(("cat", 1.0), ("dog", 1.0)), (1, 1), (1, 1)),
    # As in the script two unanswerable questions over one prediction are more than all.
    ([[], []], [*_told(("", 0.0)), None], (2, 0), (2, 0)),
])  # fmt: skip
def test_the_best_thresholds_by_hand(golds, predictions, exact, f1):
    best = best_thresholds(asked(golds), predictions)
    assert (best.exact.score, best.exact.threshold) == exact
    assert (best.f1.score, best.f1.threshold) == pytest.approx(f1)


def test_the_best_score_is_the_best_of_all_thresholds():
    at = with_threshold(_told(("cat", 1.0), ("dog", 1.5)), 1.0)
    assert [each.text for each in at] == ["cat", ""]
    generator = np.random.default_rng(0)
    examples = asked([["cat"] if generator.random() < 0.5 else [] for _ in range(200)])
    right = generator.random(200) < 0.7
    predictions = _told(*(("cat" if each else "dog", generator.normal()) for each in right))
    scores = {
        each.no_answer: score(examples, with_threshold(predictions, each.no_answer), V2[:1]).value
        for each in predictions
    }
    best = best_thresholds(examples, predictions).exact
    assert best.score == pytest.approx(max(scores.values())) == scores[best.threshold]
    # Questions with and without an answer are scored apart.
    # "the" is an answer, by which nothing but an empty one is right.
    examples = asked([["big cat"], ["the"], [], []])
    predictions = _told(("cat", 0), ("", 0), ("", 0), ("dog", 0))
    found = by_answerable(examples, predictions)
    parts = {answerable: (part.n, part.exact, part.f1) for answerable, part in found.items()}
    assert parts == {True: pytest.approx((2, 0.5, (2 / 3 + 1) / 2)), False: (2, 0.5, 0.5)}
    assert by_answerable(examples[:1], predictions[:1]).keys() == {True}


def _drawn(n, seed, p_right=0.8):
    generator = np.random.default_rng(seed)
    gold = generator.integers(2, size=n)
    return gold.tolist(), np.where(generator.random(n) < p_right, gold, 1 - gold).tolist()


def test_the_error_of_accuracy_is_that_of_a_proportion():
    # SST-2's 872 sentences at 82.0: 1.3 points.
    found = _scored([1] * 872, [1] * 715 + [0] * 157, "accuracy")
    assert (points(found.value), points(found.standard_error)) == ("82.0", "1.3")
    assert found.standard_error == np.sqrt(715 / 872 * 157 / 872 / 872)
    assert _scored([1], [1], "accuracy").standard_error is None
    # Examples without labels are neither scored nor compared.
    with pytest.raises(DataError, match="2 of 2 examples have no label"):
        score([Example("0", {}, is_labelled=False)] * 2, said([0, 1]), ["accuracy"])
    for arguments in ((score, [], []), (paired, [], [], [])):
        with pytest.raises(DataError, match="no examples"):
            arguments[0](*arguments[1:], ["accuracy"])
    # That of a mean knows that its metrics agree, and that groups are drawn whole.
    gold, predicted = _drawn(200, 3)
    alone = _scored(gold, predicted, "macro_f1")
    mean = _scored(gold, predicted, "macro_f1", "accuracy")
    both = [each.value for each in mean.metrics.values()]
    assert mean.value == pytest.approx(np.mean(both))
    assert mean.standard_error == pytest.approx(alone.standard_error, rel=0.05)
    # Every example four times is no more than it is once.
    repeated = [np.repeat(each, 4).tolist() for each in (gold, predicted)]
    groups = [str(index) for index in range(200) for _ in range(4)]
    once, four = _scored(gold, predicted, "f1"), _scored(*repeated, "f1", groups=groups)
    assert four.value == once.value
    assert four.standard_error == pytest.approx(once.standard_error, rel=0.01)


@pytest.mark.parametrize("name", ["matthews", "spearman"])
def test_the_error_of_others_is_how_far_they_spread_over_sets(name):
    found = []
    for seed in range(200):
        gold, predicted = _drawn(200, seed)
        if name == "spearman":
            noise = np.random.default_rng(seed).normal(size=(2, 200))
            gold, predicted = noise[0].tolist(), (noise[0] + noise[1]).tolist()
        found.append(_scored(gold, predicted, name))
    spread = np.std([each.value for each in found])
    assert np.mean([each.standard_error for each in found]) == pytest.approx(spread, rel=0.13)


def test_mcnemars_p_is_that_of_rows_that_one_alone_has_right_and_the_interval_scipys():
    ours, theirs = [1] * 15 + [0] * 5, [1] * 8 + [0] * 9 + [1] * 3
    found = paired(labelled([1] * 20), said(ours), said(theirs), ["accuracy"])
    assert (found.n_only_first, found.n_only_other, found.is_decided) == (7, 3, False)
    # Seven of ten heads or a rarer number: 2 * (120 + 45 + 10 + 1) / 1024.
    assert found.p_mcnemar == pytest.approx(352 / 1024) == binomtest(7, 10).pvalue
    assert found.difference == pytest.approx(0.2)
    # Equal predictions do not differ.
    gold, ours = _drawn(50, 1)
    for name in ("accuracy", "f1", "matthews", "spearman"):
        found = paired(labelled(gold), said(ours), said(ours), [name])
        assert (found.difference, found.interval) == (0, (0, 0))
        assert found.p_mcnemar == (1 if name == "accuracy" else None)
    # The interval is SciPy's, and groups are drawn whole.
    draws = ((0.8, 1), (0.7, 2))
    both = [(np.random.default_rng(seed).random(300) < p).astype(int) for p, seed in draws]
    found = paired(labelled([1] * 300), *(said(each.tolist()) for each in both), ["accuracy"])
    generator = np.random.default_rng(0)
    drawn = bootstrap((both[0] - both[1],), np.mean, method="percentile", rng=generator)
    expected = tuple(drawn.confidence_interval)
    assert found.interval == pytest.approx(expected, abs=0.006)
    repeated = [said(np.repeat(each, 3).tolist()) for each in both]
    groups = [str(index) for index in range(300) for _ in range(3)]
    found = paired(labelled([1] * 900, groups), *repeated, ["accuracy"])
    assert found.interval == pytest.approx(expected, abs=0.01) and found.p_mcnemar is None
