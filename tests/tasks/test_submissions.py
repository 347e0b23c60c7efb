"""Files that are handed in for GLUE, SuperGLUE, SQuAD and RACE."""

import csv
import json
import zipfile
from collections import Counter

import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Answer, Example
from sublayer.tasks.metrics.score import score
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS, read_split
from sublayer.tasks.submissions.answers import Answers, in_order
from sublayer.tasks.submissions.folder import ARCHIVE, NOTES
from sublayer.tasks.submissions.glue import FILES, write_glue
from sublayer.tasks.submissions.race import write_race
from sublayer.tasks.submissions.squad import write_squad
from sublayer.tasks.submissions.superglue import write_superglue
from sublayer.tasks.submissions.table import SUBMISSIONS
from sublayer.tasks.task import Task

ROWS = [Example(each, {"sentence": each}, is_labelled=False) for each in ("0", "1", "2")]


def _in_order(ids, rows=ROWS):
    answers = Answers(TASKS["sst2"], "test", rows)
    return in_order(answers, [(each, Prediction(number)) for number, each in enumerate(ids)])


def test_predictions_are_put_into_the_order_of_rows():
    assert [each.label for each in _in_order(["2", "0", "1"])] == [1, 2, 0]


@pytest.mark.parametrize(
    ("ids", "rows", "named"),
    [
        (["0"], ROWS, "2 of the 3 rows .*'1'"),
        (["0", "1", "1", "2"], ROWS, "two predictions .*'1'"),
        (["0", "1", "2"], [*ROWS, ROWS[0]], "two rows .*'0'"),
        (["0", "1", "2", "x"], ROWS, "1 prediction .*'x'"),
    ],
)
def test_rows_and_predictions_that_do_not_match_are_refused(ids, rows, named):
    with pytest.raises(DataError, match=named):
        _in_order(ids, rows)


NAMES = {
    "CoLA.tsv", "SST-2.tsv", "MRPC.tsv", "STS-B.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "QNLI.tsv",
    "QQP.tsv", "RTE.tsv", "WNLI.tsv", "AX.tsv",
}  # fmt: skip


def _glue_answers(name, labels, split="test", train=()):
    rows = [
        Example(str(index), dict.fromkeys(TASKS[name].fields, ""), is_labelled=False)
        for index in range(len(labels) if labels else 2)
    ]
    predictions = None
    if labels:
        pairs = zip(rows, labels, strict=True)
        predictions = [(row.id, Prediction(label)) for row, label in pairs]
    return Answers(TASKS[name], split, rows, predictions, train)


@pytest.fixture(scope="module")
def glue_submission(tmp_path_factory):
    train = [Example("0", {"sentence": ""}, label=0)]
    answers = [
        _glue_answers("sst2", [0, 1]),
        _glue_answers("stsb", [2.34567, -1.0, 7.5]),
        _glue_answers("rte", [0, 1, None]),
        _glue_answers("mnli", [2, 1], "test_mismatched"),
        _glue_answers("cola", None, train=train),
        _glue_answers("qnli", None),
    ]
    path = tmp_path_factory.mktemp("glue") / "out"
    return write_glue(path, answers)


def _glue_rows(glue_submission, name):
    header, *rows = (glue_submission.path / name).read_text().splitlines()
    assert header == "index\tprediction"
    return [tuple(row.split("\t")) for row in rows]


def test_all_eleven_files_are_there_and_in_the_archive(glue_submission):
    assert set(glue_submission.files) == NAMES == {file.name for file in FILES}
    assert {path.name for path in glue_submission.path.iterdir()} == {*NAMES, ARCHIVE, NOTES}
    with zipfile.ZipFile(glue_submission.path / ARCHIVE) as archive:
        assert set(archive.namelist()) == NAMES
        for name in NAMES:
            assert archive.read(name) == (glue_submission.path / name).read_bytes()


def test_labels_are_numbers_or_words_as_each_task_asks(glue_submission):
    assert _glue_rows(glue_submission, "SST-2.tsv") == [("0", "0"), ("1", "1")]
    assert _glue_rows(glue_submission, "MNLI-mm.tsv") == [("0", "contradiction"), ("1", "neutral")]


def test_numbers_have_three_decimals_within_their_range(glue_submission):
    values = [value for _, value in _glue_rows(glue_submission, "STS-B.tsv")]
    assert values == ["2.346", "0.000", "5.000"]


def test_what_is_none_of_the_labels_is_written_as_the_majoritys_and_counted(glue_submission):
    labels = [label for _, label in _glue_rows(glue_submission, "RTE.tsv")]
    assert labels == ["entailment", "not_entailment", "entailment"]
    assert any(
        note.startswith("RTE.tsv: 1 row answered with none") for note in glue_submission.notes
    )


