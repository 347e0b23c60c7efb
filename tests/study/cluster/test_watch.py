"""Runs are made all the same on a cluster that refuses some, is silent, or is seen late."""

import errno
import json
import re
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.errors import CheckpointError, ConfigError, FolderHeld, Interrupted, TrainingError
from sublayer.study.cluster import node
from sublayer.study.cluster.cluster import ClusterGone, NoAnswer, Refused, TaskState
from sublayer.study.cluster.exchange import DIED, Progress, RunFiles
from sublayer.study.cluster.tasks_file import Submitted, TasksFile
from sublayer.study.cluster.tries import MOST_TRIES
from sublayer.study.execution.job import DONE, FOLDER_HELD, STOPPED, Job, end_message, read_end
from sublayer.study.execution.one_run import FAILURE
from sublayer.system.lock import held
from tests.study.cluster.scripted import Runs
from tests.study.studies import settings_of, write_text

LIMIT = "--on slurm:small: sbatch: error: QOSMaxSubmitJobPerUserLimit"
SILENT = "--on slurm:small: Socket timed out on send/recv operation"


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path, 2)


@pytest.fixture
def alone(tmp_path):
    return Runs(tmp_path, 1)


def kept(runs: Runs) -> dict[str, Any]:
    return json.loads((runs.study / "cluster" / "tasks.json").read_text())["runs"]


def test_a_limit_of_the_site_is_waited_for_with_pauses_that_grow(runs, capfd):
    cluster = runs.cluster
    cluster.refuse = lambda: Refused(LIMIT) if cluster.there else None
    runs.finish_at(100, 0)
    runs.finish_at(200, 1)
    assert len(runs.make()) == 2
    # What has ended leaves room, which is not waited for.
    assert cluster.submitted == [0, 0, 10, 30, 70, 100]
    assert capfd.readouterr().err.count(f"was not taken ({LIMIT}): it is tried again") == 1
    assert kept(runs) == {}


def test_a_cluster_that_takes_no_run_at_all_is_asked_once(runs):
    runs.cluster.refuse = lambda: Refused(LIMIT)
    with pytest.raises(ConfigError, match="QOSMaxSubmitJobPerUserLimit"):
        runs.make()
    assert len(runs.cluster.submitted) == 1


def test_a_job_whose_id_was_not_kept_is_found_by_its_name(alone):
    alone.cluster.names = {"sublayer run 0 1a2b3c4d": "7"}
    files = alone.tasks_file.files("run-0")
    alone.cluster.there = {"7": f"{files.folder} 1"}
    files.folder.mkdir(parents=True)
    alone.tasks_file.submit("run-0", Submitted(task="", name="sublayer run 0 1a2b3c4d", number=1))
    alone.tasks_file = TasksFile.open(alone.study, alone.cluster.name, None, "cpu")
    alone.cluster.script = lambda: alone.finish(0)
    assert len(alone.make()) == 1
    assert alone.cluster.submitted == []


def test_files_that_cannot_be_read_for_a_moment_stop_nothing(runs):
    folder = runs.tasks_file.files("run-0").folder
    # A folder under a file's name is refused by open, as a stale handle is.
    blocked = [folder / "progress.json", folder / "end-1.json"]
    runs.at(0.5, *(each.mkdir for each in blocked))
    runs.finish_at(0.5, 1)
    runs.at(80, blocked[1].rmdir)
    runs.finish_at(80, 0)
    assert len(runs.make()) == 2
    assert (runs.cluster.now, len(runs.cluster.submitted)) == (80, 2)


def test_a_result_that_is_not_seen_yet_holds_nobody_up_and_one_never_seen_is_an_error(
    tmp_path, capfd
):
    runs, shown = Runs(tmp_path, 3), []
    runs.at(1, lambda: runs.end(0, DONE), lambda: runs.end(2, DONE))
    runs.finish_at(2, 1)
    runs.at(3, lambda: shown.append(capfd.readouterr().err.count("[1/3] run 1: ")))
    runs.at(60, lambda: runs.write_result(0))
    with pytest.raises(ConfigError, match="run 2: its node says that it is done, and "):
        runs.make()
    assert 90 < runs.cluster.now < 100 and shown == [1]


