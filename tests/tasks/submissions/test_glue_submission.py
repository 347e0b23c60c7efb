"""GLUE's eleven files."""

import zipfile

import pytest

from sublayer.errors import DataError
from sublayer.tasks.example import Example
from sublayer.tasks.prediction import Prediction
from sublayer.tasks.registry import TASKS
from sublayer.tasks.submissions.answers import Answers
from sublayer.tasks.submissions.folder import ARCHIVE, NOTES
from sublayer.tasks.submissions.glue import FILES, write_glue

NAMES = {
    "CoLA.tsv", "SST-2.tsv", "MRPC.tsv", "STS-B.tsv", "MNLI-m.tsv", "MNLI-mm.tsv", "QNLI.tsv",
    "QQP.tsv", "RTE.tsv", "WNLI.tsv", "AX.tsv",
}  # fmt: skip


def _answers(name, labels, split="test", train=()):
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
def submission(tmp_path_factory):
    train = [Example("0", {"sentence": ""}, label=0)]
    answers = [
        _answers("sst2", [0, 1]),
        _answers("stsb", [2.34567, -1.0, 7.5]),
        _answers("rte", [0, 1, None]),
        _answers("mnli", [2, 1], "test_mismatched"),
        _answers("cola", None, train=train),
        _answers("qnli", None),
    ]
    path = tmp_path_factory.mktemp("glue") / "out"
    return write_glue(path, answers)


def _rows(submission, name):
    header, *rows = (submission.path / name).read_text().splitlines()
    assert header == "index\tprediction"
    return [tuple(row.split("\t")) for row in rows]


def test_all_eleven_files_are_there_and_in_the_archive(submission):
    assert set(submission.files) == NAMES == {file.name for file in FILES}
    assert {path.name for path in submission.path.iterdir()} == {*NAMES, ARCHIVE, NOTES}
    with zipfile.ZipFile(submission.path / ARCHIVE) as archive:
        assert set(archive.namelist()) == NAMES
        for name in NAMES:
            assert archive.read(name) == (submission.path / name).read_bytes()


def test_labels_are_numbers_or_words_as_each_task_asks(submission):
    assert _rows(submission, "SST-2.tsv") == [("0", "0"), ("1", "1")]
    assert _rows(submission, "MNLI-mm.tsv") == [("0", "contradiction"), ("1", "neutral")]


def test_numbers_have_three_decimals_within_their_range(submission):
    values = [value for _, value in _rows(submission, "STS-B.tsv")]
    assert values == ["2.346", "0.000", "5.000"]


def test_what_is_none_of_the_labels_is_written_as_the_majoritys_and_counted(submission):
    labels = [label for _, label in _rows(submission, "RTE.tsv")]
    assert labels == ["entailment", "not_entailment", "entailment"]
    assert any(note.startswith("RTE.tsv: 1 row answered with none") for note in submission.notes)


def test_what_was_not_trained_is_the_majoritys_and_marked(submission):
    assert {label for _, label in _rows(submission, "CoLA.tsv")} == {"0"}  # of its train
    assert {label for _, label in _rows(submission, "QNLI.tsv")} == {"entailment"}
    wnli = _rows(submission, "WNLI.tsv")
    assert len(wnli) == 146
    assert [index for index, _ in wnli] == [str(number) for number in range(146)]
    assert {label for _, label in wnli} == {"0"}
    notes = (submission.path / NOTES).read_text()
    assert notes.splitlines() == list(submission.notes)
    for name in ("CoLA", "MRPC", "MNLI-m", "QNLI", "QQP", "WNLI", "AX"):
        assert f"{name}.tsv: not trained" in notes
    assert "SST-2.tsv: not trained" not in notes


def test_a_set_that_is_not_whole_is_said(submission):
    assert "SST-2.tsv: 2 rows, of 1,821 as published" in submission.notes


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "out").mkdir()
    with pytest.raises(DataError, match="exists"):
        write_glue(tmp_path / "out", [])
    assert not list((tmp_path / "out").iterdir())


def test_a_failure_leaves_nothing_behind(tmp_path):
    broken = _answers("stsb", [float("nan")])
    with pytest.raises(DataError, match="is nan"):
        write_glue(tmp_path / "out", [broken])
    assert not list(tmp_path.iterdir())


def test_what_is_not_glues_is_refused(tmp_path):
    with pytest.raises(DataError, match="belongs to no file"):
        write_glue(tmp_path / "out", [_answers("cb", [0])])
    with pytest.raises(DataError, match="given twice"):
        write_glue(tmp_path / "out", [_answers("rte", [0]), _answers("rte", [1])])