def test_what_was_not_trained_is_the_majoritys_and_marked(glue_submission):
    assert {label for _, label in _glue_rows(glue_submission, "CoLA.tsv")} == {"0"}  # of its train
    assert {label for _, label in _glue_rows(glue_submission, "QNLI.tsv")} == {"entailment"}
    wnli = _glue_rows(glue_submission, "WNLI.tsv")
    assert len(wnli) == 146
    assert [index for index, _ in wnli] == [str(number) for number in range(146)]
    assert {label for _, label in wnli} == {"0"}
    notes = (glue_submission.path / NOTES).read_text()
    assert notes.splitlines() == list(glue_submission.notes)
    for name in ("CoLA", "MRPC", "MNLI-m", "QNLI", "QQP", "WNLI", "AX"):
        assert f"{name}.tsv: not trained" in notes
    assert "SST-2.tsv: not trained" not in notes


def test_a_set_that_is_not_whole_is_said(glue_submission):
    assert "SST-2.tsv: 2 rows, of 1,821 as published" in glue_submission.notes


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="exists"):
        write_glue(tmp_path / "out", [])
    assert not list((tmp_path / "out").iterdir())


def test_a_failure_leaves_nothing_behind(tmp_path):
    broken = _glue_answers("stsb", [float("nan")])
    with pytest.raises(DataError, match="is nan"):
        write_glue(tmp_path / "out", [broken])
    assert not list(tmp_path.iterdir())


def test_what_is_not_glues_is_refused(tmp_path):
    with pytest.raises(DataError, match="belongs to no file"):
        write_glue(tmp_path / "out", [_glue_answers("cb", [0])])
    with pytest.raises(DataError, match="given twice"):
        write_glue(tmp_path / "out", [_glue_answers("rte", [0]), _glue_answers("rte", [1])])


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


def _superglue_answers(name, rows, labels, split="test"):
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
    return _superglue_answers(name, rows, labels, split)


