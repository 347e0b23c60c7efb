"""Runs are made all the same on a cluster that refuses some, is silent, or is seen late."""

import errno
import json
import signal
import threading
from pathlib import Path

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.errors import CheckpointError, ConfigError, FolderHeld, Interrupted, TrainingError
from sublayer.study.cluster import node
from sublayer.study.cluster.cluster import ClusterGone, NoAnswer, Refused, TaskState
from sublayer.study.cluster.exchange import DIED, Progress, RunFiles
from sublayer.study.cluster.tasks_file import Submitted, TasksFile
from sublayer.study.cluster.tries import MOST_TRIES
from sublayer.study.execution.job import FOLDER_HELD, STOPPED, Job, end_message, read_end
from sublayer.study.execution.one_run import FAILURE
from sublayer.system.lock import held
from tests.study.cluster.scripted import Runs
from tests.study.studies import TINY, write_text

LIMIT = "--on slurm:small: sbatch: error: QOSMaxSubmitJobPerUserLimit"
SILENT = "--on slurm:small: Socket timed out on send/recv operation"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))


def test_a_limit_of_the_site_is_waited_for_with_pauses_that_grow(tmp_path, capfd):
    runs = Runs(tmp_path, 3)
    cluster = runs.cluster
    made = []

    def script() -> None:
        for number in range(3):
            if runs.is_there(number) and cluster.now > 100 * (len(made) + 1):
                made.append(number)
                runs.finish(number)

    cluster.refuse = lambda: Refused(LIMIT) if cluster.there else None
    cluster.script = script
    assert len(runs.make()) == 3
    times = [time for time, _ in cluster.submitted]
    assert times[:5] == [0, 0, 10, 30, 70]
    # What has ended leaves room, which is not waited for.
    assert times[5] == pytest.approx(100.5)
    assert capfd.readouterr().err.count(f"was not taken ({LIMIT}): it is tried again") == 1
    assert json.loads((runs.study / "cluster" / "tasks.json").read_text())["runs"] == {}


def test_what_takes_no_run_at_all_is_asked_once(tmp_path):
    runs = Runs(tmp_path, 2)
    runs.cluster.refuse = lambda: Refused(LIMIT)
    with pytest.raises(ConfigError, match="QOSMaxSubmitJobPerUserLimit"):
        runs.make()
    assert len(runs.cluster.submitted) == 1


def test_a_job_whose_submission_timed_out_is_found_by_its_name(tmp_path):
    runs = Runs(tmp_path, 2)
    cluster = runs.cluster
    cluster.takes_what_it_refuses = True
    cluster.refuse = lambda: Refused(SILENT) if len(cluster.submitted) == 2 else None

    def script() -> None:
        if cluster.now > 60 and cluster.there:
            runs.finish(0)
            runs.finish(1)

    cluster.script = script
    assert len(runs.make()) == 2
    assert len(cluster.submitted) == 2


def test_a_job_whose_id_was_not_kept_is_found_by_its_name(tmp_path):
    runs = Runs(tmp_path, 1)
    runs.cluster.names = {"sublayer run 0 1a2b3c4d": "7"}
    files = runs.tasks_file.files("run-0")
    runs.cluster.there = {"7": f"{files.folder} 1"}
    files.folder.mkdir(parents=True)
    runs.tasks_file.submit("run-0", Submitted(task="", name="sublayer run 0 1a2b3c4d", number=1))
    runs.tasks_file = TasksFile.open(runs.study, runs.cluster.name, None, "cpu")
    runs.cluster.script = lambda: runs.finish(0)
    assert len(runs.make()) == 1
    assert runs.cluster.submitted == []


def test_files_that_cannot_be_read_for_a_moment_stop_nothing(tmp_path):
    runs = Runs(tmp_path, 2)
    cluster = runs.cluster
    folder = runs.tasks_file.files("run-0").folder
    # A folder under a file's name is refused by open, as a stale handle is.
    blocked = [folder / "progress.json", folder / "end-1.json"]

    def script() -> None:
        if cluster.now == 0.5:
            for each in blocked:
                each.mkdir()
            runs.finish(1)
        if cluster.now == 80:
            blocked[1].rmdir()
            runs.finish(0)

    cluster.script = script
    assert len(runs.make()) == 2
    assert cluster.now == 80
    assert len(cluster.submitted) == 2


def test_an_end_that_stays_unreadable_stops_the_study(tmp_path):
    runs = Runs(tmp_path, 1)
    end = runs.tasks_file.files("run-0").folder / "end-1.json"
    runs.cluster.script = lambda: end.mkdir(exist_ok=True)
    with pytest.raises(CheckpointError, match=r"end-1.json cannot be read"):
        runs.make()
    assert 90 < runs.cluster.now < 100


