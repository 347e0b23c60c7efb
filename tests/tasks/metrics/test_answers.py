"""Answers as texts and thresholds of no answer, as SQuAD's scripts score them."""

import numpy as np
import pytest

from sublayer.tasks.example import Answer, Example
from sublayer.tasks.metrics.score import score
from sublayer.tasks.metrics.spans import normalise
from sublayer.tasks.metrics.thresholds import best_thresholds, by_answerable, with_threshold
from sublayer.tasks.prediction import Prediction
from tests.tasks.metrics.examples import asked, written

V1 = ("exact_match", "token_f1")
V2 = ("exact_match_v2", "token_f1_v2")


def _values(golds, texts, metrics):
    predictions = [None if text is None else Prediction(text=text) for text in texts]
    result = score(asked(golds), predictions, metrics)
    return [each.value for each in result.metrics.values()]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The-Cat", "thecat"),
        ("  An  apple,\ta\u00a0day ", "apple day"),
        ("THE THEATRE", "theatre"),
        ("‘the’ “a”", "‘ ’ “ ”"),
    ],
)
def test_an_answer_is_normalised_in_the_scripts_order(text, expected):
    assert normalise(text) == expected


@pytest.mark.parametrize("metrics", [V1, V2])
def test_known_values_of_t5(metrics):
    golds = [["big moose", "hippo"], ["correct1"], ["correct2.1", "correct2.2"], ["a", "b"]]
    texts = ["‘a big  Moose!‘", "wrong", "correct2.2", "c"]
    exact, f1 = _values(golds, texts, metrics)
    assert exact == 0.25
    assert f1 == pytest.approx(0.35)
    exact, f1 = _values([["abc abd", "$$$$"]], ["abd"], metrics)
    assert exact == 0
    assert f1 == pytest.approx(2 / 3)
    assert _values([["abc abd"]], [""], metrics) == [0, 0]


def test_f1_counts_a_repeated_word_as_often_as_both_have_it():
    # 2 of 3 words, and 2 of 4.
    assert _values([["x x y z"]], ["x x x"], V1)[1] == pytest.approx(4 / 7)


def test_golds_of_which_nothing_remains():
    golds = [["the", "cat"]]
    assert _values(golds, ["an"], V1) == [1, 0]  # equal, but no word is shared
    assert _values(golds, ["an"], V2) == [0, 0]  # "the" is no gold answer
    assert _values([["the"]], ["an"], V2) == [1, 1]
    assert _values([["the"]], ["cat"], V2) == [0, 0]


def test_no_answer_is_right_where_there_is_none():
    assert _values([[], []], ["", "cat"], V2) == [0.5, 0.5]


def test_a_question_without_prediction_is_wrong_in_1_1_and_left_out_in_2_0():
    golds, texts = [["cat"], ["dog"]], ["cat", None]
    assert _values(golds, texts, V1) == [0.5, 0.5]
    assert _values(golds, texts, V2) == [1, 1]
    result = score(asked(golds), [None, None], V2)
    assert result.value == 0
    assert result.metrics["token_f1_v2"].reason == "there are no predictions"


def test_of_a_choice_its_text_is_scored():
    example = Example(
        "0", {}, choices=("New York", "Iran"), answers=(Answer("the new york"), Answer("NY"))
    )
    result = score(
        [example] * 3, [Prediction(label=0), Prediction(label=1), *written(["york"])], V1
    )
    assert result.metrics["exact_match"].value == pytest.approx(1 / 3)
    assert result.metrics["token_f1"].value == pytest.approx((1 + 2 / 3) / 3)
    assert result.n_outside == 1


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
