"""Clusters: needs, nodes and schedulers, the same bits, and clusters that refuse or are silent."""

import json
import re
import shutil
import signal
import subprocess
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from sublayer.api.comparing import compare
from sublayer.config.load import load_recipe
from sublayer.data.shards import MOST_PROCESSES, PROCESS_BYTES
from sublayer.errors import CheckpointError, ConfigError, Interrupted, TrainingError
from sublayer.evaluation.items import ITEMS
from sublayer.files.checkpoints import RECORD
from sublayer.files.storage import held
from sublayer.runs.session import prepare_data
from sublayer.study.budget import PROGRAM_BYTES
from sublayer.study.jobs import backends
from sublayer.study.jobs import worker as of_worker
from sublayer.study.jobs.backends import Cluster, Needs, SchedulerError, parse_place
from sublayer.study.jobs.computing import check_needs, needs_of, preparation_bytes, usual_threads
from sublayer.study.jobs.files import DONE, STOPPED, End, JobFiles, JobStatus
from sublayer.study.jobs.loop import MOST_TRIES, JobLoop
from sublayer.study.jobs.run import FAILURE, Job
from sublayer.system.processes import python_command
from sublayer.training.log import Status
from tests.study.studies import FAILING, FFN, copied, same_files, settings_of, values, write_text

GIB = 1 << 30
NODES = [Needs(2, 4 * GIB), Needs(8, 64 * GIB, gpus=2)]
LIMIT = "--on slurm:small: sbatch: error: QOSMaxSubmitJobPerUserLimit"
TRAINING = JobStatus("one", "", Status(30, 300, 1.5, 1000.0))
SILENT = "--on slurm:small: squeue fails (Socket timed out on send/recv operation)"


class Processes(Cluster):
    """Nodes that are this machine: each job is a process in a session of its own."""

    name = "ray"
    look_s, patience_s, grace_s, silence_s, most_jobs = 0.1, 0.2, 0.5, 60.0, 2

    def __init__(self) -> None:
        self.started: dict[str, subprocess.Popen] = {}

    def nodes(self) -> list[Needs]:
        return [Needs(1, 4 << 30), Needs(1, 4 << 30)]

    def start(self, name, label, folder, needs):
        command = [*python_command("sublayer.study.jobs.worker"), str(folder)]
        self.started[name] = subprocess.Popen(command, start_new_session=True)

    def active(self):
        return {name: "" for name, process in self.started.items() if process.poll() is None}

    def stop(self, names) -> None:
        for name in names:
            self.started[name].terminate()


@pytest.mark.parametrize("needs, nodes, line", [
    (Needs(16, GIB), NODES, "16 cores and 1 GiB .* 8 cores .* 2 GPUs: give fewer train.threads$"),
    (Needs(4, 65 * GIB), NODES, "4 cores and 65 GiB .*: give a smaller model or batch$"),
    (Needs(1, GIB), [], "no node that accepts"),
    (Needs(1, 0, gpus=1), NODES[:1], "1 core and 1 GPU, .* 4 GiB of memory: give --device cpu$"),
    (Needs(9, 0, gpus=1), NODES[:1], ": give fewer train.threads, and give --device cpu$"),
])  # fmt: skip
def test_what_no_node_has_is_refused(needs, nodes, line):
    with pytest.raises(ConfigError, match=f"--on slurm: .*{line}"):
        check_needs([Needs(1, 0), needs], nodes, "slurm")


