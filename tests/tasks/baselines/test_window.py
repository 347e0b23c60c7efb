"""Choices by the words that stand together."""

import numpy as np
import pytest

from sublayer.tasks.baselines.window import predict_choices, read_passage, score_window
from sublayer.tasks.example import Example
from sublayer.tasks.task import Task


def _chosen(fields, choices):
    task = Task("race_middle", "RACE", "race", "choice", tuple(fields), ("accuracy",))
    return predict_choices(task, [Example("0", fields, choices=choices)])[0].label


def test_a_window_is_as_long_as_there_are_wanted_words():
    passage = read_passage("a b x b c")
    # Two words: "a b" has log(1 + 1/1) and log(1 + 1/2), which is more than of "b c".
    wanted = frozenset({"a", "c"})
    assert score_window(passage, wanted) == pytest.approx(np.log(2))
    wanted = frozenset({"a", "b"})
    assert score_window(passage, wanted) == pytest.approx(np.log(2) + np.log(1.5))
    wanted = frozenset({"b", "c", "a", "y", "z", "w"})  # longer than the passage
    assert score_window(passage, wanted) == pytest.approx(2 * np.log(2) + 2 * np.log(1.5))


def test_nothing_wanted_and_an_empty_passage_score_0():
    assert score_window(read_passage("a b"), frozenset()) == 0
    assert score_window(read_passage(""), frozenset({"a"})) == 0


def test_the_choice_fills_the_blank():
    fields = {"article": "Tom has a red hat. Ann has a blue coat.", "question": "Ann has a _ ."}
    assert _chosen(fields, ("red hat", "blue coat")) == 1
    fields["question"] = "What does Tom have?"
    assert _chosen(fields, ("a blue coat", "a red hat")) == 1


def test_the_choice_fills_the_placeholder_of_a_query():
    fields = {"passage": "Rome fell. Paris won the cup.", "query": "The cup went to @placeholder"}
    assert _chosen(fields, ("Rome", "Paris")) == 1


def test_of_equal_choices_the_first_is_taken():
    assert _chosen({"story": "It rained."}, ("Yes", "No")) == 0
