"""Files that are handed in for GLUE, SuperGLUE, SQuAD and RACE."""

import csv
import json
import zipfile

import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.metrics.score import score
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS, read_split
from sublayer.tasks.submissions.answers import Answers, in_order
from sublayer.tasks.submissions.folder import ARCHIVE, NOTES
from sublayer.tasks.submissions.glue import write_glue
from sublayer.tasks.submissions.race import write_race
from sublayer.tasks.submissions.squad import write_squad
from sublayer.tasks.submissions.superglue import write_superglue
from sublayer.tasks.submissions.table import SUBMISSIONS
from tests.tasks.files import write

ROWS = [Example(each, {"sentence": each}, is_labelled=False) for each in ("0", "1", "2")]


def _in_order(ids, rows=ROWS):
    answers = Answers(TASKS["sst2"], "test", rows)
    return in_order(answers, [(each, Prediction(number)) for number, each in enumerate(ids)])


def test_predictions_are_put_into_the_order_of_rows():
    assert [each.label for each in _in_order(["2", "0", "1"])] == [1, 2, 0]


@pytest.mark.parametrize("ids, rows, named", [
    (["0"], ROWS, "2 of the 3 rows .*'1'"),
    (["0", "1", "1", "2"], ROWS, "two predictions .*'1'"),
    (["0", "1", "2"], [*ROWS, ROWS[0]], "two rows .*'0'"),
    (["0", "1", "2", "x"], ROWS, "1 prediction .*'x'"),
])  # fmt: skip
def test_rows_and_predictions_that_do_not_match_are_refused(ids, rows, named):
    with pytest.raises(DataError, match=named):
        _in_order(ids, rows)


def _answers(name, predictions, split="test", rows=None):
    if rows is None:
        rows = [Example(str(n), {}, choices=tuple("xyzw")) for n in range(len(predictions))]
    given = [each if isinstance(each, Prediction) else Prediction(each) for each in predictions]
    pairs = [(row.id, each) for row, each in zip(rows, given, strict=True)]
    return Answers(TASKS[name], split, rows, pairs)


SETS = "CoLA SST-2 MRPC STS-B MNLI-m MNLI-mm QNLI QQP RTE WNLI AX"
NAMES = {f"{name}.tsv" for name in SETS.split()}


def test_a_submission_to_glue_has_all_files_and_the_majority_where_nothing_is_trained(tmp_path):
    train = [Example("0", {"sentence": ""}, label=0)]
    answers = [
        _answers("sst2", [0, 1]),
        _answers("stsb", [2.34567, -1.0, 7.5]),
        _answers("rte", [0, 1, None]),
        _answers("mnli", [2, 1], "test_mismatched"),
        Answers(TASKS["cola"], "test", ROWS, None, train),
        Answers(TASKS["qnli"], "test", ROWS, None, ()),
    ]
    submission = write_glue(tmp_path / "out", answers)
    assert {path.name for path in submission.path.iterdir()} == {*NAMES, ARCHIVE, NOTES}
    assert set(submission.files) == NAMES
    with zipfile.ZipFile(submission.path / ARCHIVE) as archive:
        assert set(archive.namelist()) == NAMES
        assert archive.read("RTE.tsv") == (submission.path / "RTE.tsv").read_bytes()
    found = {}
    for name in NAMES:
        header, *lines = (submission.path / name).read_text().splitlines()
        assert header == "index\tprediction"
        rows = [line.split("\t") for line in lines]
        assert [index for index, _ in rows] == [str(number) for number in range(len(rows))]
        found[name.removesuffix(".tsv")] = [label for _, label in rows]
    assert found["SST-2"] == ["0", "1"]
    assert found["MNLI-mm"] == ["contradiction", "neutral"]
    assert found["STS-B"] == ["2.346", "0.000", "5.000"]
    assert found["RTE"] == ["entailment", "not_entailment", "entailment"]
    assert set(found["CoLA"]) == {"0"}  # of its train
    assert set(found["QNLI"]) == {"entailment"}
    assert found["WNLI"] == ["0"] * 146
    notes = (submission.path / NOTES).read_text()
    assert notes.splitlines() == list(submission.notes)
    untrained = {name for name in NAMES if f"{name}: not trained" in notes}
    assert untrained == NAMES - {"SST-2.tsv", "STS-B.tsv", "RTE.tsv", "MNLI-mm.tsv"}
    assert "SST-2.tsv: 2 rows, of 1,821 as published" in submission.notes
    assert "RTE.tsv: 1 row answered with none" in notes


@pytest.mark.parametrize("answers, message", [
    ([("stsb", [float("nan")])], "is nan"),
    ([("cb", [0])], "belongs to no file"),
    ([("rte", [0]), ("rte", [1])], "given twice"),
])  # fmt: skip
def test_a_refusal_leaves_nothing_behind(tmp_path, answers, message):
    with pytest.raises(DataError, match=message):
        write_glue(tmp_path / "out", [_answers(*each) for each in answers])
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="exists"):
        write_glue(tmp_path / "out", [])
    assert not list((tmp_path / "out").iterdir())


