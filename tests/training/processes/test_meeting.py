"""The name that the processes of a start agree on."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import torch.distributed as dist

from sublayer.training.processes.meeting import agree_on_start

LONG, SHORT = timedelta(seconds=60), timedelta(seconds=0.2)


def start(store, size):
    with ThreadPoolExecutor(size) as pool:
        names = list(pool.map(lambda rank: agree_on_start(store, rank, size, LONG), range(size)))
    assert len(set(names)) == 1
    return names[0]


def test_processes_agree_and_each_start_has_a_name_of_its_own():
    store = dist.HashStore()
    names = {start(store, 3) for _ in range(5)}
    assert len(names) == 5


def test_what_a_start_that_failed_has_left_is_not_taken_for_an_answer():
    store = dist.HashStore()
    with pytest.raises(RuntimeError, match="Timed out waiting for the other processes to start"):
        agree_on_start(store, 1, 2, SHORT)
    first = start(store, 2)
    with pytest.raises(RuntimeError, match="Timed out"):
        agree_on_start(store, 1, 2, SHORT)
    # The first process finds what the dead one asked, and tells it: the living one asks again.
    with ThreadPoolExecutor(2) as pool:
        main = pool.submit(agree_on_start, store, 0, 2, LONG)
        other = pool.submit(agree_on_start, store, 1, 2, LONG)
        assert main.result() == other.result() != first


def test_one_that_does_not_come_is_not_waited_for_for_ever():
    with pytest.raises(RuntimeError, match="Timed out waiting"):
        agree_on_start(dist.HashStore(), 0, 3, SHORT)
