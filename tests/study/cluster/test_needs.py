"""What runs take of nodes, and which nodes have it."""

from pathlib import Path

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.data.shards.workers import MOST_PROCESSES, PROCESS_BYTES
from sublayer.errors import ConfigError
from sublayer.runs.session import prepare_data
from sublayer.study.budget.resources import PROGRAM_BYTES
from sublayer.study.cluster.cluster import Needs, Node
from sublayer.study.cluster.cold_cache import preparation_bytes
from sublayer.study.cluster.needs import check_needs, describe_needs, needs_of, usual_threads
from sublayer.study.cluster.schedulers.slurm_cluster import parse_nodes
from tests.study.studies import TINY, write_text

GIB = 1 << 30
NODES = [Node("small", 2, 4 * GIB), Node("large", 8, 64 * GIB, gpus=2)]


def test_a_node_holds_as_many_tasks_as_what_it_has_least_of():
    node = Node("node", cores=8, memory_bytes=16 * GIB, gpus=2)
    assert node.n_tasks(Needs(2, GIB)) == 4
    assert node.n_tasks(Needs(2, 8 * GIB)) == 2
    assert node.n_tasks(Needs(1, 0, gpus=1)) == 2
    assert node.n_tasks(Needs(16, GIB)) == 0
    assert Node("node", 8, None).n_tasks(Needs(2, 100 * GIB)) == 4


@pytest.mark.parametrize(
    ("needs", "nodes", "line"),
    [
        (Needs(16, GIB), NODES, "takes 16 cores and 1 GiB of memory, .*: give fewer train.threads"),
        (Needs(4, 65 * GIB), NODES, "8 cores, 64 GiB .* GPUs: make the model or the batch smaller"),
        (Needs(1, 0, gpus=1), NODES[:1], "1 core and 1 GPU, .* and no GPU: give --device cpu"),
        (Needs(1, GIB), [], "it has no node that takes tasks"),
    ],
)
def test_what_no_node_has_is_refused(needs, nodes, line):
    with pytest.raises(ConfigError, match=f"--on slurm: .*{line}"):
        check_needs([Needs(1, 0), needs], nodes, "slurm")


def test_what_runs_take_is_told_with_how_many_go_at_a_time():
    needs = [Needs(1, 3 * GIB), Needs(2, GIB)]
    most = check_needs(needs, NODES, "ray")
    assert most == Needs(2, 3 * GIB)
    told = describe_needs(most, NODES, 30, "ray")
    assert told.startswith("30 runs on ray, 2 nodes with 10 cores: each takes 2 cores and 3 GiB")
    assert "; 5 at a time" in told
    assert "; 3 at a time" in describe_needs(most, NODES, 3, "ray")


def test_runs_share_the_cores_of_a_cluster_and_fit_its_smallest_node():
    assert usual_threads(NODES, n_runs=5) == 2
    assert usual_threads(NODES, n_runs=1) == 2
    assert usual_threads(NODES, n_runs=40) == 1
    assert usual_threads([], n_runs=1) == 1


def test_a_larger_model_takes_more_memory_and_a_gpu_is_asked_for_by_itself():
    def needs(*settings: str, device: str = "cpu") -> Needs:
        recipe = load_recipe("gpt", [*settings, "train.threads=3"]).recipe
        return needs_of(recipe, 256, device)

    small, large = needs("model.n_layers=2"), needs("model.n_layers=8")
    assert small.cores == 3
    assert PROGRAM_BYTES < small.memory_bytes < large.memory_bytes
    assert needs(device="cuda") == Needs(3, 0, gpus=1)


def test_a_text_that_a_node_may_have_to_prepare_takes_memory_too():
    recipe = load_recipe("gpt", ["model.n_layers=2", "train.threads=3"]).recipe
    needs, preparing = (needs_of(recipe, 256, "cpu", preparing_bytes=each) for each in (0, GIB))
    assert preparing.memory_bytes == int(1.25 * (PROGRAM_BYTES + GIB)) > needs.memory_bytes
    assert needs_of(recipe, 256, "cuda", preparing_bytes=GIB).memory_bytes == 0


def test_a_cache_that_all_nodes_see_is_taken_to_be_warm(tmp_path, monkeypatch):
    (tmp_path / "cache").mkdir()
    threads = ["train.threads=3"]
    recipe = load_recipe("gpt", threads).recipe
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    assert preparation_bytes(recipe, None, tmp_path) == 0
    # On another file system, and where the nodes are not told of it.
    assert preparation_bytes(recipe, None, Path("/proc")) == 3 * PROCESS_BYTES
    monkeypatch.delenv("SUBLAYER_CACHE")
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".cache" / "sublayer").mkdir(parents=True)
    assert preparation_bytes(recipe, None, tmp_path) == 3 * PROCESS_BYTES
    # More processes than encode a text anywhere, tasks, and a text that one process encodes.
    many = load_recipe("gpt", ["train.threads=64"]).recipe
    assert preparation_bytes(many, None, tmp_path) == MOST_PROCESSES * PROCESS_BYTES
    text = write_text(tmp_path / "river.txt")
    small = load_recipe("gpt", [*TINY, *threads, f"data.path={text}"]).recipe
    assert preparation_bytes(small, prepare_data(small), tmp_path) == PROCESS_BYTES


def test_the_nodes_of_a_partition_are_read_as_sinfo_prints_them():
    lines = [
        "gpu|a1|64|515000|gpu:a100:4(S:0-1),shard:8|mix",
        "gpu|a2|64|515000|gpu:2,gpu:h100:1|idle~",
        "gpu|a3|64|515000|gpu:4|down*",
        "gpu|a4|64|515000|gpu:4|drained",
        "cpu*|b1|32|1|(null)|alloc",
    ]
    rows = [line.split("|") for line in lines]
    assert parse_nodes(rows, "gpu") == [
        Node("a1", 64, 515000 << 20, gpus=4),
        Node("a2", 64, 515000 << 20, gpus=3),
    ]
    assert parse_nodes(rows, "cpu") == [Node("b1", 32, None)]
