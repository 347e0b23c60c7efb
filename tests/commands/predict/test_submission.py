"""Runs' answers to test sets, written as their publishers take them."""

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from sublayer.errors import DataError
from sublayer.runs.submission import submit
from sublayer.tasks.registry import TASKS
from sublayer.tasks.submissions.asked_sets import read_test_set
from tests.commands.conftest import SHORT, finetuned
from tests.task_files import write_rte, write_sst2

SIZES = {"train": 30, "dev": 10, "test": 7}
SHORTEST = [*SHORT, "train.steps=1"]


@pytest.fixture
def glue(tmp_path: Path) -> Path:
    """A folder with the files of RTE and SST-2, test sets included."""
    folder = write_sst2(tmp_path / "glue", {"train": 31, "dev": 10, "test": 5})
    path = folder / "SST-2" / "test.tsv"
    texts = [line.partition("\t")[0] for line in path.read_text().splitlines()[1:]]
    rows = [f"{number}\t{text}\n" for number, text in enumerate(texts)]
    path.write_text("".join(["index\tsentence\n", *rows]))
    return write_rte(folder, SIZES)


def test_the_folder_is_complete_and_says_who_answered_what(sublayer, entailed, glue, here):
    words = ("--data", glue, "--submission", "out/glue", "--json")
    found = sublayer("predict", entailed, *words).found()
    assert found["suite"] == "glue"
    sets = {each["task"]: each for each in found["sets"]}
    assert (sets["rte"]["rows"], sets["rte"]["runs"]) == (7, [str(entailed)])
    assert (sets["sst2"]["rows"], sets["sst2"]["runs"]) == (5, [])
    names = {file.name for file in Path("out/glue").iterdir()}
    assert names == {*found["files"], "NOTES.txt", "submission.zip"}
    assert len(found["files"]) == 11
    with zipfile.ZipFile("out/glue/submission.zip") as archive:
        assert sorted(archive.namelist()) == sorted(found["files"])
    lines = Path("out/glue/RTE.tsv").read_text().splitlines()
    assert [line.split("\t")[0] for line in lines] == ["index", *map(str, range(7))]
    notes = Path("out/glue/NOTES.txt").read_text().splitlines()
    assert notes == found["notes"]
    assert any(note.startswith("SST-2.tsv: not trained; every row has") for note in notes)
    assert any(note.startswith("QQP.tsv: not trained, and its rows are not here") for note in notes)


def test_the_answers_are_those_of_the_model(sublayer, entailed, glue, here):
    sublayer("predict", entailed, "--data", glue, "--submission", "out")
    lines = sublayer("predict", entailed, glue / "RTE" / "test.tsv", "--json").out.splitlines()
    expected = [json.loads(line)["prediction"] for line in lines]
    written = Path("out/RTE.tsv").read_text().splitlines()[1:]
    assert [line.split("\t")[1] for line in written] == expected


def test_runs_that_answer_one_task_answer_it_together(sublayer, entailed, glue, here):
    words = ("rte", "--data", str(glue), *SHORTEST, "train.seed=5", "--out", "other")
    other = finetuned(here, *words)
    options = ("--data", glue, "--submission", "out", "--json")
    found = sublayer("predict", entailed, other, *options).found()
    assert {each["task"]: each["runs"] for each in found["sets"]} == {
        "rte": [str(entailed), str(other)],
        "sst2": [],
    }
    rows = glue / "RTE" / "test.tsv"
    lines = sublayer("predict", entailed, other, rows, "--json").out.splitlines()
    expected = [json.loads(line)["prediction"] for line in lines]
    written = Path("out/RTE.tsv").read_text().splitlines()[1:]
    assert [line.split("\t")[1] for line in written] == expected


def test_nothing_is_overwritten(sublayer, entailed, glue, here):
    Path("out").mkdir()
    refused = sublayer("predict", entailed, "--data", glue, "--submission", "out")
    assert refused.code == 2
    assert "out exists: name a folder that does not" in refused.err
    assert list(Path("out").iterdir()) == []


def test_a_diagnostic_set_is_answered_by_the_model_of_its_task(here, entailed):
    """RTE's of SuperGLUE, of which AX-b and AX-g are diagnostic sets, as one run answers them."""
    model = here / "model"
    shutil.copytree(entailed / "model", model)
    spec = json.loads((model / "task.json").read_text())
    task = TASKS["sg_rte"]
    spec["tasks"][0] |= {"name": "sg_rte", "suite": "superglue", "fields": list(task.fields)}
    (model / "task.json").write_text(json.dumps(spec))
    folder = here / "superglue"
    rows = [{"premise": "a b", "hypothesis": "b", "idx": n} for n in range(3)]
    labelled = [{**row, "label": "entailment", "pair_id": 1} for row in rows]
    (folder / "RTE").mkdir(parents=True)
    (folder / "RTE" / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "AX-g").mkdir()
    (folder / "AX-g" / "AX-g.jsonl").write_text("\n".join(map(json.dumps, labelled)))
    handed_in = submit([model], here / "out", data=str(folder))
    assert {(answers.task.name, runs) for answers, runs in handed_in.sets} == {
        ("sg_rte", (model,)),
        ("axg", (model,)),
    }
    assert len((here / "out" / "AX-g.jsonl").read_text().splitlines()) == 3


def test_a_whole_set_is_read(tmp_path):
    path = tmp_path / "test.tsv"
    path.write_text("index\tsentence\n0\ta\n1\ta\n")
    assert len(read_test_set(TASKS["sst2"], "test", (path,)).examples) == 2
    path.write_text("index\tsentence\n0\ta\n0\tb\n")
    with pytest.raises(DataError, match=r"test\.tsv:3: an id that another row has"):
        read_test_set(TASKS["sst2"], "test", (path,))