_ASKED = [{"question": "Q", "idx": 7, "answers": [
    {"text": "A", "idx": 20}, {"text": "B", "idx": 21},
]}, {"question": "R", "idx": 8, "answers": [{"text": "C", "idx": 22}]}]  # fmt: skip
_MULTIRC = {"idx": 3, "version": 1.1, "passage": {"text": "P", "questions": _ASKED}}
_ENTITIES = [{"start": 0, "end": 2}, {"start": 8, "end": 10}]
_RECORD = {
    "idx": 2,
    "passage": {"text": "Ann met Bob.", "entities": _ENTITIES},
    "qas": [{"query": "@placeholder met", "idx": 5}, {"query": "met @placeholder", "idx": 6}],
}


def _nested(folder, name, row, predictions):
    path = write(folder / f"{name}.jsonl", row)
    return _answers(name, predictions, rows=read_split(TASKS[name], "test", (path,)).examples)


def test_a_submission_to_superglue_is_written_as_each_task_asks(tmp_path):
    answers = [
        _nested(tmp_path, "multirc", _MULTIRC, [1, 0, 1]),
        _nested(tmp_path, "record", _RECORD, [1, Prediction(None, text="Ann's mother")]),
        *(_answers(name, [1, 0]) for name in ("boolq", "wic", "wsc", "cb", "copa")),
        _answers("axg", [1, 0], "dev"),
    ]
    submission = write_superglue(tmp_path / "out", answers)
    found = {}
    for name in submission.files:
        rows = [json.loads(line) for line in (submission.path / name).read_text().splitlines()]
        found[name.removesuffix(".jsonl")] = rows
    questions = [{"idx": 7, "answers": [{"idx": 20, "label": 1}, {"idx": 21, "label": 0}]},
                 {"idx": 8, "answers": [{"idx": 22, "label": 1}]}]  # fmt: skip
    assert found.pop("MultiRC") == [{"idx": 3, "passage": {"questions": questions}}]
    record = found.pop("ReCoRD")
    assert record == [{"idx": 5, "label": "Bob"}, {"idx": 6, "label": "Ann's mother"}]
    for rows in found.values():
        assert [row["idx"] for row in rows] == list(range(len(rows)))
    labels = {name: [row["label"] for row in rows] for name, rows in found.items()}
    assert set(labels.pop("RTE")) == {"entailment"}
    assert len(labels.pop("AX-b")) == 1104
    assert labels == {
        "BoolQ": ["true", "false"],
        "WiC": ["true", "false"],
        "WSC": ["True", "False"],
        "CB": ["contradiction", "entailment"],
        "COPA": [1, 0],
        "AX-g": ["not_entailment", "entailment"],
    }
    assert any(note.startswith("RTE.jsonl: not trained") for note in submission.notes)
    with zipfile.ZipFile(submission.path / ARCHIVE) as archive:
        assert set(archive.namelist()) == set(submission.files)
    # Rows that nobody can make up are left out.
    submission = write_superglue(tmp_path / "empty", [])
    assert len(submission.files) == 8
    assert not {"MultiRC.jsonl", "ReCoRD.jsonl"} & set(submission.files)
    assert any(note.startswith("ReCoRD.jsonl: left out") for note in submission.notes)


QUESTIONS = [
    Example("q1", {}, answers=(Answer("the cat"), Answer("a big cat"))),
    Example("q2", {}, answers=(Answer("Zoë"),)),
]


def test_submissions_to_squad_are_texts_by_id_and_scores_of_no_answer(tmp_path):
    predictions = [Prediction(text="Big Cat", no_answer=-2.5), Prediction(text="", no_answer=1.0)]
    one = write_squad(tmp_path / "1", [_answers("squad", predictions, "dev", QUESTIONS)])
    assert one.files == ("predictions.json",)
    assert json.loads((one.path / "predictions.json").read_text()) == {"q1": "Big Cat", "q2": ""}
    assert score(QUESTIONS, predictions, TASKS["squad"].metrics[:1]).value == 0.5
    two = write_squad(tmp_path / "2", [_answers("squad2", predictions, "dev", QUESTIONS)])
    read = {path.name: json.loads(path.read_text()) for path in two.path.iterdir()}
    assert read == {
        "predictions.json": {"q1": "Big Cat", "q2": ""},
        "null_odds.json": {"q1": -2.5, "q2": 1.0},
    }
    both = [_answers(name, predictions, "dev", QUESTIONS) for name in ("squad", "squad2")]
    assert write_squad(tmp_path / "both", both).files == (
        "squad-dev-predictions.json",
        "squad2-dev-predictions.json",
        "squad2-dev-null_odds.json",
    )


def test_answers_of_race_are_letters(tmp_path):
    submission = write_race(tmp_path / "out", [_answers("race_middle", [3, 0, None])])
    letters = json.loads((tmp_path / "out" / "answers.json").read_text())
    assert letters == {"0": "D", "1": "A", "2": "A"}
    with (tmp_path / "out" / "answers.csv").open(newline="") as file:
        assert {row["id"]: row["answer"] for row in csv.DictReader(file)} == letters
    assert submission.notes == (
        "RACE middle (test): 1 question answered with none of the options; A is written",
    )


@pytest.mark.parametrize("name", ["squad", "race"])
def test_a_set_without_predictions_is_refused(name, tmp_path):
    with pytest.raises(DataError, match="has no predictions"):
        SUBMISSIONS[name](tmp_path / "out", [Answers(TASKS[name], "dev", QUESTIONS)])
    assert not list(tmp_path.iterdir())
