"""Reports: baselines are computed once, and each is said once, by what it is for which task."""

import numpy as np
import pytest

from sublayer.data.tasks.encoded import EncodedExamples
from sublayer.data.tasks.task_split import TaskPart
from sublayer.objective.supervised.baselines import BaselineScores
from sublayer.objective.supervised.report import (
    PartReport,
    average_reports,
    render_averages,
    render_baselines,
)
from sublayer.tasks.baselines.table import BASELINES
from sublayer.tasks.metrics.averages import AVERAGES
from sublayer.tasks.metrics.score import Score
from sublayer.tasks.registry import TASKS
from tests.answerers import draw_examples

N = 20


def part_of(name):
    examples = draw_examples(name, N)
    none = np.zeros(0, dtype=np.int64)
    encoded = EncodedExamples(
        ids=none,
        text_starts=none,
        row_starts=none,
        example_starts=none,
        labels=np.zeros(N),
        is_labelled=np.ones(N, dtype=np.bool_),
        cuts=none,
        numbers=np.arange(N),
    )
    return TaskPart(TASKS[name], "dev", encoded, lambda: examples)


def report_of(name):
    described = {
        each.name: {"description": each.describe(TASKS[name])} for each in BASELINES.values()
    }
    return {"title": TASKS[name].title, "baselines": described}


def test_baselines_are_computed_when_they_are_asked_for_and_once():
    n_read = 0

    def read_train():
        nonlocal n_read
        n_read += 1
        return {"sst2": draw_examples("sst2", N)}

    baselines = BaselineScores(read_train)
    assert n_read == 0
    first = baselines.of(part_of("sst2"))
    assert list(first) == ["majority", "words"]
    assert baselines.of(part_of("sst2")) is first
    assert baselines.of(part_of("cola")) == {}
    assert n_read == 1


def test_baselines_that_are_the_same_for_all_tasks_are_said_in_a_line_each():
    assert render_baselines([report_of("sst2"), report_of("sst2")]) == [
        "majority: the most frequent label of the training rows",
        "words: logistic regression on the TF-IDF of words, pairs and triples of words",
    ]


def test_baselines_that_differ_are_said_with_their_tasks():
    lines = render_baselines([report_of("sst2"), report_of("stsb"), report_of("rte")])
    assert lines[:2] == [
        "majority of SST-2, RTE: the most frequent label of the training rows",
        "majority of STS-B: the mean of the training rows",
    ]
    assert [line.split(":")[0] for line in lines[2:]] == [
        "words of SST-2",
        "words of STS-B",
        "words of RTE",
    ]


def test_without_baselines_nothing_is_said_of_them():
    assert render_baselines([{"title": "SST-2", "baselines": {}}]) == []


def test_a_suite_that_is_whole_has_its_average_beside_its_tasks():
    reports = []
    for name in AVERAGES["GLUE without WNLI"]:
        task = TASKS[name]
        for split in task.dev_splits:
            value = 0.5 if split == "dev_mismatched" else 0.9
            score = Score(value, None, {}, n_examples=N, n_outside=0)
            reports.append(PartReport(name, task, split, score, {}, ""))
    averages = average_reports(reports)
    assert averages == {"GLUE without WNLI": pytest.approx((7 * 0.9 + 0.7) / 8)}
    assert render_averages(averages) == ["average of GLUE without WNLI: 87.5"]
    assert average_reports(reports[1:]) == {}
