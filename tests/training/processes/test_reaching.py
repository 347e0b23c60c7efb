"""The place where processes meet, taken by another program or not there."""

import socket
from datetime import timedelta

import pytest

from sublayer.errors import ConfigError, TrainingError
from sublayer.training.processes import joining
from sublayer.training.processes.reaching import reach


@pytest.fixture
def launch(monkeypatch):
    """Return a function that makes this process one of two that meet at an address."""
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)

    def set_up(rank, address, port):
        environment = {"WORLD_SIZE": 2, "RANK": rank, "MASTER_ADDR": address, "MASTER_PORT": port}
        for name, value in environment.items():
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


def test_a_port_of_another_program_is_named(launch, mute):
    launch(0, "127.0.0.1", mute)
    with pytest.raises(ConfigError, match=f"MASTER_PORT = {mute} is in use .* another"):
        reach(timedelta(seconds=60))


@pytest.mark.parametrize("address", ["127.0.0.1", "no-such-host.invalid"])
def test_an_address_where_nothing_answers_is_named(launch, closed, address):
    launch(1, address, closed)
    with pytest.raises(TrainingError, match=f"at MASTER_ADDR = {address}, MASTER_PORT = {closed}"):
        reach(timedelta(0))


def test_another_program_is_not_asked_who_says_what_is_wrong(launch, mute, monkeypatch):
    launch(0, "127.0.0.1", mute)
    monkeypatch.setattr(joining, "_stores", [])
    assert joining.says_first("that it hangs for ever")
