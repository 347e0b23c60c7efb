import json

import pytest

from sublayer.errors import CheckpointError
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec, read_spec
from sublayer.tasks.task import Task
from tests.breadth import rows

SPEC = TaskSpec(
    (TASKS["rte"],),
    "pair",
    64,
    columns={"text": "a", "choices": ("b", "c"), "label": "d"},
)


def written(spec):
    return json.loads(json.dumps(spec.to_json()))


def test_what_is_saved_is_read():
    assert read_spec(written(SPEC), "task.json") == SPEC


def test_a_file_without_columns_is_of_an_earlier_version():
    content = written(SPEC)
    del content["columns"]
    assert read_spec(content, "task.json").columns == {}


@pytest.mark.parametrize("columns", [5, ["text"], {"text": 5}, {"texts": "a"}, {"label": "a"}])
def test_columns_that_are_none_are_refused(columns):
    with pytest.raises(CheckpointError, match=r"task\.json: its columns are none"):
        read_spec({**written(SPEC), "columns": columns}, "task.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("context", 0),
        ("doc_stride", 10**30),
        ("max_answer", 2.0),
        ("context", True),
        ("context", "8"),
    ],
)
def test_lengths_out_of_range_are_refused(name, value):
    with pytest.raises(CheckpointError, match=rf"task\.json: {name} is not a whole number of 1 to"):
        read_spec({**written(SPEC), name: value}, "task.json")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"fields": ["premise", "other"]}, "its fields is not that of RTE"),
        ({"fields": ["premise"]}, "its fields is not that of RTE"),
        ({"kind": "choice", "labels": []}, "its kind is not that of RTE"),
        ({"suite": "squad"}, "its suite is not that of RTE"),
        ({"is_symmetric": True}, "its is_symmetric is not that of RTE"),
        ({"is_symmetric": 1e308}, "its is_symmetric is neither true nor false"),
        ({"has_unanswerable": True}, "it has questions without an answer, and no passages"),
        ({"name": "own"}, "glue has no task own"),
        ({"name": "own", "suite": "own", "fields": ["a"], "is_symmetric": True}, "has not two"),
        ({"metrics": ["accuracy", "x"]}, "its metrics are x: not known"),
        ({"metrics": []}, "its metrics are none: not known"),
    ],
)
def test_a_task_that_is_another_than_its_name_says_is_refused(changes, message):
    content = written(SPEC)
    content["tasks"][0] |= changes
    with pytest.raises(
        CheckpointError, match=rf"task\.json does not describe a task \(.*{message}"
    ):
        read_spec(content, "task.json")


@pytest.mark.parametrize("task", rows(TASKS.values(), 8), ids=lambda task: task.name)
def test_every_published_task_is_read_back(task: Task):
    spec = TaskSpec((task,), "pair", 64)
    assert read_spec(written(spec), "task.json") == spec
