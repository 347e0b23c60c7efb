from pathlib import Path

import pytest
import torch

from sublayer.runs.run import train_run
from sublayer.training.log import SilentProgress

ROOT = Path(__file__).parents[2]


@pytest.fixture
def double():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.fixture(autouse=True, scope="session")
def _cache(own_cache):
    """All tests here have a cache that is not the user's."""


@pytest.fixture
def tiny(workshop):
    return lambda settings=None: workshop.recipe(settings or {})


@pytest.fixture
def run(tmp_path, tiny):
    def train(name, settings=None, *, progress=None, resume=False):
        shown = progress or SilentProgress()
        return train_run(tiny(settings), tmp_path / name, progress=shown, resume=resume)

    return train
