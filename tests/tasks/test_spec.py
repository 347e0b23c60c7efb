import json

import pytest

from sublayer.errors import CheckpointError
from sublayer.tasks.registry import TASKS
from sublayer.tasks.spec import TaskSpec, read_spec

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
