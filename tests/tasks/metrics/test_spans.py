"""Answers as texts, as SQuAD's two scripts score them."""

import pytest

from sublayer.tasks.example import Answer, Example
from sublayer.tasks.metrics.score import score
from sublayer.tasks.metrics.spans import normalise
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
        ("a.b the.", "ab"),
        ("$$$ the a an", ""),
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
