"""``sublayer evaluate`` on fine-tuned models: other files, and another run beside."""

import shutil
from pathlib import Path

import pytest

from tests.commands.conftest import SHORT, finetuned
from tests.commands.reviews import reviews, write_csv
from tests.task_files import write_rte


@pytest.fixture(scope="module")
def untrained(reviewer: Path) -> Path:
    """A run of one step on the table of ``reviewer``, divided alike."""
    columns = ("--text", "review", "--label", "stars", "--group", "film")
    folder = reviewer.parents[1]
    return finetuned(folder, "my.csv", *columns, *SHORT, "train.steps=1", "--out", "runs/one")


def test_rows_that_were_trained_on_are_counted(sublayer, reviewer, tmp_path):
    shutil.copy(reviewer.parents[1] / "my.csv", tmp_path / "copy.csv")
    found = sublayer("evaluate", reviewer, "--path", tmp_path / "copy.csv", "--json").found()
    assert found["tasks"][0]["examples"] == 240
    [note] = found["notes"]
    assert note.endswith("of 240 rows are among those that it was trained on: too good by that")
    own = sublayer("evaluate", reviewer, "--path", reviewer.parents[1] / "my.csv", "--json").found()
    assert own["tasks"][0]["examples"] == 48
    assert "is what it was trained on: scored on the rows that were left" in own["notes"][0]


def test_a_model_outside_a_run_is_scored_without_what_nothing_is_learned_from(
    sublayer, reviewer, tmp_path
):
    shutil.copytree(reviewer / "model", tmp_path / "model")
    new = write_csv(tmp_path / "new.csv", reviews(30, seed=9))
    found = sublayer("evaluate", tmp_path / "model", "--path", new, "--json").found()
    assert found["tasks"][0]["baselines"] == {}
    shown = sublayer("evaluate", tmp_path / "model", "--path", new).out
    assert "my.csv: no training rows are here, from which the baselines would learn" in shown
    refused = sublayer("evaluate", tmp_path / "model")
    assert "does not belong to a run: name the folder of the tasks' files (--path)" in refused.err


def test_answers_are_scored_alike_in_any_batch(sublayer, reviewer):
    first, second = (
        sublayer("evaluate", reviewer, "--batch", n, "--json").found() for n in (1, 64)
    )
    assert first["tasks"] == second["tasks"]
    assert first["loss"] == pytest.approx(second["loss"], rel=1e-5)


def test_the_development_set_of_another_folder_is_scored_whole(sublayer, entailed, tmp_path):
    glue = write_rte(tmp_path / "glue", {"dev": 30}, seed=5)
    found = sublayer("evaluate", entailed, "--path", glue, "--json").found()
    assert found["tasks"][0]["examples"] == 30
    shutil.copytree(entailed / "model", tmp_path / "model")
    found = sublayer("evaluate", tmp_path / "model", "--path", glue / "RTE" / "dev.tsv", "--json")
    assert found.found()["tasks"][0]["examples"] == 30
