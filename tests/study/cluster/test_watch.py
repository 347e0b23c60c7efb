"""Runs are made all the same on a cluster that refuses some, is silent, or is seen late."""

import errno
import json
from pathlib import Path

import pytest

from sublayer.errors import CheckpointError, ConfigError, TrainingError
from sublayer.study.cluster.cluster import ClusterGone, NoAnswer, Refused, TaskState
from sublayer.study.cluster.tasks_file import Submitted, TasksFile
from sublayer.study.execution.job import FOLDER_HELD
from tests.study.cluster.scripted import Runs

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


def test_what_takes_no_more_with_nothing_there_is_asked_a_few_times(tmp_path):
    runs = Runs(tmp_path, 2)
    cluster = runs.cluster
    cluster.refuse = lambda: Refused(SILENT) if len(cluster.submitted) > 1 else None
    cluster.script = lambda: runs.finish(0) if runs.is_there(0) and cluster.now > 9 else None
    with pytest.raises(ConfigError, match="Socket timed out"):
        runs.make()
    assert 60 < cluster.now < 600
    assert 4 < len(cluster.submitted) < 12


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