@pytest.fixture(scope="module")
def superglue_submission(tmp_path_factory):
    folder = tmp_path_factory.mktemp("superglue")
    answers = [
        _superglue_answers("multirc", _read(folder, "multirc", _MULTIRC), [1, 0, 1]),
        _superglue_answers(
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


def _superglue_rows(superglue_submission, name):
    lines = (superglue_submission.path / f"{name}.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def _labels(superglue_submission, name):
    rows = _superglue_rows(superglue_submission, name)
    assert [row["idx"] for row in rows] == list(range(len(rows)))
    return [row["label"] for row in rows]


def test_labels_are_written_as_each_task_asks(superglue_submission):
    assert _labels(superglue_submission, "BoolQ") == ["true", "false"]
    assert _labels(superglue_submission, "WiC") == ["false", "true"]
    assert _labels(superglue_submission, "WSC") == ["False", "True"]
    assert _labels(superglue_submission, "CB") == ["neutral", "contradiction"]
    assert _labels(superglue_submission, "COPA") == [0, 1]
    assert _labels(superglue_submission, "AX-g") == ["not_entailment", "entailment"]


def test_multircs_rows_are_passages(superglue_submission):
    expected = [{"idx": 7, "answers": [{"idx": 20, "label": 1}, {"idx": 21, "label": 0}]},
                {"idx": 8, "answers": [{"idx": 22, "label": 1}]}]  # fmt: skip
    assert _superglue_rows(superglue_submission, "MultiRC") == [
        {"idx": 3, "passage": {"questions": expected}}
    ]


def test_records_labels_are_the_texts_of_entities_or_what_was_written(superglue_submission):
    rows = [{"idx": 5, "label": "Bob"}, {"idx": 6, "label": "Ann's mother"}]
    assert _superglue_rows(superglue_submission, "ReCoRD") == rows


def test_what_was_not_trained_is_filled_and_marked(superglue_submission):
    assert set(_labels(superglue_submission, "RTE")) == {"entailment"}
    assert len(_labels(superglue_submission, "AX-b")) == 1104
    assert any(note.startswith("RTE.jsonl: not trained") for note in superglue_submission.notes)
    with zipfile.ZipFile(superglue_submission.path / ARCHIVE) as archive:
        assert set(archive.namelist()) == set(superglue_submission.files)
    assert len(superglue_submission.files) == 10


def test_rows_that_nobody_can_make_up_are_left_out_and_said(tmp_path):
    superglue_submission = write_superglue(tmp_path / "out", [])
    assert set(superglue_submission.files) & {"MultiRC.jsonl", "ReCoRD.jsonl"} == set()
    assert len(superglue_submission.files) == 8
    assert any(note.startswith("ReCoRD.jsonl: left out") for note in superglue_submission.notes)


_SQUAD = Task("squad", "SQuAD 1.1", "squad", "span", ("context", "question"), ("exact_match",))
_SQUAD2 = Task("squad2", "SQuAD 2.0", "squad", "span", _SQUAD.fields, ("exact_match_v2",),
               has_unanswerable=True)  # fmt: skip
_RACE = Task("race_middle", "RACE middle", "race", "choice", ("article", "question"), ("accuracy",))
_QUESTIONS = [
    Example("q1", {}, answers=(Answer("the cat"), Answer("a big cat"))),
    Example("q2", {}, answers=(Answer("Zoë"),)),
    Example("q3", {}),
]


def _squad_answers(task, rows, predictions, split="dev"):
    pairs = zip(rows, predictions, strict=True)
    return Answers(task, split, rows, [(row.id, each) for row, each in pairs])


def _exact_v1(dataset, predictions):
    """What SQuAD 1.1's script does with a file of predictions, for words without punctuation."""
    total = right = 0
    for question in dataset:
        total += 1
        text = predictions.get(question["id"])
        words = [word for word in (text or "").lower().split() if word not in ("a", "an", "the")]
        golds = [
            [word for word in answer["text"].lower().split() if word not in ("a", "an", "the")]
            for answer in question["answers"]
        ]
        right += any(Counter(words) == Counter(gold) and words == gold for gold in golds)
    return right / total


def test_the_scripts_reader_finds_every_id(tmp_path):
    rows = _QUESTIONS[:2]
    predictions = [Prediction(text="Big Cat"), Prediction(text="zoë")]
    submission = write_squad(tmp_path / "out", [_squad_answers(_SQUAD, rows, predictions)])
    assert submission.files == ("predictions.json",)
    written = json.loads((tmp_path / "out" / "predictions.json").read_text(encoding="utf-8"))
    assert written == {"q1": "Big Cat", "q2": "zoë"}
    dataset = [
        {"id": row.id, "answers": [{"text": each.text} for each in row.answers]} for row in rows
    ]
    ours = score(rows, predictions, _SQUAD.metrics).value
    assert _exact_v1(dataset, written) == ours == 1


def test_of_2_0_no_answer_is_empty_and_its_scores_stand_beside(tmp_path):
    predictions = [
        Prediction(text="cat", no_answer=-2.5),
        Prediction(text="", no_answer=1.0),
        Prediction(text="", no_answer=3.0),
    ]
    write_squad(tmp_path / "out", [_squad_answers(_SQUAD2, _QUESTIONS, predictions)])
    read = {path.name: json.loads(path.read_text()) for path in (tmp_path / "out").iterdir()}
    assert read == {
        "predictions.json": {"q1": "cat", "q2": "", "q3": ""},
        "null_odds.json": {"q1": -2.5, "q2": 1.0, "q3": 3.0},
    }


def test_several_splits_have_files_of_their_own(tmp_path):
    both = [
        _squad_answers(_SQUAD, _QUESTIONS[:1], [Prediction(text="x")]),
        _squad_answers(_SQUAD2, _QUESTIONS[:1], [Prediction(text="y")]),
    ]
    files = write_squad(tmp_path / "out", both).files
    assert files == (
        "squad-dev-predictions.json",
        "squad2-dev-predictions.json",
        "squad2-dev-null_odds.json",
    )


def test_races_answers_are_letters(tmp_path):
    rows = [Example(f"middle1.txt.{number}", {}, choices=tuple("wxyz")) for number in range(3)]
    predictions = [Prediction(3), Prediction(0), Prediction(None)]
    submission = write_race(tmp_path / "out", [_squad_answers(_RACE, rows, predictions, "test")])
    letters = json.loads((tmp_path / "out" / "answers.json").read_text())
    assert letters == {"middle1.txt.0": "D", "middle1.txt.1": "A", "middle1.txt.2": "A"}
    with (tmp_path / "out" / "answers.csv").open(newline="") as file:
        assert {row["id"]: row["answer"] for row in csv.DictReader(file)} == letters
    assert submission.notes == (
        "RACE middle (test): 1 question answered with none of the options; A is written",
    )


@pytest.mark.parametrize("suite", ["squad", "race"])
def test_what_was_not_answered_is_not_written(suite, tmp_path):
    answers = Answers({"squad": _SQUAD, "race": _RACE}[suite], "dev", _QUESTIONS)
    with pytest.raises(DataError, match="has no predictions"):
        SUBMISSIONS[suite](tmp_path / "out", [answers])
    assert not list(tmp_path.iterdir())
