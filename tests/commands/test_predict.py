"""``sublayer predict``: rows and lines in, answers out; and answers to test sets to hand in."""

import csv
import io
import json
import zipfile
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from sublayer.commands.predict import lines as module
from sublayer.errors import DataError
from sublayer.loading import load
from sublayer.objective.supervised.answering import Answerer
from sublayer.tasks.registry import TASKS
from sublayer.tasks.submissions.asked_sets import read_test_set
from tests.commands.conftest import SHORT, finetuned
from tests.commands.reviews import reviews, write_csv
from tests.task_files import write_rte, write_sst2

ROWS = reviews(20, seed=7)
STARS = [row["stars"] for row in ROWS]


@pytest.fixture
def predicted(sublayer, reviewer, here):
    """Answer the file ``new.csv`` of rows."""

    def run(rows, *options):
        write_csv(here / "new.csv", rows)
        result = sublayer("predict", reviewer, "new.csv", *options)
        assert result.code == 0, result.err
        return list(csv.DictReader(io.StringIO(result.out)))

    return run


def test_answers_do_not_depend_on_the_batch_and_nearly_not_on_the_precision(predicted):
    whole, *others, rounded = (
        predicted(ROWS, *options)
        for options in (
            ("--batch", 1),
            ("--batch", 7),
            ("--batch", 64),
            ("--precision", "bfloat16"),
        )
    )
    assert [row["prediction"] for row in whole] == STARS
    p_good = [float(row["p_good"]) for row in whole]
    for other in others:
        assert [float(row["p_good"]) for row in other] == pytest.approx(p_good, abs=2e-6)
    p_rounded = [float(row["p_good"]) for row in rounded]
    assert p_rounded == pytest.approx(p_good, abs=0.02)
    assert p_rounded != p_good


def test_quotes_in_tsv_stay_text(sublayer, reviewer, here):
    review = 'The "great film" is superb.'
    (here / "new.tsv").write_text(f'review\tnote\n{review}\t"\n')
    header, row = sublayer("predict", reviewer, "new.tsv").out.splitlines()
    assert header.split("\t") == ["review", "note", "prediction", "p_bad", "p_good"]
    assert row.split("\t")[:3] == [review, '"', "good"]


@pytest.mark.parametrize("name", ["new.jsonl", "new.json"])
def test_json_keeps_its_values_and_has_probabilities_by_label(sublayer, reviewer, here, name):
    rows = [{"n": number, "tags": ["ü"], **row} for number, row in enumerate(ROWS)]
    text = "\n".join(json.dumps(row) for row in rows)
    (here / name).write_text(json.dumps(rows) if name == "new.json" else text)
    out = sublayer("predict", reviewer, name).out
    found = json.loads(out) if name == "new.json" else list(map(json.loads, out.splitlines()))
    for row, answered in zip(rows, found, strict=True):
        assert {key: answered[key] for key in row} == row
        assert answered["prediction"] == row["stars"]
        assert set(answered["probabilities"]) == {"bad", "good"}


def test_parquet_keeps_its_types(sublayer, reviewer, here):
    seen = pyarrow.array(range(20), pyarrow.int16())
    before = pyarrow.table({"review": [row["review"] for row in ROWS], "seen": seen})
    pyarrow.parquet.write_table(before, here / "new.parquet")
    result = sublayer("predict", reviewer, "new.parquet", "--out", "answered.parquet")
    assert result.code == 0, result.err
    after = pyarrow.parquet.read_table(here / "answered.parquet")
    assert after.select(["review", "seen"]).equals(before)
    assert after["prediction"].to_pylist() == STARS
    assert after.schema.field("p_good").type == pyarrow.float64()


def test_a_row_without_a_text_is_kept_and_not_answered(predicted):
    found = predicted([ROWS[0], {**ROWS[1], "review": " "}, ROWS[2]])
    assert [row["prediction"] for row in found] == [STARS[0], "", STARS[2]]
    assert (found[1]["review"], found[1]["p_good"]) == (" ", "")


def test_columns_that_are_there_are_not_taken_and_the_text_may_have_another_name(predicted):
    rows = [{"words": row["review"], "prediction": "mine", "p_bad": "x"} for row in ROWS]
    found = predicted(rows, "--text", "words")
    assert [(row["prediction"], row["p_bad"]) for row in found] == [("mine", "x")] * 20
    assert [row["prediction_2"] for row in found] == STARS


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("review\n", "new.csv has no rows"),
        ("", "new.csv is empty"),
        ("review,film\na,b,c\n", "new.csv:2 has more than 2 fields"),
        ("review\n\xff", "is not UTF-8"),
    ],
)
def test_a_file_that_is_no_table_is_refused(sublayer, reviewer, here, content, message):
    (here / "new.csv").write_bytes(content.encode("latin-1"))
    assert message in sublayer("predict", reviewer, "new.csv").refusal()


@pytest.mark.parametrize(
    ("places", "message"),
    [
        ("gone new.csv", "gone does not exist: name runs, and then one file of rows"),
        ("new.csv new.csv", "new.csv is more than one file"),
        ("new.csv run", "new.csv is a file, and a run follows it"),
    ],
)
def test_runs_stand_before_one_file(sublayer, reviewer, here, places, message):
    write_csv(here / "new.csv", ROWS)
    (here / "run").mkdir()
    assert message in sublayer("predict", reviewer, *places.split()).refusal()