def test_needs_are_memory_and_cores_and_a_cache_that_all_nodes_see_is_warm(tmp_path, monkeypatch):
    node = Needs(cores=8, memory_bytes=16 * GIB, gpus=2)
    asked = [Needs(2, GIB), Needs(2, 8 * GIB), Needs(1, 0, gpus=1), Needs(16, GIB)]
    assert [node.n_jobs(each) for each in asked] == [4, 2, 2, 0]
    assert Needs(8, 0).n_jobs(Needs(2, 100 * GIB)) == 4
    assert [usual_threads(NODES, n_runs=n) for n in (5, 1, 40)] == [2, 2, 1]
    assert usual_threads([], n_runs=1) == 1
    assert check_needs([Needs(1, 3 * GIB), Needs(2, GIB)], NODES, "ray") == Needs(2, 3 * GIB)

    def needs(n_layers: int, device: str = "cpu", **preparing: int) -> Needs:
        recipe = load_recipe("gpt", [f"model.n_layers={n_layers}", "train.threads=3"]).recipe
        return needs_of(recipe, 256, device, **preparing)

    small, large, preparing = needs(2), needs(8), needs(2, preparing_bytes=GIB)
    assert small.cores == 3
    assert PROGRAM_BYTES < small.memory_bytes < large.memory_bytes
    assert preparing.memory_bytes == int(1.25 * (PROGRAM_BYTES + GIB)) > small.memory_bytes
    assert needs(2, "cuda", preparing_bytes=GIB) == Needs(3, 0, gpus=1)
    (tmp_path / "cache").mkdir()
    recipe, many = (load_recipe("gpt", [f"train.threads={n}"]).recipe for n in (3, 64))
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    assert preparation_bytes(recipe, None, tmp_path) == 0
    assert preparation_bytes(recipe, None, Path("/proc")) == 3 * PROCESS_BYTES
    monkeypatch.delenv("SUBLAYER_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".cache" / "sublayer").mkdir(parents=True)
    assert preparation_bytes(recipe, None, tmp_path) == 3 * PROCESS_BYTES
    assert preparation_bytes(many, None, tmp_path) == MOST_PROCESSES * PROCESS_BYTES
    (tmp_path / "text.txt").write_text("the reed by the river bends " * 500)
    small = load_recipe("gpt", [f"data.path={tmp_path / 'text.txt'}", "train.threads=3"]).recipe
    assert preparation_bytes(small, prepare_data(small), tmp_path) == PROCESS_BYTES


def test_nodes_and_jobs_of_slurm_are_read_as_its_commands_print_them(tmp_path, monkeypatch):
    lines = """\
gpu|a1|64|515000|gpu:a100:4(S:0-1),shard:8|mix
gpu|a2|64|515000|gpu:2,gpu:h100:1|idle~
gpu|a3|64|515000|gpu:4|down*
gpu|a4|64|515000|gpu:4|drained
cpu*|b1|32|1|(null)|alloc"""
    cluster = object.__new__(backends.Slurm)
    cluster.name, cluster._partition = "slurm:gpu", "gpu"
    cluster._rows = [line.split("|") for line in lines.splitlines()]
    gpus = [Needs(64, 515000 << 20, gpus=4), Needs(64, 515000 << 20, gpus=3)]
    assert cluster.nodes() == gpus
    cluster._partition = "cpu"
    assert cluster.nodes() == [Needs(32, 0)]
    squeue = tmp_path / "squeue"
    squeue.write_text("""#!/bin/sh
echo '7|RUNNING|None|sublayer ffn=gelu, seed 0 0a1b2c3d
8|PENDING|PartitionTimeLimit|sublayer a|b, seed 1 1a1b2c3d
9|NODE_FAIL|None|sublayer ffn=gelu, seed 2 2a1b2c3d
10|RUNNING|None|of another'
""")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    active = {"0a1b2c3d": "", "1a1b2c3d": "PartitionTimeLimit", "another": ""}
    assert cluster.active() == active
    (tmp_path / "scancel").write_text(f'#!/bin/sh\necho "$@" > {tmp_path}/ended\n')
    (tmp_path / "scancel").chmod(0o755)
    cluster.stop(["1a1b2c3d", "2a1b2c3d"])
    assert (tmp_path / "ended").read_text() == "8\n"  # the other has ended
    squeue.write_text("#!/bin/sh\necho 'error: Unable to contact controller' >&2; exit 1\n")
    with pytest.raises(SchedulerError, match=r"--on slurm:gpu: squeue failed .error: Unable"):
        cluster.active()
    squeue.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedulerError, match="squeue is not installed here"):
        cluster.active()


class JobState(str):
    def is_terminal(self) -> bool:
        return self in ("SUCCEEDED", "FAILED")


