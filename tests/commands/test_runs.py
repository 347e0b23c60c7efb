"""``sublayer runs`` lists what was run, whatever state it is in, and how it is resumed."""

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from sublayer.system.lock import held
from tests.commands.results import Sublayer

OLD = Path(__file__).parents[1] / "golden" / "old" / "ba7f49d"
TINY = (
    "model.n_layers=1",
    "model.d_model=8",
    "model.n_heads=2",
    "data.context=16",
    "train.steps=2",
    "train.batch_sequences=2",
    "train.precision=float32",
    "train.threads=1",
)


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


def test_a_finished_run_is_listed_with_what_it_was_and_how_good_it_is(
    place: Path, sublayer: Sublayer
):
    row = rows(sublayer)["runs/book"]
    assert (row["kind"], row["state"], row["recipe"], row["model"]) == (
        "run",
        "finished",
        "gpt",
        "decoder",
    )
    assert (row["step"], row["steps"], row["resume"]) == (4, 4, "")
    assert row["score"]["name"] == "bits_per_byte"
    assert row["changed"]["model.d_model"] == 16
    assert "train.minutes" not in row["changed"]
    shown = sublayer("runs").shown()
    assert f"{row['score']['value']:.3f} bits/byte" in shown
    assert max(map(len, shown.splitlines())) <= 80


def test_an_unfinished_run_has_the_command_that_finishes_it(place: Path, sublayer: Sublayer):
    shutil.move("runs/book", "runs/a book")
    cut_short(place / "runs" / "a book")
    row = rows(sublayer)["runs/a book"]
    assert (row["state"], row["step"], row["steps"]) == ("unfinished", 4, 4)
    command = shlex.split(row["resume"])
    assert command == ["sublayer", "train", "runs/a book", "--resume"]
    assert sublayer(*command[1:]).code == 0
    assert rows(sublayer)["runs/a book"]["state"] == "finished"


def test_a_run_that_starts_from_another_lists_what_its_start_did_not_give(
    place: Path, sublayer: Sublayer
):
    told = ("init.run=runs/book", "train.steps=2", "model.dropout=0.1", "train.threads=1")
    assert sublayer("train", "gpt", *told, "--out", "runs/later").code == 0
    changed = rows(sublayer)["runs/later"]["changed"]
    start = str(Path("runs/book").resolve())
    assert changed == {
        "model.dropout": 0.1,
        "train.steps": 2,
        "train.threads": 1,
        "init.run": start,
    }
    # Where the start is gone, it is not known what it gave.
    shutil.rmtree("runs/book")
    assert rows(sublayer)["runs/later"]["changed"]["model.d_model"] == 16


def test_a_comparison_of_runs_that_have_ended_is_listed_with_its_verdicts(
    place: Path, sublayer: Sublayer
):
    settings = ("train.seed=1", "model.ffn=relu", "train.steps=2", "--out", "runs/other")
    assert sublayer("train", "runs/book", *settings).code == 0
    assert sublayer("compare", "runs/book", "runs/other", "--out", "runs/both").code == 0
    row = rows(sublayer)["runs/both"]
    assert (row["kind"], row["state"], row["resume"]) == ("comparison", "finished", "")
    assert (row["finished"], row["planned"], row["arms"]) == (2, 2, ["book", "other"])
    # Half the steps are half the operations.
    said = "one seed: values, no verdict; budgets differ by a factor of 2.0 in operations"
    assert row["headline"] == said
    (place / "runs/both/results.json").unlink()
    row = rows(sublayer)["runs/both"]
    assert (row["state"], row["resume"]) == ("unfinished", "sublayer report runs/both")
    assert sublayer("report", "runs/both").code == 0
    assert rows(sublayer)["runs/both"]["state"] == "finished"
    (place / "runs/both/runs.json").write_text("{}")
    assert "runs.json" in rows(sublayer)["runs/both"]["problem"]


