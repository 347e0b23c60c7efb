"""Descriptions of tasks beside a model, as they are saved and read."""

import json

import pytest

from sublayer.errors import CheckpointError
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec, read_spec

COLUMNS = {"text": "a", "choices": ("b", "c"), "label": "d"}
SPEC = TaskSpec((TASKS["rte"], TASKS["squad2"]), "pair", 64, columns=COLUMNS)


def _written():
    return json.loads(json.dumps(SPEC.to_json()))


def test_a_saved_description_is_read():
    content = _written()
    assert read_spec(content, "task.json") == SPEC
    del content["columns"]  # as earlier versions wrote it
    assert read_spec(content, "task.json").columns == {}
    del content["context"]
    with pytest.raises(CheckpointError, match=r"task\.json does not describe a task"):
        read_spec(content, "task.json")


@pytest.mark.parametrize(
    ("name", "value"),
    [("context", 0), ("doc_stride", 10**30), ("max_answer", 2.0), ("columns", {"text": 5})],
)
def test_values_out_of_range_are_refused(name, value):
    with pytest.raises(CheckpointError, match=rf"task\.json: .*{name}"):
        read_spec({**_written(), name: value}, "task.json")


@pytest.mark.parametrize("changes, field", [
    ({"fields": ["premise", "other"]}, "fields"),
    ({"kind": "choice", "labels": []}, "kind"),
    ({"is_symmetric": True}, "is_symmetric"),
    ({"has_unanswerable": True}, "questions without an answer"),
    ({"name": "own"}, "no task own"),
    ({"metrics": ["accuracy", "x"]}, "metrics are x"),
])  # fmt: skip
def test_a_task_unlike_its_name_is_refused(changes, field):
    content = _written()
    content["tasks"][0] |= changes
    with pytest.raises(CheckpointError, match=rf"task\.json .*{field}"):
        read_spec(content, "task.json")
