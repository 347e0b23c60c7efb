"""Clusters: needs, nodes and schedulers, the same bits, and clusters that refuse or are silent."""

import errno
import json
import os
import re
import shutil
import signal
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from sublayer.api.training import compare
from sublayer.config.layering.layers import load_recipe
from sublayer.data.shards.workers import MOST_PROCESSES, PROCESS_BYTES
from sublayer.errors import CheckpointError, ConfigError, FolderHeld, Interrupted, TrainingError
from sublayer.runs.session import prepare_data
from sublayer.study.budget.capacity import PROGRAM_BYTES
from sublayer.study.cluster import node
from sublayer.study.cluster.clock import Clock
from sublayer.study.cluster.cluster import Cluster, ClusterGone, NoAnswer, Node, Refused, TaskState
from sublayer.study.cluster.cold_cache import preparation_bytes
from sublayer.study.cluster.computing import CLUSTERS
from sublayer.study.cluster.exchange import DIED, Progress, RunFiles
from sublayer.study.cluster.needs import Needs, check_needs, needs_of, usual_threads
from sublayer.study.cluster.node import FREE
from sublayer.study.cluster.on_cluster import OnCluster
from sublayer.study.cluster.place import ClusterPlace, parse_place
from sublayer.study.cluster.probe import check_nodes
from sublayer.study.cluster.schedulers.ray_broker import _Broker
from sublayer.study.cluster.schedulers.ray_cluster import RayCluster
from sublayer.study.cluster.schedulers.slurm_cluster import SlurmCluster, parse_nodes
from sublayer.study.cluster.tasks_file import Submitted, TasksFile, check_left
from sublayer.study.cluster.tries import MOST_TRIES
from sublayer.study.execution.job import DONE, FOLDER_HELD, STOPPED, Job, end_message, read_end
from sublayer.study.execution.one_run import FAILURE, Task
from sublayer.system.lock import held
from sublayer.system.python_process import python_command
from tests.study.studies import FAILING, FFN, copied, same_files, settings_of, values, write_text

GIB = 1 << 30
NODES = [Node("small", 2, 4 * GIB), Node("large", 8, 64 * GIB, gpus=2)]
PLACE = ClusterPlace("ray")
RUN = "arms/0-gelu/seed-0"
LIMIT = "--on slurm:small: sbatch: error: QOSMaxSubmitJobPerUserLimit"
SILENT = "--on slurm:small: Socket timed out on send/recv operation"


class Processes(Cluster):
    """Nodes that are this machine: each task is a process that outlives who submitted it."""

    patience_s = 0.2
    grace_s = 0.5

    def __init__(self, place: ClusterPlace, change=lambda command: command) -> None:
        self.name = str(place)
        self.submitted: list[str] = []
        self.named: dict[str, str] = {}
        self.change = change

    def nodes(self) -> list[Node]:
        return [Node("one", 1, 4 << 30), Node("two", 1, 4 << 30)]

    def submit(self, name, words, needs, folder, node=""):
        self.submitted.append(name)
        command = self.change([*python_command("sublayer.study.cluster.node"), FREE, *words])
        self.named[name] = str(os.posix_spawn(command[0], command, os.environ, setsid=True))
        return self.named[name]

    def find(self, name: str) -> str | None:
        return next(iter(self.active([self.named.get(name, "")])), None)

    def active(self, ids):
        return {each: TaskState(is_running=True) for each in ids if is_alive(each)}

    def cancel(self, ids) -> None:
        for each in ids:
            with suppress(ProcessLookupError, ValueError):
                os.kill(int(each), signal.SIGTERM)

    def probed(self):
        return {node.name: node.name for node in self.nodes()}


