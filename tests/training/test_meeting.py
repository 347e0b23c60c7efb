"""How processes meet, are named when they are lost, and add what they have in one fixed tree."""

import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from safetensors.torch import save_file

from sublayer.errors import CheckpointError, ConfigError, SaidElsewhere, TrainingError
from sublayer.files.tensor_parts import StoredTensors
from sublayer.training.processes import joining
from sublayer.training.processes.meeting import agree_on_start
from sublayer.training.processes.part_files import read_parts
from sublayer.training.processes.reaching import reach
from sublayer.training.processes.tree import Node, TreeSum, part_range, subtrees

LONG, SHORT = timedelta(seconds=60), timedelta(seconds=0.2)


def start(store, size):
    with ThreadPoolExecutor(size) as pool:
        names = list(pool.map(lambda rank: agree_on_start(store, rank, size, LONG), range(size)))
    assert len(set(names)) == 1
    return names[0]


def test_processes_agree_on_a_new_name_at_every_start():
    store = dist.HashStore()
    assert len({start(store, 3) for _ in range(5)}) == 5


def test_what_a_start_that_failed_has_left_is_not_taken_for_an_answer():
    store = dist.HashStore()
    for rank in (0, 1):
        with pytest.raises(RuntimeError, match="Timed out waiting for the other processes"):
            agree_on_start(store, rank, 2, SHORT)
    first = start(store, 2)
    with pytest.raises(RuntimeError, match="Timed out"):
        agree_on_start(store, 1, 2, SHORT)
    # The first process finds what the dead one asked, and tells it: the living one asks again.
    with ThreadPoolExecutor(2) as pool:
        main = pool.submit(agree_on_start, store, 0, 2, LONG)
        other = pool.submit(agree_on_start, store, 1, 2, LONG)
        assert main.result() == other.result() != first


@pytest.fixture
def launch(monkeypatch):
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)

    def set_up(rank, address, port):
        values = {"WORLD_SIZE": 2, "RANK": rank, "MASTER_ADDR": address, "MASTER_PORT": port}
        for name, value in values.items():
            monkeypatch.setenv(name, str(value))

    return set_up


@pytest.fixture
def mute():
    """Return the port of another program, which takes connections and never says a word."""
    with socket.socket() as program:
        program.bind(("", 0))
        program.listen()
        yield program.getsockname()[1]


@pytest.fixture
def closed():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


def test_a_port_of_another_program_is_named_and_not_asked(launch, mute, monkeypatch):
    launch(0, "127.0.0.1", mute)
    with pytest.raises(ConfigError, match=f"MASTER_PORT = {mute} is in use"):
        reach(timedelta(seconds=60))
    monkeypatch.setattr(joining, "_stores", [])
    assert joining.says_first("that it hangs for ever")


@pytest.mark.parametrize("address", ["127.0.0.1", "no-such-host.invalid"])
def test_an_address_where_nothing_answers_is_named(launch, closed, address):
    launch(1, address, closed)
    with pytest.raises(TrainingError, match=f"MASTER_ADDR = {address}, MASTER_PORT = {closed}"):
        reach(timedelta(0))


@pytest.mark.parametrize("error, is_first, said, kind", [
    (RuntimeError("Connection closed by peer [1]"), True, "was lost", TrainingError),
    (RuntimeError("Application timeout caused pair closure"), True, "hangs", TrainingError),
    (dist.DistNetworkError("gone"), False, "was lost", SaidElsewhere),
    (RuntimeError("a bug"), True, "a bug", RuntimeError),
    (ValueError("Broken pipe"), True, "Broken pipe", ValueError),
])  # fmt: skip
def test_a_lost_process_is_named_once(monkeypatch, error, is_first, said, kind):
    monkeypatch.setattr(joining, "n_launched", lambda: 2)
    monkeypatch.setattr(joining, "says_first", lambda what: is_first)
    monkeypatch.setattr(joining, "ignore_from_now_on", lambda: None)
    with pytest.raises(kind, match=said) as caught, joining.naming_lost("step 4 is kept"):
        raise error
    assert type(caught.value) is kind
    assert ("step 4 is kept" in str(caught.value)) == (caught.value is not error)


PART = "shard-00001-model-00001-of-00001.safetensors"


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_folders_of_two_checkpoints_and_damaged_parts_are_refused(tmp_path):
    into, whole = {"x": torch.zeros(2)}, tmp_path / "model.safetensors"
    (tmp_path / PART).write_bytes(b"damaged")
    with pytest.raises(CheckpointError, match="cannot be read"):
        read_parts(into, StoredTensors(whole, tmp_path))
    save_file({"x": torch.ones(2)}, whole)
    with pytest.raises(CheckpointError, match=f"has {PART} beside model.safetensors"):
        read_parts(into, StoredTensors(whole, tmp_path))
    whole.rename(tmp_path / "copy.safetensors")
    with pytest.raises(CheckpointError, match=f"has copy.safetensors beside {PART}"):
        read_parts(into, StoredTensors(whole, tmp_path))
    assert torch.equal(into["x"], torch.zeros(2))


def written(left, right):
    return f"({left} {right})"


TREES = {1: "0", 5: "(((0 1) (2 3)) 4)", 7: "(((0 1) (2 3)) ((4 5) 6))"}


@pytest.mark.parametrize("n_parts", TREES)
def test_any_number_of_processes_adds_the_same_tree(n_parts):
    for size in range(1, n_parts + 1):
        whole, taken = TreeSum(written), []
        for rank in range(size):
            parts = part_range(rank, size, n_parts)
            taken += parts
            part_sum = TreeSum(written)
            for part in parts:
                part_sum.push(Node(0, part), str(part))
            assert [node for node, _ in part_sum.nodes] == subtrees(parts)
            for node, value in part_sum.nodes:
                whole.push(node, value)
        assert taken == list(range(n_parts))
        assert whole.total() == TREES[n_parts]