def test_what_is_not_seen_yet_holds_nobody_up(tmp_path, capfd):
    runs = Runs(tmp_path, 2)
    cluster = runs.cluster
    done = {"end": "done"}

    def script() -> None:
        if cluster.now == 1:
            runs.end(0, done)
        if cluster.now == 2:
            runs.finish(1)
        if cluster.now == 3:
            assert "[1/2] run 1: " in capfd.readouterr().err
        if cluster.now == 60:
            runs.write_result(0)

    cluster.script = script
    assert len(runs.make()) == 2
    assert cluster.now == 60


def test_what_is_never_seen_is_a_line(tmp_path):
    runs = Runs(tmp_path, 1)
    runs.cluster.script = lambda: runs.end(0, {"end": "done"}) if runs.is_there(0) else None
    with pytest.raises(ConfigError, match="run 0: its node says that it is done, and "):
        runs.make()
    assert 90 < runs.cluster.now < 100


def test_a_scheduler_that_is_silent_is_told_of(tmp_path, capfd):
    runs = Runs(tmp_path, 1)
    cluster = runs.cluster
    cluster.silent = lambda: NoAnswer(SILENT) if 10 < cluster.now < 700 else None
    cluster.script = lambda: runs.finish(0) if cluster.now == 710 else None
    assert len(runs.make()) == 1
    said = capfd.readouterr().err
    for minutes in (2, 4, 8):
        line = f"slurm:small has not answered for {minutes} minutes ({SILENT}): what runs there"
        assert said.count(line) == 1
    assert said.count("has not answered") == 3
    assert said.count("slurm:small answers again") == 1


def test_why_runs_wait_is_told_where_it_may_last(tmp_path, capfd):
    runs = Runs(tmp_path, 3)
    cluster = runs.cluster
    reasons = {"1": "Priority", "2": "PartitionTimeLimit", "3": "PartitionTimeLimit"}
    cluster.states = {
        task: TaskState(is_running=False, reason=reason) for task, reason in reasons.items()
    }
    progress = runs.study / "cluster" / "progress.txt"

    def script() -> None:
        if cluster.now == 5:
            assert "run-1: waiting (PartitionTimeLimit)" in progress.read_text().splitlines()
            for number in range(3):
                runs.finish(number)

    cluster.script = script
    runs.make()
    said = capfd.readouterr().err
    assert said.count("2 runs wait on slurm:small for PartitionTimeLimit, run 1 first") == 1
    assert "Priority" not in said


def test_a_run_whose_folder_is_held_is_never_given_up(tmp_path):
    runs = Runs(tmp_path, 1)
    cluster = runs.cluster

    def script() -> None:
        if not runs.is_there(0):
            return
        if len(cluster.submitted) > 5:
            runs.finish(0)
        else:
            runs.end(0, {"end": FOLDER_HELD, "text": "it is held"})

    cluster.script = script
    assert len(runs.make()) == 1
    assert len(cluster.submitted) == 6


def test_a_cluster_that_is_gone_stops_no_run(tmp_path):
    runs = Runs(tmp_path, 2)
    cluster = runs.cluster
    cluster.refuse = lambda: ClusterGone("it is gone") if len(cluster.submitted) > 1 else None
    with pytest.raises(TrainingError, match="it is gone"):
        runs.make()
    assert not runs.tasks_file.stop_file.exists()
    kept = TasksFile.open(runs.study, cluster.name, None, "cpu").runs
    assert kept["run-0"].task == "1"
    assert kept["run-1"].task == ""
    assert kept["run-1"].name.startswith("sublayer run 1 ")


def test_tasks_that_cannot_be_written_for_a_moment_stop_nothing(tmp_path):
    class Full(TasksFile):
        is_full = False

        def write(self) -> None:
            if self.is_full:
                raise OSError(errno.ESTALE, "Stale file handle", str(self.folder))
            super().write()

    runs = Runs(tmp_path, 1)
    runs.tasks_file = Full(runs.study, runs.cluster.name, "cpu")

    def script() -> None:
        runs.tasks_file.is_full = runs.cluster.now == 1
        if runs.cluster.now == 1:
            runs.end(0, {"end": "died", "text": "its process was ended"})
        if runs.cluster.now == 60:
            runs.finish(0)

    runs.cluster.script = script
    assert len(runs.make()) == 1
    assert json.loads((runs.study / "cluster" / "tasks.json").read_text())["runs"] == {}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """A run whose training failed, so that it is quickly made again."""
    monkeypatch.setattr(node.os, "dup2", lambda one, other: None)  # the output is the tests'
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    path = tmp_path / "run"
    path.mkdir()
    (path / FAILURE).write_text('{"message": "it diverged"}')
    settings = [*TINY, f"data.path={write_text(tmp_path / 'river.txt')}", "train.steps=5"]
    recipe = load_recipe("gpt", settings).recipe
    return Job("one", path, recipe, recipe, {}, "cpu")


def made(tmp_path: Path, files: RunFiles, stopping: threading.Event) -> int:
    return node._OneRun(tmp_path, files, 1, stopping).make()


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
        assert made(tmp_path, files, stopping) == 0
    end = files.read_end(1)
    assert end is not None
    assert end.end == FOLDER_HELD


