"""How many processes encode a text."""

from sublayer.data.shards import workers
from sublayer.data.shards.workers import MOST_PROCESSES, default_processes, limited_to


def test_processes_are_as_many_as_cores_and_limits_allow(monkeypatch):
    monkeypatch.setattr(workers, "cores", lambda: 64)
    assert default_processes() == MOST_PROCESSES
    with limited_to(3):
        assert default_processes() == 3
    with limited_to(64):
        assert default_processes() == MOST_PROCESSES
    with limited_to(None):
        assert default_processes() == MOST_PROCESSES
    monkeypatch.setattr(workers, "cores", lambda: 2)
    with limited_to(3):
        assert default_processes() == 2
