"""``sublayer runs`` lists what was run, whatever state it is in, and how it is resumed."""

import os
import shlex
import shutil
from pathlib import Path
from typing import Any

import pytest

from sublayer.system.lock import held
from tests.commands.results import Sublayer


@pytest.fixture
def place(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a finished run below ``runs``."""
    shutil.copytree(trained, tmp_path / "runs" / "book")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    return tmp_path


def cut_short(run: Path) -> None:
    """Leave a run as a kill before its end does."""
    (run / "record.json").unlink()
    shutil.rmtree(run / "model")


def rows(sublayer: Sublayer, *words: object) -> dict[str, dict[str, Any]]:
    listed = sublayer("runs", *words, "--json").answer()["runs"]
    return {row["folder"]: row for row in listed}


def of(row: dict[str, Any], names: str) -> list[Any]:
    return [row[name] for name in names.split()]


def test_a_finished_run_is_listed_with_its_model_and_its_score(place, sublayer):
    row = rows(sublayer)["runs/book"]
    expected = ["run", "finished", "gpt", "decoder", 4, 4, ""]
    assert of(row, "kind state recipe model step steps resume") == expected
    assert row["changed"]["model.d_model"] == 16
    assert "train.minutes" not in row["changed"]
    shown = sublayer("runs").shown()
    assert row["score"]["name"] == "bits_per_byte"
    assert f"{row['score']['value']:.3f} bits/byte" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_an_unfinished_run_has_the_command_that_finishes_it(place, sublayer):
    shutil.move("runs/book", "runs/a book")
    cut_short(place / "runs" / "a book")
    with held(place / "runs" / "a book"):
        assert of(rows(sublayer)["runs/a book"], "state resume") == ["running", ""]
        assert "running now" in sublayer("runs").shown()
    row = rows(sublayer)["runs/a book"]
    assert of(row, "state step steps") == ["unfinished", 4, 4]
    command = shlex.split(row["resume"])
    assert command == ["sublayer", "train", "runs/a book", "--resume"]
    assert sublayer(*command[1:]).code == 0
    assert rows(sublayer)["runs/a book"]["state"] == "finished"


def test_a_run_that_starts_from_another_lists_what_its_start_did_not_give(place, sublayer):
    words = ("init.run=runs/book", "train.steps=2", "model.dropout=0.1", "train.threads=1")
    assert sublayer("train", "gpt", *words, "--out", "runs/later").code == 0
    assert rows(sublayer)["runs/later"]["changed"] == {
        "model.dropout": 0.1,
        "train.steps": 2,
        "train.threads": 1,
        "init.run": str(Path("runs/book").resolve()),
    }
    # Where the start is gone, it is not known what it gave.
    shutil.rmtree("runs/book")
    assert rows(sublayer)["runs/later"]["changed"]["model.d_model"] == 16


def test_a_comparison_of_runs_that_have_ended_is_listed_with_its_verdicts(place, sublayer):
    settings = ("train.seed=1", "model.ffn=relu", "train.steps=2", "--out", "runs/other")
    assert sublayer("train", "runs/book", *settings).code == 0
    assert sublayer("compare", "runs/book", "runs/other", "--out", "runs/both").code == 0
    row = rows(sublayer)["runs/both"]
    expected = ["comparison", "finished", "", 2, 2, ["book", "other"]]
    assert of(row, "kind state resume finished planned arms") == expected
    # Half the steps are half the operations.
    headline = "one seed: values, no verdict; budgets differ by a factor of 2.0 in operations"
    assert row["headline"] == headline
    (place / "runs/both/results.json").unlink()
    resume = "sublayer report runs/both"
    assert of(rows(sublayer)["runs/both"], "state resume") == ["unfinished", resume]
    assert sublayer("report", "runs/both").code == 0
    assert rows(sublayer)["runs/both"]["state"] == "finished"
    (place / "runs/both/runs.json").write_text("{}")
    assert "runs.json" in rows(sublayer)["runs/both"]["problem"]


def test_a_folder_that_cannot_be_read_is_named_in_its_row(place, sublayer):
    for name, file, content in (
        ("no-record", "record.json", b"{"),
        ("no-recipe", "recipe.toml", b"= 3"),
        ("binary", "recipe.toml", b"\xff\x00"),
    ):
        shutil.copytree("runs/book", f"runs/{name}")
        Path(f"runs/{name}/{file}").write_bytes(content)
    Path("runs/study").mkdir()
    Path("runs/study/study.toml").write_text("asked = 3")
    cut_short(place / "runs" / "book")
    Path("runs/book/failure.json").write_text('{"message": "the loss is not finite at step 3"}')
    listed = rows(sublayer)
    failed = listed.pop("runs/book")
    assert of(failed, "state problem") == ["failed", "the loss is not finite at step 3"]
    assert set(listed) == {f"runs/{name}" for name in ("no-record", "no-recipe", "binary", "study")}
    assert all(row["state"] == "damaged" and row["problem"] for row in listed.values())
    assert sublayer("runs").shown().count("damaged") >= 4


def test_the_newest_is_first_and_nothing_is_written(place, sublayer):
    shutil.copytree("runs/book", "runs/new")
    for path in Path("runs/book").rglob("*"):
        os.utime(path, (1e9, 1e9))
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    assert list(rows(sublayer)) == ["runs/new", "runs/book"]
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before


def test_a_comparison_is_one_row_with_the_command_that_resumes_it(place, sublayer, monkeypatch):
    (place / "text.txt").write_text("The cat sat on the mat.\n" * 200)
    words = (
        *("gpt", "model.n_layers=1", "model.d_model=8", "model.n_heads=2", "data.context=16"),
        *("train.steps=2", "train.batch_sequences=2", "train.precision=float32"),
        *("train.threads=1", "data.path=text.txt", "--vary", "model.ffn=gelu,swiglu"),
    )
    assert sublayer("compare", *words, "--seeds", "1", "--out", "runs/two").code == 0
    row = rows(sublayer)["runs/two"]
    expected = ["comparison", "finished", ["ffn=gelu", "ffn=swiglu"], 2, 2, 1]
    assert of(row, "kind state arms finished planned seeds") == expected
    assert row["headline"] == "one seed: values, no verdict"
    assert len(rows(sublayer, "--arms", "runs/two")) == 3
    shutil.rmtree("runs/two/arms/1-ffn=swiglu")
    row = rows(sublayer)["runs/two"]
    assert of(row, "state finished") == ["unfinished", 1]
    assert sublayer(*shlex.split(row["resume"])[1:]).code == 0
    assert rows(sublayer)["runs/two"]["state"] == "finished"
    monkeypatch.chdir("runs")
    shutil.rmtree("two/arms/1-ffn=swiglu")
    # From another folder the command changes to the one that its paths are of.
    assert rows(sublayer, ".")["two"]["resume"].startswith(f"cd {place} && sublayer compare gpt ")
