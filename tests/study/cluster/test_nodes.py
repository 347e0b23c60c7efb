"""Clusters: the needs of runs, nodes, tasks, the commands of Ray and Slurm, and the same bits."""

import json
import os
import re
import shutil
import signal
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from sublayer.api.training import compare
from sublayer.config.layering.layers import load_recipe
from sublayer.data.shards.workers import MOST_PROCESSES, PROCESS_BYTES
from sublayer.errors import ConfigError
from sublayer.runs.session import prepare_data
from sublayer.study.budget.resources import PROGRAM_BYTES
from sublayer.study.cluster.cluster import Cluster, ClusterGone, Needs, NoAnswer, Node, TaskState
from sublayer.study.cluster.cold_cache import preparation_bytes
from sublayer.study.cluster.computing import CLUSTERS
from sublayer.study.cluster.needs import check_needs, needs_of, usual_threads
from sublayer.study.cluster.node import FREE
from sublayer.study.cluster.place import ClusterPlace, parse_place
from sublayer.study.cluster.probe import check_nodes
from sublayer.study.cluster.schedulers.ray_broker import _Broker
from sublayer.study.cluster.schedulers.ray_cluster import RayCluster
from sublayer.study.cluster.schedulers.slurm_cluster import SlurmCluster, parse_nodes
from sublayer.study.cluster.tasks_file import Submitted, TasksFile, check_left
from sublayer.system.python_process import python_command
from tests.study.studies import FAILING, FFN, copied, read_results, same_files, values


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


GIB = 1 << 30
NODES = [Node("small", 2, 4 * GIB), Node("large", 8, 64 * GIB, gpus=2)]


@pytest.mark.parametrize("needs, nodes, line", [
    (Needs(16, GIB), NODES, r"train\.threads"), (Needs(1, GIB), [], "no node that takes tasks"),
    (Needs(4, 65 * GIB), NODES, "make the model or the batch smaller"),
    (Needs(1, 0, gpus=1), NODES[:1], "--device cpu"),
])  # fmt: skip
def test_what_no_node_has_is_refused(needs, nodes, line):
    with pytest.raises(ConfigError, match=f"--on slurm: .*{line}"):
        check_needs([Needs(1, 0), needs], nodes, "slurm")


def test_nodes_hold_tasks_by_what_they_have_least_of_and_runs_share_their_cores():
    node = Node("node", cores=8, memory_bytes=16 * GIB, gpus=2)
    asked = [Needs(2, GIB), Needs(2, 8 * GIB), Needs(1, 0, gpus=1), Needs(16, GIB)]
    assert [node.n_tasks(each) for each in asked] == [4, 2, 2, 0]
    assert Node("node", 8, None).n_tasks(Needs(2, 100 * GIB)) == 4
    assert [usual_threads(NODES, n_runs=n) for n in (5, 1, 40)] == [2, 2, 1]
    assert usual_threads([], n_runs=1) == 1
    assert check_needs([Needs(1, 3 * GIB), Needs(2, GIB)], NODES, "ray") == Needs(2, 3 * GIB)


def test_needs_are_the_memory_of_the_model_and_of_a_text_to_prepare_or_a_gpu():
    def needs(n_layers: int, device: str = "cpu", **preparing: int) -> Needs:
        recipe = load_recipe("gpt", [f"model.n_layers={n_layers}", "train.threads=3"]).recipe
        return needs_of(recipe, 256, device, **preparing)

    small, large, preparing = needs(2), needs(8), needs(2, preparing_bytes=GIB)
    assert small.cores == 3
    assert PROGRAM_BYTES < small.memory_bytes < large.memory_bytes
    assert preparing.memory_bytes == int(1.25 * (PROGRAM_BYTES + GIB)) > small.memory_bytes
    assert needs(2, "cuda", preparing_bytes=GIB) == Needs(3, 0, gpus=1)