def test_jobs_of_ray_are_known_by_their_names_and_one_that_waited_too_long_begins_again():
    def job(name: str, status: str, error=None) -> SimpleNamespace:
        return SimpleNamespace(submission_id=name, status=JobState(status), error_type=error)

    cluster, begun, ended = object.__new__(backends.Ray), [], []
    jobs = [job("sublayer-a-1", "RUNNING"), job("sublayer-b-1", "PENDING"), job("other", "RUNNING")]
    jobs += [job("sublayer-c-1", "FAILED"), job("sublayer-d-1", "FAILED", "ACTOR_START_TIMEOUT")]
    calls = {"list_jobs": lambda: jobs, "delete_job": ended.append, "stop_job": ended.append}
    cluster.name, cluster._client = "ray", SimpleNamespace(**calls)
    cluster._starts = {"d": lambda: begun.append("d")}
    active = cluster.active()
    assert [active.get(name) for name in "abcd"] == ["", "Resources", None, "Resources"]
    assert (begun, ended) == (["d"], ["sublayer-d-1"])
    cluster.stop(["d"])
    assert (cluster.active().get("d"), begun) == (None, ["d"])
    del jobs[-1]
    cluster.stop(["b", "c"])
    assert ended[1:] == ["sublayer-b-1"]

    def gone():
        raise ConnectionError("refused")

    cluster._client.list_jobs = gone
    with pytest.raises(SchedulerError, match="--on ray: refused"):
        cluster.active()


@pytest.mark.parametrize("text, message", [
    ("dask", "is neither ray"), ("slurm:", "neither ray"), ("ray://10.0.0.1:10001", "a client gat"),
])  # fmt: skip
def test_places_that_name_no_cluster_are_refused(text, message):
    assert parse_place("slurm:gpu-long") == ("slurm", "gpu-long")
    assert parse_place("ray:10.0.0.1:6379") == ("ray", "10.0.0.1:6379")
    with pytest.raises(ConfigError, match=message):
        parse_place(text)


@pytest.mark.parametrize("asked, line", [
    ({"jobs": 2}, "jobs 2 contradicts on ray: it is for one machine"),
    ({"match": "time"}, "on ray contradicts match = time"),
    ({"overrides": ["train.minutes=1"]}, "on ray contradicts train.minutes = 1"),
])  # fmt: skip
def test_what_contradicts_a_cluster_is_refused_before_it_is_looked_for(asked, line, tmp_path):
    given = {"overrides": ["train.steps=2"], "vary": [FFN], "out": tmp_path / "out", **asked}
    with pytest.raises(ConfigError, match=line):
        compare("gpt", **given, on="ray")
    assert not (tmp_path / "out").exists()


def test_runs_on_a_cluster_are_those_of_here(studies, settings, monkeypatch, capfd):
    cluster = Processes()
    monkeypatch.setitem(backends.CLUSTERS, "ray", lambda where: cluster)
    here, there = (copied(studies.failed(), name) for name in ("here", "there"))
    for gone in ("0-lr=1e-3/seed-1", "2-lr=1e6/seed-2"):
        shutil.rmtree(there / "arms" / gone)
    asked = {"vary": [FAILING], "seeds": 3, "out": there}
    known = json.loads((here / "results.json").read_text())
    found = compare("gpt", settings, **asked, on="ray").to_dict()
    said = capfd.readouterr().err.splitlines()
    assert (values(found), found["failures"]) == (values(known), known["failures"])
    for name in ("model.safetensors", "test.json", ITEMS):
        assert same_files(name, here, there), name
    assert len(cluster.started) == 2
    assert any(line.startswith("9 runs on ray, 2 nodes with 2 cores: each takes") for line in said)
    assert any("Runs were made on a cluster (ray)" in note for note in found["notes"])
    assert "--on ray" in found["reproduction"]["command"]
    assert compare("gpt", settings, **asked, on="ray").to_dict()["notes"] == found["notes"]
    assert len(cluster.started) == 2
    assert compare("gpt", settings, **asked).to_dict()["notes"] == found["notes"]
    for process in cluster.started.values():
        process.wait()