def test_that_a_folder_is_held_is_told_from_other_mistakes(tmp_path):
    with held(tmp_path), pytest.raises(FolderHeld) as caught, held(tmp_path):
        pass
    message = end_message(caught.value)
    assert message is not None
    assert message["end"] == FOLDER_HELD
    assert isinstance(read_end(message, "one"), FolderHeld)
    other = end_message(ConfigError("another mistake"))
    assert other is not None
    assert other["end"] == ConfigError.__name__


@pytest.mark.all
def test_a_folder_that_is_taken_before_the_run_takes_it_is_waited_for(tmp_path, job):
    (job.path / FAILURE).unlink()
    lock = held(job.path)
    looked = []

    class Late(node._OneRun):
        def _is_free(self, folder: Path) -> bool:
            looked.append(folder)
            if len(looked) == 1:
                lock.__enter__()
            else:
                lock.__exit__(None, None, None)
            return True

    files = RunFiles(tmp_path / "files")
    files.write_job(job)
    assert Late(tmp_path, files, 1, threading.Event()).make() == 0
    end = files.read_end(1)
    assert end is not None
    assert end.end == "done"
    assert len(looked) == 2


def test_why_a_run_was_not_begun_is_said_where_that_can_be(tmp_path, job):
    files = RunFiles(tmp_path / "files")
    files.write_job(job)
    files.log(1).mkdir()  # which no log can replace
    assert made(tmp_path, files, threading.Event()) == 0
    end = files.read_end(1)
    assert end is not None
    assert end.end == DIED
    assert "its process could not begin it ([Errno 21] Is a directory" in end.text


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
    assert made(tmp_path, files, threading.Event()) == 0  # without a job
    assert json.loads((files.folder / "end-1.json").read_text())["end"] == DIED
    left.extend([OSError(errno.ENOSPC, "No space left on device")] * 100)
    assert made(tmp_path, files, threading.Event()) == 1
    assert "cannot be written: [Errno 28] No space left on device" in capfd.readouterr().err


def test_runs_that_are_left_go_on_and_are_joined(tmp_path, capfd):
    runs = Runs(tmp_path, 2)
    runs.cluster.script = lambda: signal.raise_signal(signal.SIGINT)
    with pytest.raises(
        Interrupted, match="left with 0 of 2 runs done; 2 runs go on on slurm:small"
    ):
        runs.make()
    assert not runs.tasks_file.stop_file.exists()
    assert len(TasksFile.open(runs.study, runs.cluster.name, None, "cpu").runs) == 2

    def finish() -> None:
        for number in range(2):
            if runs.is_there(number):
                runs.finish(number)

    runs.cluster.script = finish
    assert len(runs.make()) == 2
    assert len(runs.cluster.submitted) == 2
    assert "2 runs of before on slurm:small: joined" in capfd.readouterr().err


def test_a_file_stops_runs_that_have_begun_and_takes_others_back(tmp_path):
    runs = Runs(tmp_path, 2)
    cluster = runs.cluster

    def script() -> None:
        if cluster.now == 1:
            progress = Progress(number=1, host="one")
            runs.tasks_file.files("run-0").write_progress(progress)
        if cluster.now == 5:
            runs.tasks_file.stop_file.touch()
        if cluster.now == 9:
            assert runs.is_there(0) and not runs.is_there(1)
            runs.end(0, STOPPED)

    cluster.script = script
    with pytest.raises(Interrupted, match=r"stopped by .*: 0 of 2 runs done"):
        runs.make()
    assert json.loads((runs.study / "cluster" / "tasks.json").read_text())["runs"] == {}


def test_a_run_whose_node_is_lost_is_tried_again_and_given_up_in_the_end(tmp_path, capfd):
    runs = Runs(tmp_path, 2)
    cluster = runs.cluster

    def script() -> None:
        if runs.is_there(0):
            cluster.cancel([runs.task(0)[0]])
        if cluster.now == 3:
            runs.finish(1)

    cluster.script = script
    with pytest.raises(TrainingError, match="1 of 2 runs done, and 1 run lost 3 times in a row"):
        runs.make()
    assert len(cluster.submitted) == 1 + MOST_TRIES
    said = capfd.readouterr().err
    assert said.count("its node was lost, or its task was ended; tried again") == MOST_TRIES - 1
    assert said.count(f"given up after {MOST_TRIES} tries") == 1
    assert not list(runs.study.rglob("run-0/failure.json"))


def test_a_run_that_cannot_be_made_stops_the_others(tmp_path):
    runs = Runs(tmp_path, 2)
    cluster = runs.cluster

    def script() -> None:
        if cluster.now == 1:
            runs.end(0, {"end": "CheckpointError", "text": "record.json is not JSON"})

    cluster.script = script
    with pytest.raises(CheckpointError, match=r"run 0: record.json is not JSON"):
        runs.make()
    assert runs.tasks_file.stop_file.exists() and not cluster.there