def test_a_silence_of_the_scheduler_is_announced(alone, capfd):
    cluster = alone.cluster
    cluster.silent = lambda: NoAnswer(SILENT) if 10 < cluster.now < 700 else None
    alone.finish_at(710, 0)
    assert len(alone.make()) == 1
    shown = capfd.readouterr().err
    minutes = re.findall(r"slurm:small has not answered for (\d+) minutes \((.*)\): what", shown)
    assert minutes == [("2", SILENT), ("4", SILENT), ("8", SILENT)]
    assert shown.count("slurm:small answers again") == 1


def test_why_runs_wait_is_shown_where_it_may_last(tmp_path, capfd):
    runs, shown = Runs(tmp_path, 3), []
    reasons = {"1": "Priority", "2": "PartitionTimeLimit", "3": "PartitionTimeLimit"}
    runs.cluster.states = {task: TaskState(False, reason) for task, reason in reasons.items()}
    progress = runs.study / "cluster" / "progress.txt"
    runs.at(5, lambda: shown.extend(progress.read_text().splitlines()))
    runs.finish_at(5, 0, 1, 2)
    runs.make()
    error = capfd.readouterr().err
    assert "run-1: waiting (PartitionTimeLimit)" in shown
    assert error.count("2 runs wait on slurm:small for PartitionTimeLimit, run 1 first") == 1
    assert "Priority" not in error


def test_a_run_whose_folder_is_held_is_never_given_up(alone):
    def script() -> None:
        if alone.is_there(0) and len(alone.cluster.submitted) > 5:
            alone.finish(0)
        elif alone.is_there(0):
            alone.end(0, {"end": FOLDER_HELD, "text": "it is held"})

    alone.cluster.script = script
    assert len(alone.make()) == 1
    assert len(alone.cluster.submitted) == 6


def test_a_cluster_that_is_gone_stops_no_run(runs):
    cluster = runs.cluster
    cluster.refuse = lambda: ClusterGone("it is gone") if len(cluster.submitted) > 1 else None
    with pytest.raises(TrainingError, match="it is gone"):
        runs.make()
    assert not runs.tasks_file.stop_file.exists()
    first, second = (kept(runs)[f"run-{number}"] for number in range(2))
    assert (first["task"], second["task"]) == ("1", "")
    assert second["name"].startswith("sublayer run 1 ")


def test_tasks_that_cannot_be_written_for_a_moment_stop_nothing(alone):
    class Full(TasksFile):
        def write(self) -> None:
            if alone.cluster.now == 1:
                raise OSError(errno.ESTALE, "Stale file handle", str(self.folder))
            super().write()

    alone.tasks_file = Full(alone.study, alone.cluster.name, "cpu")
    alone.at(1, lambda: alone.end(0, {"end": "died", "text": "its process was ended"}))
    alone.finish_at(60, 0)
    assert len(alone.make()) == 1
    assert kept(alone) == {}


@pytest.fixture
def job(tmp_path, monkeypatch):
    """A run whose training failed, so that it is quickly made again."""
    monkeypatch.setattr(node.os, "dup2", lambda one, other: None)  # the output is the tests'
    path = tmp_path / "run"
    path.mkdir()
    (path / FAILURE).write_text('{"message": "it diverged"}')
    recipe = load_recipe("gpt", settings_of(write_text(tmp_path / "river.txt"))).recipe
    return Job("one", path, recipe, recipe, {}, "cpu")


def end_of(tmp_path: Path, files: RunFiles, stopping: threading.Event) -> tuple[str, str]:
    assert node._OneRun(tmp_path, files, 1, stopping).make() == 0
    end = files.read_end(1)
    return end.end, end.text