class Scripted(Cluster):
    """Takes all jobs, which run until they are ended, unless a test has it raise something."""

    name = "slurm:small"
    look_s, patience_s, grace_s, silence_s, most_jobs = 0.5, 0.0, 10.0, float("inf"), 100

    def __init__(self) -> None:
        self.now = 0.0
        # Jobs that have not ended, and their names by their labels.
        self.there: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.started: list[float] = []
        self.refuse = self.silent = self.script = lambda: None
        self.n_sleeps = 0

    def nodes(self) -> list[Needs]:
        return [Needs(8, 0)]

    def start(self, name, label, folder, needs):
        self.started.append(self.now)
        if (error := self.refuse()) is not None:
            raise error
        self.names[label] = name
        self.there[name] = ""

    def active(self):
        if (error := self.silent()) is not None:
            raise error
        return dict(self.there)

    def stop(self, names) -> None:
        for each in names:
            self.there.pop(each, None)

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.n_sleeps += 1
        assert self.n_sleeps < 5000, "it waits for ever"
        self.script()


class Runs:
    """Some runs of a study, of which the nodes say what a test has them say."""

    def __init__(self, folder: Path, n_runs: int) -> None:
        loaded = load_recipe("gpt", settings_of(write_text(folder / "river.txt")))
        given = {"recipe": loaded.recipe, "scored": loaded.recipe}
        given["data"] = prepare_data(loaded.recipe)
        self.study = folder / "study"
        self.study.mkdir()
        places = [self.study / f"run-{number}" for number in range(n_runs)]
        self.jobs = [Job(label=f"run {n}", path=path, **given) for n, path in enumerate(places)]
        self.cluster = Scripted()
        self.cluster.script = lambda: [act() for act in self._acts.get(self.cluster.now, [])]
        self._acts = {}
        self.stop_file = self.study / "cluster/stop"

    def make(self):
        more = {"needs_of": lambda job: Needs(1, 0), "command": "it"}
        more |= {"now": lambda: self.cluster.now, "sleep": self.cluster.sleep}
        return JobLoop(len(self.jobs), self.cluster, self.study, "cpu", **more)(self.jobs)

    def at(self, now: float, *acts) -> None:
        self._acts.setdefault(now, []).extend(acts)

    def finish_at(self, now: float, *numbers: int) -> None:
        self.at(now, *(partial(self.finish, number) for number in numbers))

    def finish(self, number: int) -> None:
        """Have a node make a run whose training fails, which is a result and quickly made."""
        self.write_result(number)
        self.end(number, DONE)

    def write_result(self, number: int) -> None:
        self.jobs[number].path.mkdir(exist_ok=True)
        (self.jobs[number].path / FAILURE).write_text('{"message": "it diverged"}')

    def files(self, number: int) -> JobFiles:
        return JobFiles(self.study / f"cluster/runs/run-{number}")

    def order(self) -> JobFiles:
        """Write the first job into its folder, as a node finds it."""
        files = self.files(0)
        files.write_job(self.jobs[0], {}, "cpu", self.stop_file)
        return files

    def end(self, number: int, end) -> None:
        self.files(number).write_status(JobStatus("one", end=end))
        self.lose(number)

    def lose(self, number: int) -> None:
        self.cluster.stop([self.cluster.names[f"run {number}"]])

    def is_there(self, number: int) -> bool:
        return self.cluster.names[f"run {number}"] in self.cluster.there


def test_a_limit_is_waited_for_unless_no_run_is_taken(runs, capfd):
    cluster = runs.cluster
    cluster.refuse = lambda: SchedulerError(LIMIT)
    with pytest.raises(ConfigError, match="QOSMaxSubmitJobPerUserLimit"):
        runs.make()
    assert cluster.started == [0]
    cluster.now, cluster.started = 0.0, []
    cluster.refuse = lambda: SchedulerError(LIMIT) if cluster.there else None
    runs.finish_at(50, 0)
    runs.finish_at(100, 1)
    assert len(runs.make()) == 2
    assert cluster.started == [0, 0, 30, 50]  # the last as soon as there is room
    assert capfd.readouterr().err.count(f"was not accepted ({LIMIT}): retrying") == 1


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path, 2)


@pytest.fixture
def alone(tmp_path):
    return Runs(tmp_path, 1)


