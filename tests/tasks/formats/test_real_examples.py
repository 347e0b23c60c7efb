"""Every example of the shared pieces, in every format."""

import pytest

from sublayer.tasks.formats.pair import pair_rows
from sublayer.tasks.formats.text import text_input, text_target, text_targets, training_texts
from sublayer.tasks.formats.traversal import traversal_rows
from sublayer.tasks.formats.written import read_answer
from sublayer.tasks.registry import TASKS, find_files, read_split


def _examples(real_data, name):
    task = TASKS[name]
    folder = real_data / task.suite
    if not folder.is_dir():
        pytest.skip(f"no {folder}")
    for split, paths in find_files(task, folder).items():
        if split != "train" or name in ("cola", "cb", "copa"):
            yield from read_split(task, split, paths).examples


@pytest.mark.parametrize("name", ["cola", "stsb", "copa", "multirc", "wsc", "race_middle"])
def test_what_a_task_wants_written_is_read_as_its_label(real_data, name):
    task = TASKS[name]
    n_read = 0
    for example in _examples(real_data, name):
        n_choices = len(example.choices) if task.kind == "choice" else 1
        assert len(pair_rows(task, example)) == n_choices
        assert len(traversal_rows(task, example)) == (2 if task.is_symmetric else n_choices)
        rows = training_texts(task, example)
        if not example.is_labelled:
            assert rows == ()
            continue
        target = text_target(task, example)
        assert target is not None
        n_read += 1
        answer = read_answer(task, example, target)
        if name == "wsc":
            # What is written is the noun, be it right or wrong.
            assert answer.label == 1 and len(rows) == example.label
        elif name == "stsb":
            assert answer.label == pytest.approx(example.label, abs=0.1 + 1e-6)
        else:
            assert answer.label == example.label
            assert text_targets(task, example)[int(example.label)] == target
            assert rows == ((text_input(task, example), target),)
    assert n_read > 50
