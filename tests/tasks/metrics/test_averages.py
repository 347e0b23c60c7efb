"""Averages of suites."""

import pytest

from sublayer.tasks.metrics.averages import AVERAGES, suite_averages


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
