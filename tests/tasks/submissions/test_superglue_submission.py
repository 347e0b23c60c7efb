"""SuperGLUE's ten files, read back by its readers where they are of their form."""

import json
import zipfile

import pytest

from sublayer.tasks.example import Example
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS, read_split
from sublayer.tasks.submissions.answers import Answers
from sublayer.tasks.submissions.folder import ARCHIVE
from sublayer.tasks.submissions.superglue import write_superglue

_MULTIRC = {
    "idx": 3,
    "version": 1.1,
    "passage": {
        "text": "P",
        "questions": [
            {"question": "Q", "idx": 7,
             "answers": [{"text": "A", "idx": 20}, {"text": "B", "idx": 21}]},
            {"question": "R", "idx": 8, "answers": [{"text": "C", "idx": 22}]},
        ],
    },
}  # fmt: skip
_RECORD = {
    "idx": 2,
    "passage": {"text": "Ann met Bob.", "entities": [{"start": 0, "end": 2},
                                                    {"start": 8, "end": 10}]},
    "qas": [{"query": "@placeholder met", "idx": 5}, {"query": "met @placeholder", "idx": 6}],
}  # fmt: skip


def _read(folder, name, row):
    path = folder / f"{name}.jsonl"
    path.write_text(json.dumps(row) + "\n")
    return read_split(TASKS[name], "test", (path,)).examples


def _answers(name, rows, labels, split="test"):
    predictions = [
        (row.id, label if isinstance(label, Prediction) else Prediction(label))
        for row, label in zip(rows, labels, strict=True)
    ]
    return Answers(TASKS[name], split, rows, predictions)


def _plain(name, labels, split="test"):
    rows = [
        Example(str(index), {}, choices=("x", "y"), is_labelled=False)
        for index in range(len(labels))
    ]
    return _answers(name, rows, labels, split)


@pytest.fixture(scope="module")
def submission(tmp_path_factory):
    folder = tmp_path_factory.mktemp("superglue")
    answers = [
        _answers("multirc", _read(folder, "multirc", _MULTIRC), [1, 0, 1]),
        _answers(
            "record", _read(folder, "record", _RECORD), [1, Prediction(None, text="Ann's mother")]
        ),
        _plain("boolq", [1, 0]),
        _plain("wic", [0, 1]),
        _plain("wsc", [0, 1]),
        _plain("cb", [2, 1]),
        _plain("copa", [0, 1]),
        _plain("axg", [1, 0], "dev"),
    ]
    return write_superglue(folder / "out", answers)


def _rows(submission, name):
    lines = (submission.path / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def _labels(submission, name):
    rows = _rows(submission, name)
    assert [row["idx"] for row in rows] == list(range(len(rows)))
    return [row["label"] for row in rows]


def test_labels_are_written_as_each_task_asks(submission):
    assert _labels(submission, "BoolQ") == ["true", "false"]
    assert _labels(submission, "WiC") == ["false", "true"]
    assert _labels(submission, "WSC") == ["False", "True"]
    assert _labels(submission, "CB") == ["neutral", "contradiction"]
    assert _labels(submission, "COPA") == [0, 1]
    assert _labels(submission, "AX-g") == ["not_entailment", "entailment"]


def test_multircs_rows_are_passages(submission):
    expected = [{"idx": 7, "answers": [{"idx": 20, "label": 1}, {"idx": 21, "label": 0}]},
                {"idx": 8, "answers": [{"idx": 22, "label": 1}]}]  # fmt: skip
    assert _rows(submission, "MultiRC") == [{"idx": 3, "passage": {"questions": expected}}]


def test_records_labels_are_the_texts_of_entities_or_what_was_written(submission):
    rows = [{"idx": 5, "label": "Bob"}, {"idx": 6, "label": "Ann's mother"}]
    assert _rows(submission, "ReCoRD") == rows


def test_what_was_not_trained_is_filled_and_marked(submission):
    assert set(_labels(submission, "RTE")) == {"entailment"}
    assert len(_labels(submission, "AX-b")) == 1104
    assert any(note.startswith("RTE.jsonl: not trained") for note in submission.notes)
    with zipfile.ZipFile(submission.path / ARCHIVE) as archive:
        assert set(archive.namelist()) == set(submission.files)
    assert len(submission.files) == 10


def test_rows_that_nobody_can_make_up_are_left_out_and_said(tmp_path):
    submission = write_superglue(tmp_path / "out", [])
    assert set(submission.files) & {"MultiRC.jsonl", "ReCoRD.jsonl"} == set()
    assert len(submission.files) == 8
    assert any(note.startswith("ReCoRD.jsonl: left out") for note in submission.notes)