def test_each_line_is_answered_and_an_empty_one_stays_empty(sublayer, reviewer, standard_input):
    given = b"The lovely film\tis great.\n\nThe dull plot is awful.\r\n \nThe film is bland"
    standard_input(given)
    result = sublayer("predict", reviewer)
    answers = [line.split("\t") for line in result.out.split("\n")]
    assert [answer[0] for answer in answers] == ["good", "", "bad", "", "bad", ""]
    assert all(0.5 < float(p) <= 1 for _, p in (each for each in answers if len(each) == 2))
    assert "not answered: 2 of 5 lines" in result.err
    standard_input(given)
    first, second, *_ = map(json.loads, sublayer("predict", reviewer, "--json").out.splitlines())
    assert (first["prediction"], set(first["probabilities"])) == ("good", {"bad", "good"})
    assert second == {"prediction": None}


def test_bytes_that_are_no_text_end_the_answers(sublayer, reviewer, standard_input):
    standard_input(b"The lovely film is great.\n\xff\nThe dull plot is awful.\n")
    code, out, err = sublayer("predict", reviewer)
    assert (code, out[:5], out.count("\n")) == (2, "good\t", 1)
    assert "standard input, line 2: byte 0xff" in err
    assert "answered before it: 1 line" in err


def test_an_answer_is_printed_before_the_next_line_comes(reviewer, monkeypatch):
    printed: list[str] = []

    class Stream(io.RawIOBase):
        waiting = [b"The lovely film is great.\n", b"The dull plot is awful.\n"]
        seen: list[int] = []

        def read1(self, size: int) -> bytes:
            self.seen.append(len(printed))
            return self.waiting.pop(0) if self.waiting else b""

    monkeypatch.setattr(module, "write_result", printed.append)
    module.predict_lines(Answerer(load(reviewer)), Stream(), as_json=False)
    assert Stream.seen == [0, 1, 2]


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    """A folder with the files of RTE and SST-2, test sets included."""
    folder = write_sst2(tmp_path / "glue", {"train": 31, "dev": 10, "test": 5})
    path = folder / "SST-2" / "test.tsv"
    texts = [line.partition("\t")[0] for line in path.read_text().splitlines()[1:]]
    rows = [f"{number}\t{text}\n" for number, text in enumerate(texts)]
    path.write_text("".join(["index\tsentence\n", *rows]))
    return write_rte(folder, {"train": 30, "dev": 10, "test": 7})


def handed_in(name: str) -> list[list[str]]:
    return [line.split("\t") for line in Path("out", name).read_text().splitlines()]


def test_a_submission_is_complete(sublayer, entailed, glue, here):
    words = ("--data", glue, "--submission", "out", "--json")
    found = sublayer("predict", entailed, *words).found()
    assert found["suite"] == "glue"
    sets = {each["task"]: (each["rows"], each["runs"]) for each in found["sets"]}
    assert sets == {"rte": (7, [str(entailed)]), "sst2": (5, [])}
    names = {file.name for file in Path("out").iterdir()}
    assert names == {*found["files"], "NOTES.txt", "submission.zip"}
    assert len(found["files"]) == 11
    with zipfile.ZipFile("out/submission.zip") as archive:
        assert sorted(archive.namelist()) == sorted(found["files"])
    assert Path("out/NOTES.txt").read_text().splitlines() == found["notes"]
    assert any(note.startswith("SST-2.tsv: not trained; every row has") for note in found["notes"])
    # Of 31 training rows of SST-2 the negative ones are 16.
    assert handed_in("SST-2.tsv")[1:] == [[str(number), "0"] for number in range(5)]
    before = {file: file.read_bytes() for file in Path("out").iterdir()}
    refusal = sublayer("predict", entailed, "--data", glue, "--submission", "out").refusal()
    assert "out exists: name a folder that does not" in refusal
    assert {file: file.read_bytes() for file in Path("out").iterdir()} == before


def test_runs_that_answer_one_task_answer_it_together(sublayer, entailed, glue, here):
    words = ("--data", str(glue), *SHORT, "train.steps=1", "train.seed=5")
    other = finetuned(here, "rte", *words, "--out", "other")
    judge = finetuned(here, "sst2", *words, "--out", "judge")
    options = ("--data", glue, "--submission", "out", "--json")
    found = sublayer("predict", entailed, other, judge, *options).found()
    assert {each["task"]: each["runs"] for each in found["sets"]} == {
        "rte": [str(entailed), str(other)],
        "sst2": [str(judge)],
    }
    rows = glue / "RTE" / "test.tsv"
    lines = sublayer("predict", entailed, other, rows, "--json").out.splitlines()
    expected = [[str(n), json.loads(line)["prediction"]] for n, line in enumerate(lines)]
    assert handed_in("RTE.tsv") == [["index", "prediction"], *expected]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (["0\ta", "0\tb"], "test.tsv:3: an id that another row has"),
        (["0\ta", "0\ta"], "test.tsv:3: the same row again"),
        (["0\ta", "1"], "test.tsv:3: fewer than 2 fields"),
    ],
)
def test_every_row_of_a_test_set_is_read_or_the_set_is_refused(tmp_path, rows, message):
    path = tmp_path / "test.tsv"
    path.write_text("index\tsentence\n0\ta\n1\ta\n")
    assert len(read_test_set(TASKS["sst2"], "test", (path,)).examples) == 2
    path.write_text("\n".join(["index\tsentence", *rows]) + "\n")
    with pytest.raises(DataError, match=message):
        read_test_set(TASKS["sst2"], "test", (path,))