def test_a_job_that_was_taken_without_an_answer_is_found_by_its_name(runs):
    taken: list[str] = []

    def refuse():
        if len(runs.cluster.started) != 2:
            return None
        # The second submission times out, and is taken all the same.
        runs.cluster.there |= dict.fromkeys(taken, "")
        return SchedulerError("Socket timed out")

    runs.finish_at(5, 0, 1)
    runs.make()
    taken.append(runs.cluster.names["run 1"])
    for job in runs.jobs:
        shutil.rmtree(job.path)
    runs.cluster.now, runs.cluster.started, runs.cluster.refuse = 0.0, [], refuse
    runs._acts.clear()
    runs.finish_at(60, 0, 1)
    assert len(runs.make()) == 2
    assert runs.cluster.started == [0, 0]


def test_a_status_that_cannot_be_read_or_a_result_not_seen_yet_holds_nobody_up(tmp_path, capfd):
    runs, shown = Runs(tmp_path, 3), []
    runs.at(0.5, lambda: (runs.files(2).folder / "status.json").mkdir())
    runs.at(1, lambda: runs.end(0, DONE))
    runs.finish_at(2, 1)
    runs.at(3, lambda: shown.append(capfd.readouterr().err.count("[1/3] run 1: ")))
    runs.at(60, lambda: runs.write_result(0))
    runs.at(70, lambda: runs.write_result(2), lambda: runs.lose(2))
    assert len(runs.make()) == 3
    assert runs.cluster.now == 70.5 and shown == [1] and len(runs.cluster.started) == 3


def test_a_silence_of_the_scheduler_is_announced_and_a_cluster_that_is_gone_ends(alone, capfd):
    cluster = alone.cluster
    cluster.silent = lambda: SchedulerError(SILENT) if 10 < cluster.now < 700 else None
    alone.finish_at(710, 0)
    assert len(alone.make()) == 1
    assert capfd.readouterr().err.count(f"no answer for two minutes ({SILENT}): retrying") == 1
    shutil.rmtree(alone.jobs[0].path)
    cluster.now, cluster.silence_s = 0.0, 30.0
    alone._acts.clear()
    with pytest.raises(TrainingError, match="cluster does not answer .* the same command again"):
        alone.make()
    assert 30 <= cluster.now - 10 < 32
    assert not alone.stop_file.exists()


def test_runs_that_are_left_go_on_and_are_joined(runs, capfd):
    runs.at(0.5, lambda: signal.raise_signal(signal.SIGINT))
    with pytest.raises(Interrupted, match="0 of 2 runs done; 2 runs continue on slurm:small"):
        runs.make()
    assert not runs.stop_file.exists()
    runs.finish_at(runs.cluster.now + 5, 0, 1)
    assert len(runs.make()) == 2
    assert len(runs.cluster.started) == 2
    assert "2 runs of an earlier command on slurm:small: joined" in capfd.readouterr().err


def test_a_file_stops_runs_that_have_begun_and_takes_others_back(runs):
    there: list[str] = []
    runs.at(1, lambda: runs.files(0).write_status(JobStatus("one")))
    runs.at(5, lambda: runs.stop_file.touch())
    runs.at(9, lambda: there.extend(runs.cluster.there), lambda: runs.end(0, STOPPED))
    with pytest.raises(Interrupted, match=r"stopped by .*: 0 of 2 runs done"):
        runs.make()
    assert there == [runs.cluster.names["run 0"]]


def test_a_run_whose_node_is_lost_is_tried_again_and_given_up_in_the_end(runs, capfd):
    def script() -> None:
        runs.lose(0)
        if runs.cluster.now == 3:
            runs.finish(1)
        runs.files(0).log.write_text("a line\nKilled\n")

    runs.cluster.script = script
    told = r"1 of 2 runs done, and 1 run lost 3 .* a line . Killed$"
    with pytest.raises(TrainingError, match=told):
        runs.make()
    assert len(runs.cluster.started) == 1 + MOST_TRIES
    shown = capfd.readouterr().err
    assert shown.count("its node was lost, or its job was ended; tried again") == MOST_TRIES - 1
    assert shown.count(f"given up after {MOST_TRIES} tries") == 1


def test_tries_between_which_a_checkpoint_was_written_do_not_count(alone):
    def script() -> None:
        n_tries = len(alone.cluster.started)
        if n_tries > 2 * MOST_TRIES:
            alone.finish(0)
        elif alone.is_there(0):
            (alone.jobs[0].path / f"checkpoints/step-{n_tries:08d}").mkdir(parents=True)
            alone.end(0, STOPPED)

    alone.cluster.script = script
    assert len(alone.make()) == 1


