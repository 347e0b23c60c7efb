"""Runs of a comparison in processes of their own: the same results, stopped and gone on with."""

import json
import re
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from sublayer.api.training import compare
from sublayer.cli import INTERRUPTED
from sublayer.config.layering.sources import read_toml
from sublayer.errors import CheckpointError, TrainingError
from sublayer.runs.items import ITEMS
from sublayer.study.execution import side_by_side
from sublayer.study.execution.child import Child
from tests.stopping import stopped_at
from tests.study.studies import copied, read_results, same_files, values

FIRST_END = [("open", "test.json")]
"""Where the parent has seen one of two runs end, and reads its scores."""


@pytest.fixture
def processes(monkeypatch):
    """The processes that are started."""
    started = []

    class Counted(Child):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            started.append(self)

    monkeypatch.setattr(side_by_side, "Child", Counted)
    return started


def test_runs_at_a_time_give_what_runs_in_turn_give_and_failures_stop_nothing(
    studies, settings, capfd, processes
):
    in_turn, known = studies.failed(), read_results(studies.failed())
    out = copied(in_turn, "at-a-time")
    for gone in ("0-lr=1e-3/seed-0", "0-lr=1e-3/seed-2", "2-lr=1e6/seed-1", "2-lr=1e6/seed-2"):
        shutil.rmtree(out / "arms" / gone)
    asked: dict[str, Any] = {"vary": ["optimizer.lr=1e-3,1e-2,1e6"], "seeds": 3, "out": out}
    capfd.readouterr()
    found = compare("gpt", settings, **asked, jobs=2)
    said = capfd.readouterr().err.splitlines()
    assert len(processes) == 2  # for four runs
    assert values(found) == values(known)
    assert found["failures"] == known["failures"]
    for name in ("model.safetensors", "test.json", ITEMS):
        assert same_files(name, in_turn, out), name
    # A slow machine shows the runs in between.
    ended = [line for line in said if line.startswith("[") and "] running " not in line]
    assert [line[:4] for line in ended] == [f"[{n}/9" for n in range(6, 10)]
    assert any("Up to 2 runs were trained at a time" in note for note in found["notes"])
    assert not any("at a time" in note for note in known["notes"])
    assert "--jobs 2" in found["reproduction"]["command"]
    assert compare("gpt", settings, **asked)["notes"] == found["notes"]


@pytest.mark.all
def test_trials_are_made_at_a_time_and_each_run_has_its_share_of_the_threads(
    settings, monkeypatch, processes
):
    monkeypatch.setattr("sublayer.study.execution.jobs.cores", lambda: 5)
    found = compare(
        "gpt",
        [each for each in settings if "threads" not in each],
        vary=["model.ffn=gelu,swiglu"],
        tune=["optimizer.lr=1e-7,1e-2"],
        seeds=1,
        jobs=2,
    )
    assert len(processes) == 2  # for trials and seeds
    assert [arm["tuned"] for arm in found["arms"]] == [["optimizer.lr=0.01"]] * 2
    records = sorted(Path("runs/gpt-ffn/arms").rglob("record.json"))
    assert len(records) == 6
    assert {json.loads(path.read_text())["threads"] for path in records} == {2}
    assert found["reproduction"]["environment"]["threads"] == "2"
    settled = read_toml(Path("runs/gpt-ffn/study.toml"))["settled"]
    assert {each["settings"]["train.threads"] for each in settled} == {2}


def stopped(number: int, *words: str) -> subprocess.CompletedProcess[str]:
    """Compare in a process that signals itself; return once its children, too, are gone.

    They have its standard error, so that this has no end before they have theirs.
    """
    command = stopped_at(FIRST_END, number, "compare", "gpt", *words, "--jobs", "2")
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_process_that_is_killed_ends_all_and_is_reported(settings, monkeypatch):
    class Killed(Child):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            self._process.kill()

    monkeypatch.setattr(side_by_side, "Child", Killed)
    told = r"lr=[12]e-3, seed 0: its process was ended by signal 9, .*: the same command resumes"
    with pytest.raises(TrainingError, match=told):
        compare("gpt", settings, vary=["optimizer.lr=1e-3,2e-3"], seeds=1, jobs=2)


def test_interrupted_runs_save_and_end_as_if_they_never_had_been(settings):
    varied = "train.steps=3,200,4"
    settings = [each for each in settings if "steps" not in each] + ["train.evaluate_steps=200"]
    words = [*settings, "--vary", varied, "--match", "none", "--seeds", "1"]
    ended = stopped(signal.SIGTERM, *words, "--out", "stopped", "--json")
    assert ended.returncode == INTERRUPTED, ended.stderr
    last = ended.stderr.splitlines()[-1]
    # The other of the first two may have ended meanwhile.
    assert re.match(r"interrupted with [12] of 3 runs done, and the others saved", last)
    assert "Traceback" not in ended.stderr
    asked: dict[str, Any] = {"vary": [varied], "match": "none", "seeds": 1}
    resumed = compare("gpt", settings, **asked, out="stopped", jobs=2)
    assert values(resumed) == values(compare("gpt", settings, **asked, out="unbroken"))


@pytest.mark.all
def test_no_run_outlasts_its_parent_nor_one_that_cannot_be_made(settings):
    settings = [each for each in settings if "steps" not in each]
    words = [*settings, "--vary", "train.steps=3,1000000,4", "--match", "none", "--seeds", "1"]
    ended = stopped(signal.SIGKILL, *words, "--out", "killed")
    assert ended.returncode == -signal.SIGKILL
    assert "Traceback" not in ended.stderr
    done = Path("killed/arms/0-steps=3/seed-0/record.json")
    assert list(Path("killed").rglob("record.json")) == [done]
    damaged = Path("killed/arms/2-steps=4/seed-0")
    damaged.mkdir(parents=True)
    (damaged / "record.json").write_text("{")
    with pytest.raises(CheckpointError, match=r"steps=4, seed 0: .*record.json is not JSON"):
        compare(
            "gpt",
            settings,
            vary=["train.steps=3,1000000,4"],
            match="none",
            seeds=1,
            out="killed",
            jobs=2,
        )
    assert sorted(Path("killed").rglob("record.json")) == [done, damaged / "record.json"]