def test_a_cache_that_all_nodes_see_is_taken_to_be_warm(tmp_path, monkeypatch):
    (tmp_path / "cache").mkdir()
    recipe, many = (load_recipe("gpt", [f"train.threads={n}"]).recipe for n in (3, 64))
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    assert preparation_bytes(recipe, None, tmp_path) == 0
    # On another file system, and where the nodes are not told of it.
    assert preparation_bytes(recipe, None, Path("/proc")) == 3 * PROCESS_BYTES
    monkeypatch.delenv("SUBLAYER_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".cache" / "sublayer").mkdir(parents=True)
    assert preparation_bytes(recipe, None, tmp_path) == 3 * PROCESS_BYTES
    # More processes than encode a text anywhere, and a text that one process encodes.
    assert preparation_bytes(many, None, tmp_path) == MOST_PROCESSES * PROCESS_BYTES
    (tmp_path / "text.txt").write_text("the reed by the river bends " * 500)
    small = load_recipe("gpt", [f"data.path={tmp_path / 'text.txt'}", "train.threads=3"]).recipe
    assert preparation_bytes(small, prepare_data(small), tmp_path) == PROCESS_BYTES


def test_the_nodes_of_a_partition_are_read_as_sinfo_prints_them():
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


@pytest.mark.parametrize(
    ("text", "message"),
    [("dask", "is neither ray"), ("slurm:", "neither ray"), ("ray://10.0.0.1:10001", "a gateway")],
)
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


PLACE = ClusterPlace("ray")


RUN = "arms/0-gelu/seed-0"


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


class Answering(RayCluster):
    """Ray as its broker answers."""

    def __init__(self, answer) -> None:
        self.name = "ray:10.0.0.1:6379"
        self._exchange = lambda asked: answer


def test_nodes_have_the_names_of_their_machines_and_are_probed_by_their_ids():
    usual = {"Alive": True, "Resources": {"CPU": 4.0, "memory": 1e9}}
    hosts = {"a" * 56: "first", "b" * 56: "second", "c" * 56: "third"}
    nodes = [{**usual, "NodeID": one, "NodeManagerHostname": host} for one, host in hosts.items()]
    nodes[2]["Alive"] = False
    broker = object.__new__(_Broker)
    broker._ray = SimpleNamespace(nodes=lambda: nodes)
    cluster = Answering({"answer": broker.nodes()})
    assert cluster.nodes()[0] == Node("first", 4, 10**9, identity="a" * 56)
    assert cluster.probed() == {"a" * 56: "first", "b" * 56: "second"}
    assert Answering({"answer": ["sublayer one"]}).find("sublayer one") == "sublayer one"
    assert Answering({"answer": []}).find("sublayer one") is None
    with pytest.raises(ClusterGone, match="the cluster is gone .its connection was lost.; what"):
        Answering(None).active(["sublayer one"])


JOBS = """
7|RUNNING|None|sublayer ffn=gelu, seed 0 0a1b2c3d
8|PENDING|PartitionTimeLimit|sublayer a|b, seed 1 1a1b2c3d
9|NODE_FAIL|None|sublayer ffn=gelu, seed 2 2a1b2c3d
10|RUNNING|None|of somebody else's
"""


class Asked(SlurmCluster):
    """Slurm as its commands in a folder have it."""

    def __init__(self) -> None:
        self.name = "slurm:small"
        self._partition = "small"
        self._rows = [["small*", "node1", "1", "2000", "(null)", "idle"]]


@pytest.fixture
def squeue(tmp_path, monkeypatch):
    """Write a command of Slurm, which is there alone."""
    path = tmp_path / "squeue"
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def write(body: str) -> Path:
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return write


def test_jobs_that_have_not_ended_are_found_by_the_last_word_of_their_names(squeue):
    squeue(f"cat << 'END'\n{JOBS.strip()}\nEND")
    active = {"7": TaskState(True, "None"), "8": TaskState(False, "PartitionTimeLimit")}
    assert Asked().active(["7", "8", "9", "11"]) == active
    for name, job in (
        ("sublayer a_b, seed 1 1a1b2c3d", "8"),
        ("sublayer ffn=gelu, seed 2 2a1b2c3d", None),  # it has ended
        ("sublayer ffn=gelu, seed 0 ffffffff", None),
    ):
        assert Asked().find(name) == job


def test_what_squeue_says_where_it_has_no_answer_is_passed_on(squeue, monkeypatch):
    path = squeue("echo 'error: Unable to contact controller' >&2; exit 1")
    with pytest.raises(NoAnswer, match="--on slurm:small: error: Unable to contact controller"):
        Asked().active(["7"])
    path.unlink()
    monkeypatch.setenv("PATH", str(path.parent))
    with pytest.raises(NoAnswer, match="squeue is not there, or does not answer"):
        Asked().find("sublayer 7")


def test_runs_on_a_cluster_are_those_of_here_and_divergence_is_tried_once(
    studies, settings, monkeypatch, capfd
):
    cluster = Processes(PLACE)
    monkeypatch.setitem(CLUSTERS, "ray", lambda place: cluster)
    here, there = (copied(studies.failed(), name) for name in ("here", "there"))
    for gone in ("0-lr=1e-3/seed-1", "2-lr=1e6/seed-2"):
        shutil.rmtree(there / "arms" / gone)
    asked = {"vary": [FAILING], "seeds": 3, "out": there}
    found, known = compare("gpt", settings, **asked, on="ray"), read_results(here)
    said = capfd.readouterr().err.splitlines()
    assert (values(found), found["failures"]) == (values(known), known["failures"])
    for name in ("model.safetensors", "test.json", "items.safetensors"):
        assert same_files(name, here, there), name
    assert sum("seed" in name for name in cluster.submitted) == 2
    assert any(line.startswith("9 runs on ray, 2 nodes with 2 cores: each takes") for line in said)
    assert any("Runs were made on a cluster (ray)" in note for note in found["notes"])
    assert "--on ray" in found["reproduction"]["command"]
    assert json.loads((there / "cluster/tasks.json").read_text())["runs"] == {}
    assert (there / "cluster/progress.txt").read_text() == "done: 9/9\n"
    # The same command makes nothing again, on a cluster or here.
    assert compare("gpt", settings, **asked, on="ray")["notes"] == found["notes"]
    assert sum("seed" in name for name in cluster.submitted) == 2
    assert compare("gpt", settings, **asked)["notes"] == found["notes"]
