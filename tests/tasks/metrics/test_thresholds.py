"""Thresholds of no answer, as SQuAD 2.0's script walks to them."""

import numpy as np
import pytest

from sublayer.tasks.metrics.score import score
from sublayer.tasks.metrics.thresholds import best_thresholds, by_answerable, with_threshold
from sublayer.tasks.prediction import Prediction
from tests.tasks.metrics.examples import asked


def _said(*answers):
    return [Prediction(text=text, no_answer=no_answer) for text, no_answer in answers]


def test_answers_are_given_while_they_gain():
    examples = asked([["cat"], [], ["dog"], []])
    predictions = _said(("cat", -2.0), ("bird", 1.0), ("dog", 0.5), ("fish", 3.0))
    best = best_thresholds(examples, predictions)
    assert best.exact.score == 1
    assert best.exact.threshold == 0.5
    assert best.f1 == best.exact


def test_where_no_answer_gains_the_threshold_is_0():
    best = best_thresholds(asked([[], ["dog"]]), _said(("bird", -5.0), ("cat", -4.0)))
    assert best.exact.score == 0.5
    assert best.exact.threshold == 0


def test_exact_match_and_f1_have_thresholds_of_their_own():
    examples = asked([["big cat"], []])
    best = best_thresholds(examples, _said(("cat", 1.0), ("dog", 2.0)))
    assert (best.exact.score, best.exact.threshold) == (0.5, 0)
    assert best.f1.threshold == 1
    assert best.f1.score == pytest.approx((2 / 3 + 1) / 2)


def test_an_empty_answer_costs_nothing_where_there_is_none():
    best = best_thresholds(asked([[], ["cat"]]), _said(("", -1.0), ("cat", 2.0)))
    assert (best.exact.score, best.exact.threshold) == (1, 2)


def test_the_answer_at_the_threshold_stays():
    predictions = _said(("cat", 1.0), ("dog", 1.5))
    assert [each.text for each in with_threshold(predictions, 1.0)] == ["cat", ""]


def test_equal_scores_are_walked_in_order_so_the_threshold_may_promise_too_much():
    examples = asked([["cat"], []])
    predictions = _said(("cat", 1.0), ("dog", 1.0))
    best = best_thresholds(examples, predictions)
    assert (best.exact.score, best.exact.threshold) == (1, 1)
    kept = with_threshold(predictions, best.exact.threshold)
    assert score(examples, kept, ["exact_match_v2"]).value == 0.5


def test_the_best_score_is_the_best_of_all_thresholds():
    generator = np.random.default_rng(0)
    golds = [["cat"] if generator.random() < 0.5 else [] for _ in range(200)]
    answers = [("cat" if generator.random() < 0.7 else "dog", float(generator.normal()))
               for _ in range(200)]  # fmt: skip
    examples, predictions = asked(golds), _said(*answers)
    scores = {
        no_answer: score(examples, with_threshold(predictions, no_answer), ["exact_match_v2"]).value
        for _, no_answer in answers
    }
    best = best_thresholds(examples, predictions)
    assert best.exact.score == pytest.approx(max(scores.values()))
    assert scores[best.exact.threshold] == best.exact.score


def test_what_has_no_prediction_counts_among_the_unanswerable_as_in_the_script():
    # Two unanswerable questions over one prediction: more than all.
    best = best_thresholds(asked([[], []]), [*_said(("", 0.0)), None])
    assert best.exact.score == 2


def test_questions_with_and_without_an_answer_are_scored_apart():
    # "the" is an answer, by which nothing but an empty one is right.
    examples = asked([["big cat"], ["the"], [], []])
    predictions = _said(("cat", 0), ("", 0), ("", 0), ("dog", 0))
    parts = by_answerable(examples, predictions)
    assert (parts[True].n, parts[True].exact) == (2, 0.5)
    assert parts[True].f1 == pytest.approx((2 / 3 + 1) / 2)
    assert (parts[False].n, parts[False].exact, parts[False].f1) == (2, 0.5, 0.5)
    assert by_answerable(examples[:1], predictions[:1]).keys() == {True}
