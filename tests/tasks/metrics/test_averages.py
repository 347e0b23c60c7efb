"""Averages of suites."""

import pytest

from sublayer.tasks.metrics.averages import AVERAGES, average, mean_score


def test_glue_has_nine_tasks_and_the_papers_eight():
    scores = dict.fromkeys(AVERAGES["glue"], 0.8) | {"wnli": 0.35, "ax": 0.1}
    assert len(AVERAGES["glue"]) == 9
    assert average("glue", scores).value == pytest.approx((8 * 0.8 + 0.35) / 9)
    assert average("glue_without_wnli", scores).value == pytest.approx(0.8)


def test_an_average_without_a_task_has_no_value_and_names_it():
    scores = dict.fromkeys(AVERAGES["superglue"], 0.5)
    del scores["wsc"]
    result = average("superglue", scores)
    assert result.value is None
    assert result.missing == ("wsc",)


def test_mnlis_score_is_the_mean_of_its_two_sets():
    assert mean_score([0.8, 0.7]) == pytest.approx(0.75)
