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
    content = written(SPEC)
    assert read_spec(content, "task.json") == SPEC
    del content["columns"]  # as earlier versions wrote it
    assert read_spec(content, "task.json").columns == {}
    del content["context"]
    with pytest.raises(CheckpointError, match=r"task\.json does not describe a task"):
        read_spec(content, "task.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("context", 0),
        ("doc_stride", 10**30),
        ("max_answer", 2.0),
        ("context", True),
        ("columns", {"texts": "a"}),
        ("columns", {"text": 5}),
    ],
)
def test_values_out_of_range_are_refused(name, value):
    with pytest.raises(CheckpointError, match=rf"task\.json: .*{name}"):
        read_spec({**written(SPEC), name: value}, "task.json")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"fields": ["premise", "other"]}, "fields"),
        ({"kind": "choice", "labels": []}, "kind"),
        ({"suite": "squad"}, "suite"),
        ({"is_symmetric": True}, "is_symmetric"),
        ({"has_unanswerable": True}, "questions without an answer"),
        ({"name": "own"}, "no task own"),
        ({"name": "own", "suite": "own", "fields": ["a"], "is_symmetric": True}, "has not two"),
        ({"metrics": ["accuracy", "x"]}, "metrics are x"),
        ({"metrics": []}, "metrics are none"),
    ],
)
def test_a_task_unlike_its_name_is_refused(changes, field):
    content = written(SPEC)
    content["tasks"][0] |= changes
    with pytest.raises(CheckpointError, match=rf"task\.json .*{field}"):
        read_spec(content, "task.json")


@pytest.mark.parametrize("task", rows(TASKS.values(), 3), ids=lambda task: task.name)
def test_every_published_task_is_read_back(task: Task):
    spec = TaskSpec((task,), "pair", 64)
    assert read_spec(written(spec), "task.json") == spec