def test_a_job_that_slurm_queues_again_is_waited_for(alone, capfd):
    def queue(reason: str) -> None:
        alone.cluster.there[alone.cluster.names["run 0"]] = reason

    alone.at(1, lambda: alone.files(0).write_status(TRAINING))
    alone.at(5, lambda: queue("BeginTime"))
    alone.at(200, lambda: queue(""))
    alone.finish_at(210, 0)
    assert len(alone.make()) == 1
    shown = capfd.readouterr().err
    assert shown.count("run 0: one was lost; slurm:small tries again") == 1
    assert len(alone.cluster.started) == 1


def test_a_try_that_was_taken_for_lost_and_ends_well_is_the_result(alone, capfd):
    name = alone.cluster.names

    def end_well() -> None:
        alone.write_result(0)
        alone.files(0).write_status(JobStatus("one", end=DONE))

    alone.at(1, lambda: alone.files(0).write_status(TRAINING), lambda: alone.lose(0))
    # The job waits again, while the process of before, whose node is cut off, goes on.
    alone.at(20, lambda: alone.cluster.there.update({name["run 0"]: "Resources"}))
    alone.at(21, lambda: alone.files(0).write_status(TRAINING))
    alone.at(30, end_well)
    assert len(alone.make()) == 1
    assert not alone.cluster.there and len(alone.cluster.started) == 2
    assert capfd.readouterr().err.count(": on one\n") == 1


def test_a_run_that_cannot_be_made_stops_the_others(runs):
    end = End("CheckpointError", ("record.json is not JSON",))
    runs.at(1, lambda: runs.end(0, end))
    with pytest.raises(CheckpointError, match=r"run 0: record.json is not JSON"):
        runs.make()
    assert runs.stop_file.exists() and not runs.cluster.there


def made_by_worker(files: JobFiles) -> JobStatus:
    """Have a process make the job of a folder, as on a node."""
    command = [*python_command("sublayer.study.jobs.worker"), str(files.folder)]
    assert subprocess.run(command, check=False, timeout=120).returncode == 0
    return files.read_status()


def test_a_node_of_other_versions_says_so_and_a_stop_file_ends_a_job(alone):
    files = alone.order()
    content = json.loads((files.folder / "job.json").read_text())
    content["versions"]["numpy"] = "0.0.1"
    (files.folder / "job.json").write_text(json.dumps(content))
    end = made_by_worker(files).end
    assert end.error == "ConfigError"
    assert re.search(r"has numpy .*, and compare 0\.0\.1: install the same", end.arguments[0])
    alone.order()
    alone.stop_file.touch()
    assert made_by_worker(files).end == STOPPED
    assert not alone.jobs[0].path.exists()


def test_a_folder_that_is_held_is_waited_for_and_its_result_taken(alone, monkeypatch):
    monkeypatch.setattr(of_worker.os, "dup2", lambda one, other: None)  # the output is the tests'
    files, waited = alone.order(), []
    alone.jobs[0].path.mkdir()
    lock = held(alone.jobs[0].path)
    lock.__enter__()

    def sleep(seconds: float) -> None:
        waited.append(files.read_status().stage)
        alone.write_result(0)  # by the other process
        lock.__exit__(None, None, None)

    monkeypatch.setattr(of_worker.time, "sleep", sleep)
    of_worker.make_run(files.folder)
    assert len(waited) == 1 and "in use by another process" in waited[0]
    assert files.read_status().end == DONE and not (alone.jobs[0].path / RECORD).exists()


def test_an_end_is_written_as_soon_as_it_can_be(alone, monkeypatch):
    monkeypatch.setattr(of_worker.os, "dup2", lambda one, other: None)
    files, left = alone.order(), [OSError(28, "No space left on device")] * 3
    alone.write_result(0)
    write = JobFiles.write_status

    def write_status(self, status: JobStatus) -> None:
        if status.end is not None and left:
            raise left.pop()
        write(self, status)

    monkeypatch.setattr(JobFiles, "write_status", write_status)
    monkeypatch.setattr(of_worker, "_LOCK_S", 0.0)
    of_worker.make_run(files.folder)
    assert files.read_status().end == DONE and not left