def test_a_folder_that_is_held_is_waited_for_until_the_task_has_to_stop(tmp_path, job):
    stopping = threading.Event()

    class Stopping(RunFiles):
        def write_progress(self, progress: Progress) -> None:
            super().write_progress(progress)
            if "where another process works" in progress.stage:
                stopping.set()

    files = Stopping(tmp_path / "files")
    files.write_job(job)
    with held(job.path):
        assert end_of(tmp_path, files, stopping)[0] == FOLDER_HELD
        with pytest.raises(FolderHeld) as caught, held(job.path):
            pass
    message = end_message(caught.value)
    assert message["end"] == FOLDER_HELD and isinstance(read_end(message, "one"), FolderHeld)


def test_why_a_run_was_not_begun_is_kept_where_that_can_be(tmp_path, job):
    files = RunFiles(tmp_path / "files")
    files.write_job(job)
    files.log(1).mkdir()  # which no log can replace
    end, text = end_of(tmp_path, files, threading.Event())
    assert end == DIED
    assert "its process could not begin it ([Errno 21] Is a directory" in text


def test_an_end_is_written_as_soon_as_it_can_be(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(node, "_WRITE_S", 0.0)
    left = [OSError(errno.ENOSPC, "No space left on device")] * 3

    class Full(RunFiles):
        def write_end(self, number: int, end: dict[str, str]) -> None:
            if left:
                raise left.pop()
            super().write_end(number, end)

    files = Full(tmp_path / "files")
    files.folder.mkdir()
    assert end_of(tmp_path, files, threading.Event())[0] == DIED  # without a job
    left.extend([OSError(errno.ENOSPC, "No space left on device")] * 100)
    assert node._OneRun(tmp_path, files, 1, threading.Event()).make() == 1
    assert "cannot be written: [Errno 28] No space left on device" in capfd.readouterr().err


def test_runs_that_are_left_go_on_and_are_joined(runs, capfd):
    runs.at(0.5, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(Interrupted, match="left with 0 of 2 runs done; 2 runs go on on slurm:smal"):
        runs.make()
    assert not runs.tasks_file.stop_file.exists()
    assert len(kept(runs)) == 2
    runs.finish_at(runs.cluster.now + 5, 0, 1)
    assert len(runs.make()) == 2
    assert len(runs.cluster.submitted) == 2
    assert "2 runs of before on slurm:small: joined" in capfd.readouterr().err


def test_a_file_stops_runs_that_have_begun_and_takes_others_back(runs):
    begun = Progress(number=1, host="one")
    there: list[bool] = []
    runs.at(1, lambda: runs.tasks_file.files("run-0").write_progress(begun))
    runs.at(5, lambda: runs.tasks_file.stop_file.touch())
    runs.at(9, lambda: there.extend(map(runs.is_there, range(2))), lambda: runs.end(0, STOPPED))
    with pytest.raises(Interrupted, match=r"stopped by .*: 0 of 2 runs done"):
        runs.make()
    assert there == [True, False] and kept(runs) == {}


def test_a_run_whose_node_is_lost_is_tried_again_and_given_up_in_the_end(runs, capfd):
    def script() -> None:
        if runs.is_there(0):
            runs.cluster.cancel([runs.task(0)[0]])
        if runs.cluster.now == 3:
            runs.finish(1)

    runs.cluster.script = script
    with pytest.raises(TrainingError, match="1 of 2 runs done, and 1 run lost 3 times in a row"):
        runs.make()
    assert len(runs.cluster.submitted) == 1 + MOST_TRIES
    shown = capfd.readouterr().err
    assert shown.count("its node was lost, or its task was ended; tried again") == MOST_TRIES - 1
    assert shown.count(f"given up after {MOST_TRIES} tries") == 1
    assert not list(runs.study.rglob("run-0/failure.json"))


def test_a_run_that_cannot_be_made_stops_the_others(runs):
    runs.at(1, lambda: runs.end(0, {"end": "CheckpointError", "text": "record.json is not JSON"}))
    with pytest.raises(CheckpointError, match=r"run 0: record.json is not JSON"):
        runs.make()
    assert runs.tasks_file.stop_file.exists() and not runs.cluster.there