def test_a_run_that_another_process_holds_is_running(place: Path, sublayer: Sublayer):
    cut_short(place / "runs" / "book")
    with held(place / "runs" / "book"):
        row = rows(sublayer)["runs/book"]
        assert (row["state"], row["resume"]) == ("running", "")
        assert "running now" in sublayer("runs").shown()
    assert rows(sublayer)["runs/book"]["state"] == "unfinished"


def test_what_cannot_be_read_is_said_in_its_row(place: Path, sublayer: Sublayer):
    for name, file, content in (
        ("no-record", "record.json", "{"),
        ("no-recipe", "recipe.toml", "= 3"),
        ("binary", "recipe.toml", b"\xff\x00"),
    ):
        shutil.copytree("runs/book", f"runs/{name}")
        data = content if isinstance(content, bytes) else content.encode()
        Path(f"runs/{name}/{file}").write_bytes(data)
    Path("runs/study").mkdir()
    Path("runs/study/study.toml").write_text("asked = 3")
    listed = rows(sublayer)
    damaged = {name for name, row in listed.items() if row["state"] == "damaged"}
    assert damaged == {f"runs/{name}" for name in ("no-record", "no-recipe", "binary", "study")}
    assert all(listed[name]["problem"] for name in damaged)
    assert listed["runs/book"]["state"] == "finished"
    assert sublayer("runs").shown().count("damaged") >= 4


def test_a_failed_run_of_a_comparison_says_why(place: Path, sublayer: Sublayer):
    cut_short(place / "runs" / "book")
    Path("runs/book/failure.json").write_text('{"message": "the loss is not finite at step 3"}')
    row = rows(sublayer)["runs/book"]
    assert (row["state"], row["problem"]) == ("failed", "the loss is not finite at step 3")


def test_the_newest_is_first_and_nothing_is_written(place: Path, sublayer: Sublayer):
    shutil.copytree("runs/book", "runs/new")
    for path in Path("runs/book").rglob("*"):
        os.utime(path, (1e9, 1e9))
    before = {path: path.stat().st_mtime_ns for path in Path().rglob("*")}
    assert list(rows(sublayer)) == ["runs/new", "runs/book"]
    assert {path: path.stat().st_mtime_ns for path in Path().rglob("*")} == before


def test_a_comparison_is_one_row_with_the_command_that_resumes_it(
    place: Path, sublayer: Sublayer, monkeypatch: pytest.MonkeyPatch
):
    text = place / "text.txt"
    text.write_text("The cat sat on the mat.\n" * 200)
    words = ("gpt", *TINY, "data.path=text.txt", "--vary", "model.ffn=gelu,swiglu", "--seeds", "1")
    assert sublayer("compare", *words, "--out", "runs/two").code == 0
    row = rows(sublayer)["runs/two"]
    assert (row["kind"], row["state"], row["arms"]) == (
        "comparison",
        "finished",
        ["ffn=gelu", "ffn=swiglu"],
    )
    assert (row["finished"], row["planned"], row["seeds"]) == (2, 2, 1)
    assert row["headline"] == "one seed: values, no verdict"
    assert len(rows(sublayer, "--arms", "runs/two")) == 3
    shutil.rmtree("runs/two/arms/1-ffn=swiglu")
    row = rows(sublayer)["runs/two"]
    assert (row["state"], row["finished"]) == ("unfinished", 1)
    command = shlex.split(row["resume"])
    assert sublayer(*command[1:]).code == 0
    assert rows(sublayer)["runs/two"]["state"] == "finished"
    monkeypatch.chdir("runs")
    shutil.rmtree("two/arms/1-ffn=swiglu")
    # From another folder the command changes to the one that its paths are of.
    assert rows(sublayer, ".")["two"]["resume"].startswith(f"cd {place} && sublayer compare gpt ")


def test_listing_runs_does_not_import_pytorch():
    program = (
        "import sys; from sublayer.cli import main; "
        f"code = main(['runs', {str(OLD)!r}, '--json']); "
        "sys.exit(code or 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["runs"]