def is_alive(task: str) -> bool:
    with suppress(ChildProcessError, ValueError):
        os.waitpid(int(task), os.WNOHANG)
    try:
        stat = Path(f"/proc/{task or 0}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


@pytest.mark.parametrize("needs, nodes, line", [
    (Needs(16, GIB), NODES, r"train\.threads"), (Needs(1, GIB), [], "no node that takes tasks"),
    (Needs(4, 65 * GIB), NODES, "make the model or the batch smaller"),
    (Needs(1, 0, gpus=1), NODES[:1], "--device cpu"),
])  # fmt: skip
def test_what_no_node_has_is_refused(needs, nodes, line):
    with pytest.raises(ConfigError, match=f"--on slurm: .*{line}"):
        check_needs([Needs(1, 0), needs], nodes, "slurm")


def test_needs_are_memory_and_cores_and_a_cache_that_all_nodes_see_is_warm(tmp_path, monkeypatch):
    node = Node("node", cores=8, memory_bytes=16 * GIB, gpus=2)
    asked = [Needs(2, GIB), Needs(2, 8 * GIB), Needs(1, 0, gpus=1), Needs(16, GIB)]
    assert [node.n_tasks(each) for each in asked] == [4, 2, 2, 0]
    assert Node("node", 8, None).n_tasks(Needs(2, 100 * GIB)) == 4
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
    rows = [line.split("|") for line in lines.splitlines()]
    gpus = [Node("a1", 64, 515000 << 20, gpus=4), Node("a2", 64, 515000 << 20, gpus=3)]
    assert parse_nodes(rows, "gpu") == gpus
    assert parse_nodes(rows, "cpu") == [Node("b1", 32, None)]
    squeue = tmp_path / "squeue"
    squeue.write_text("""#!/bin/sh
echo '7|RUNNING|None|sublayer ffn=gelu, seed 0 0a1b2c3d
8|PENDING|PartitionTimeLimit|sublayer a|b, seed 1 1a1b2c3d
9|NODE_FAIL|None|sublayer ffn=gelu, seed 2 2a1b2c3d
10|RUNNING|None|of another'
""")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    cluster = object.__new__(SlurmCluster)
    cluster.name, cluster._partition = "slurm:small", "small"
    cluster._rows = [["small*", "node1", "1", "2000", "(null)", "idle"]]
    active = {"7": TaskState(True, "None"), "8": TaskState(False, "PartitionTimeLimit")}
    assert cluster.active(["7", "8", "9", "11"]) == active
    for name, job in (
        ("sublayer a_b, seed 1 1a1b2c3d", "8"),
        ("sublayer ffn=gelu, seed 2 2a1b2c3d", None),  # it has ended
        ("sublayer ffn=gelu, seed 0 ffffffff", None),
    ):
        assert cluster.find(name) == job
    squeue.write_text("#!/bin/sh\necho 'error: Unable to contact controller' >&2; exit 1\n")
    with pytest.raises(NoAnswer, match="--on slurm:small: error: Unable to contact controller"):
        cluster.active(["7"])
    squeue.unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(NoAnswer, match="squeue is not there, or does not answer"):
        cluster.find("sublayer 7")


@pytest.mark.parametrize("text, message", [
    ("dask", "is neither ray"), ("slurm:", "neither ray"), ("ray://10.0.0.1:10001", "a gateway"),
])  # fmt: skip
def test_places_that_name_no_cluster_are_refused(text, message):
    assert str(parse_place("slurm:gpu-long")) == "slurm:gpu-long"
    assert parse_place("ray:10.0.0.1:6379") == ClusterPlace("ray", "10.0.0.1:6379")
    with pytest.raises(ConfigError, match=message):
        parse_place(text)


@pytest.mark.parametrize("asked, line", [
    ({"jobs": 2}, "--jobs 2 contradicts --on ray: it is for one machine"),
    ({"match": "time"}, "--on ray contradicts match = time"),
    ({"overrides": ["train.minutes=1"]}, "--on ray contradicts train.minutes = 1"),
])  # fmt: skip
def test_what_contradicts_a_cluster_is_refused_before_it_is_looked_for(asked, line, tmp_path):
    given = {"overrides": ["train.steps=2"], "vary": [FFN], "out": tmp_path / "out", **asked}
    with pytest.raises(ConfigError, match=line):
        compare("gpt", **given, on="ray")
    assert not (tmp_path / "out").exists()


def test_every_node_answers_and_one_of_another_disk_or_other_versions_is_an_error(tmp_path):
    study, packages = tmp_path / "study", tmp_path / "packages"
    found = packages / "numpy-0.0.1.dist-info"
    for folder in (found, study):
        folder.mkdir(parents=True)
    (found / "METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 0.0.1\n")

    def elsewhere(command: list[str]) -> list[str]:
        *words, folder, token = command
        return [*words, f"{folder}-elsewhere", token]

    def older(command: list[str]) -> list[str]:
        *words, path = command[:5]
        return [*words, json.dumps([str(packages), *json.loads(path)]), *command[5:]]

    cluster = Processes(PLACE)
    assert len(check_nodes(cluster, study, lambda: False)) == 2
    assert all(re.fullmatch("sublayer probe [0-9a-f]{8}", each) for each in cluster.submitted)
    assert len(set(cluster.submitted)) == 2
    assert check_nodes(Processes(PLACE), study, lambda: True) == []
    for change, line in (
        (elsewhere, f"--on ray: one could not read and write in {study}"),
        (older, r"has numpy 0\.0\.1, and this process .*: install the"),
    ):
        with pytest.raises(ConfigError, match=line):
            check_nodes(Processes(PLACE, change), study, lambda: False)
    assert not list(study.iterdir())


def test_runs_of_one_cluster_go_on_elsewhere_only_once_they_have_ended(tmp_path):
    made = TasksFile.open(tmp_path, "slurm:small", None, "cpu")
    made.hosts = ["node1"]
    made.submit(RUN, Submitted(task="12", number=2, lost=1, reached="step-00000100"))
    again = TasksFile.open(tmp_path, "slurm:small", None, "cuda")
    assert (again, again.device) == (made, "cpu")  # as the study's runs were begun
    line = r"has 1 of its runs on slurm:small, arms/0-gelu/seed-0 first: join them with --on slurm"
    with pytest.raises(ConfigError, match=line):
        TasksFile.open(tmp_path, "ray", None, "cpu")
    files = made.files(RUN)
    files.folder.mkdir(parents=True)
    files.write_end(1, {"end": "died"})
    with pytest.raises(ConfigError, match=line):
        check_left(tmp_path)  # an earlier try
    files.write_end(2, {"end": "done"})
    check_left(tmp_path)
    assert TasksFile.open(tmp_path, "ray", None, "cpu").runs == {}
    (tmp_path / "cluster" / "tasks.json").write_text('{"on": 3}')
    with pytest.raises(ConfigError, match=r"tasks.json"):
        check_left(tmp_path)


def answering(answer) -> RayCluster:
    cluster = object.__new__(RayCluster)
    cluster.name, cluster._exchange = "ray:10.0.0.1:6379", lambda asked: answer
    return cluster


def test_nodes_have_the_names_of_their_machines_and_are_probed_by_their_ids():
    usual = {"Alive": True, "Resources": {"CPU": 4.0, "memory": 1e9}}
    hosts = {"a" * 56: "first", "b" * 56: "second", "c" * 56: "third"}
    nodes = [{**usual, "NodeID": one, "NodeManagerHostname": host} for one, host in hosts.items()]
    nodes[2]["Alive"] = False
    broker = object.__new__(_Broker)
    broker._ray = SimpleNamespace(nodes=lambda: nodes)
    cluster = answering({"answer": broker.nodes()})
    assert cluster.nodes()[0] == Node("first", 4, 10**9, identity="a" * 56)
    assert cluster.probed() == {"a" * 56: "first", "b" * 56: "second"}
    assert answering({"answer": ["sublayer one"]}).find("sublayer one") == "sublayer one"
    assert answering({"answer": []}).find("sublayer one") is None
    with pytest.raises(ClusterGone, match="the cluster is gone .its connection was lost.; what"):
        answering(None).active(["sublayer one"])


def test_runs_on_a_cluster_are_those_of_here(studies, settings, monkeypatch, capfd):
    cluster = Processes(PLACE)
    monkeypatch.setitem(CLUSTERS, "ray", lambda place: cluster)
    here, there = (copied(studies.failed(), name) for name in ("here", "there"))
    for gone in ("0-lr=1e-3/seed-1", "2-lr=1e6/seed-2"):
        shutil.rmtree(there / "arms" / gone)
    asked = {"vary": [FAILING], "seeds": 3, "out": there}
    known = json.loads((here / "results.json").read_text())
    found = compare("gpt", settings, **asked, on="ray")
    said = capfd.readouterr().err.splitlines()
    assert (values(found), found["failures"]) == (values(known), known["failures"])
    for name in ("model.safetensors", "test.json", "items.npz"):
        assert same_files(name, here, there), name
    assert sum("seed" in name for name in cluster.submitted) == 2
    assert any(line.startswith("9 runs on ray, 2 nodes with 2 cores: each takes") for line in said)
    assert any("Runs were made on a cluster (ray)" in note for note in found["notes"])
    assert "--on ray" in found["reproduction"]["command"]
    assert json.loads((there / "cluster/tasks.json").read_text())["runs"] == {}
    assert (there / "cluster/progress.txt").read_text() == "done: 9/9\n"
    assert compare("gpt", settings, **asked, on="ray")["notes"] == found["notes"]
    assert sum("seed" in name for name in cluster.submitted) == 2
    assert compare("gpt", settings, **asked)["notes"] == found["notes"]


class Scripted(Cluster):
    """Takes all tasks, which run until they are ended, unless a test has it raise something."""

    name = "slurm:small"
    patience_s = 0.0
    grace_s = 10.0

    def __init__(self) -> None:
        self.now = 0.0
        # Tasks that have not ended, by their ids, and the folder and number of each.
        self.there: dict[str, str] = {}
        self.names: dict[str, str] = {}
        self.states: dict[str, TaskState] = {}
        self.submitted: list[float] = []
        self.refuse = self.silent = self.script = lambda: None
        self.n_sleeps = 0

    def nodes(self) -> list[Node]:
        return [Node("one", 8, None)]

    def submit(self, name, words, needs, folder, node=""):
        self.submitted.append(self.now)
        if (error := self.refuse()) is not None:
            raise error
        self.names[name] = str(len(self.submitted))
        _, _, *where = words
        self.there[self.names[name]] = " ".join(where)
        return self.names[name]

    def find(self, name: str) -> str | None:
        found = self.names.get(name, "")
        return found if found in self.there else None

    def active(self, ids):
        if (error := self.silent()) is not None:
            raise error
        running = TaskState(is_running=True)
        return {each: self.states.get(each, running) for each in ids if each in self.there}

    def cancel(self, ids) -> None:
        for each in ids:
            self.there.pop(each, None)

    def probed(self):
        return {"": "a node"}

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.n_sleeps += 1
        assert self.n_sleeps < 5000, "it waits for ever"
        self.script()


class Runs:
    """Some runs of a study, of which the nodes say what a test has them say."""

    def __init__(self, folder: Path, n_runs: int) -> None:
        loaded = load_recipe("gpt", settings_of(write_text(folder / "river.txt")))
        data = prepare_data(loaded.recipe)
        self.study = folder / "study"
        self.study.mkdir()
        self.tasks = [
            Task(f"run {number}", self.study / f"run-{number}", loaded, data, loaded.recipe)
            for number in range(n_runs)
        ]
        self.cluster = Scripted()
        self.cluster.script = lambda: [act() for act in self._acts.get(self.cluster.now, [])]
        self._acts = {}
        self.tasks_file = TasksFile(self.study, self.cluster.name, "cpu")

    def make(self):
        clock = Clock(lambda: self.cluster.now, self.cluster.sleep)
        return OnCluster(len(self.tasks), self.cluster, self.tasks_file, "it", clock)(self.tasks)

    def at(self, now: float, *acts) -> None:
        self._acts.setdefault(now, []).extend(acts)

    def finish_at(self, now: float, *numbers: int) -> None:
        self.at(now, *(partial(self.finish, number) for number in numbers))

    def finish(self, number: int) -> None:
        """Have a node make a run whose training fails, which is a result and quickly made."""
        self.write_result(number)
        self.end(number, DONE)

    def write_result(self, number: int) -> None:
        self.tasks[number].path.mkdir(exist_ok=True)
        (self.tasks[number].path / FAILURE).write_text('{"message": "it diverged"}')

    def end(self, number: int, end) -> None:
        task, n_try = self.task(number)
        self.tasks_file.files(f"run-{number}").write_end(n_try, {**end, "host": "one"})
        self.cluster.cancel([task])

    def task(self, number: int) -> tuple[str, int]:
        """Return the id of a run's task, and the number of its try; 0 where it is not there."""
        for each, where in self.cluster.there.items():
            folder, _, n_try = where.rpartition(" ")
            if folder.endswith(f"run-{number}"):
                return each, int(n_try)
        return "", 0


def test_a_limit_is_waited_for_with_pauses_that_grow_unless_no_run_is_taken(runs, capfd):
    cluster = runs.cluster
    cluster.refuse = lambda: Refused(LIMIT)
    with pytest.raises(ConfigError, match="QOSMaxSubmitJobPerUserLimit"):
        runs.make()
    assert cluster.submitted == [0]
    cluster.now, cluster.submitted = 0.0, []
    cluster.refuse = lambda: Refused(LIMIT) if cluster.there else None
    runs.finish_at(100, 0)
    runs.finish_at(200, 1)
    assert len(runs.make()) == 2
    assert cluster.submitted == [0, 0, 10, 30, 70, 100]
    assert capfd.readouterr().err.count(f"was not taken ({LIMIT}): it is tried again") == 1
    assert kept(runs) == {}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def runs(tmp_path):
    return Runs(tmp_path, 2)


@pytest.fixture
def alone(tmp_path):
    return Runs(tmp_path, 1)


def kept(runs: Runs):
    return json.loads((runs.study / "cluster" / "tasks.json").read_text())["runs"]


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


def test_files_that_cannot_be_read_or_written_for_a_moment_stop_nothing(runs):
    class Full(TasksFile):
        def write(self) -> None:
            if runs.cluster.now == 1:
                raise OSError(errno.ESTALE, "Stale file handle", str(self.folder))
            super().write()

    runs.tasks_file = Full(runs.study, runs.cluster.name, "cpu")
    folder = runs.tasks_file.files("run-0").folder
    # A folder under a file's name is refused by open, as a stale handle is.
    blocked = [folder / "progress.json", folder / "end-1.json"]
    runs.at(0.5, *(each.mkdir for each in blocked))
    runs.at(1, lambda: runs.end(1, {"end": "died", "text": "its process was ended"}))
    runs.finish_at(60, 1)
    runs.at(80, blocked[1].rmdir)
    runs.finish_at(80, 0)
    assert len(runs.make()) == 2
    assert (runs.cluster.now, len(runs.cluster.submitted), kept(runs)) == (80, 3, {})


def test_a_result_that_is_not_seen_yet_holds_nobody_up(tmp_path, capfd):
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


def test_a_run_whose_folder_is_held_is_never_given_up(alone):
    def script() -> None:
        if alone.task(0)[0] and len(alone.cluster.submitted) > 5:
            alone.finish(0)
        elif alone.task(0)[0]:
            alone.end(0, {"end": FOLDER_HELD, "text": "it is held"})

    alone.cluster.script = script
    assert (len(alone.make()), len(alone.cluster.submitted)) == (1, 6)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """Files of a run whose training failed, so that it is quickly made again."""
    monkeypatch.setattr(node.os, "dup2", lambda one, other: None)  # the output is the tests'
    path = tmp_path / "run"
    path.mkdir()
    (path / FAILURE).write_text('{"message": "it diverged"}')
    recipe = load_recipe("gpt", settings_of(write_text(tmp_path / "river.txt"))).recipe
    made = RunFiles(tmp_path / "files")
    made.write_job(Job("one", path, recipe, recipe, {}, "cpu"))
    return made


def test_a_cluster_that_is_gone_stops_no_run(runs):
    cluster = runs.cluster
    cluster.refuse = lambda: ClusterGone("it is gone") if len(cluster.submitted) > 1 else None
    with pytest.raises(TrainingError, match="it is gone"):
        runs.make()
    assert not runs.tasks_file.stop_file.exists()
    first, second = (kept(runs)[f"run-{number}"] for number in range(2))
    assert (first["task"], second["task"]) == ("1", "")
    assert second["name"].startswith("sublayer run 1 ")


def end_of(tmp_path: Path, files: RunFiles, stopping: threading.Event) -> tuple[str, str]:
    assert node._OneRun(tmp_path, files, 1, stopping).make() == 0
    return files.read_end(1).end, files.read_end(1).text


def test_a_folder_that_is_held_is_waited_for(tmp_path, files, monkeypatch):
    stopping, write = threading.Event(), RunFiles.write_progress

    def write_progress(self, progress: Progress) -> None:
        write(self, progress)
        if "where another process works" in progress.stage:
            stopping.set()

    monkeypatch.setattr(RunFiles, "write_progress", write_progress)
    with held(tmp_path / "run"):
        assert end_of(tmp_path, files, stopping)[0] == FOLDER_HELD
        with pytest.raises(FolderHeld) as caught, held(tmp_path / "run"):
            pass
    message = end_message(caught.value)
    assert message["end"] == FOLDER_HELD and isinstance(read_end(message, "one"), FolderHeld)


def test_why_a_run_was_not_begun_is_kept_where_that_can_be(tmp_path, files):
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
    there: list[str] = []
    runs.at(1, lambda: runs.tasks_file.files("run-0").write_progress(begun))
    runs.at(5, lambda: runs.tasks_file.stop_file.touch())
    runs.at(9, lambda: there.extend(runs.cluster.there), lambda: runs.end(0, STOPPED))
    with pytest.raises(Interrupted, match=r"stopped by .*: 0 of 2 runs done"):
        runs.make()
    assert there == ["1"] and kept(runs) == {}


def test_a_run_whose_node_is_lost_is_tried_again_and_given_up_in_the_end(runs, capfd):
    def script() -> None:
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
