"""Random orders: those of items sorted by their seeds, however many are sorted at once."""

import numpy as np
import pytest

from sublayer.data import random_order as module
from sublayer.data.counter_rng import Purpose, seeds
from sublayer.data.random_order import random_order


@pytest.mark.parametrize("most", [1, 7, 100, 999, 1000])
def test_an_order_is_that_of_the_seeds_whatever_is_in_memory(most, monkeypatch, tmp_path):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "_MOST", most)
    monkeypatch.setattr(module, "_BLOCK", 64)
    expected = np.argsort(seeds(3, Purpose.WINDOW_ORDER, 2, 1000), kind="stable")
    found = random_order(3, Purpose.WINDOW_ORDER, 2, 1000)
    assert found.dtype == np.int64
    assert found.tolist() == expected.tolist()
    # Mapped, where they are too many, from a file without a name.
    assert isinstance(found.base, np.memmap) == (most < 1000)
    assert not list(tmp_path.iterdir())


def test_no_items_have_an_order():
    assert random_order(3, Purpose.WINDOW_ORDER, 0, 0).tolist() == []
