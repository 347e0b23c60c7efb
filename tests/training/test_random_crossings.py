"""Whatever is trained, several processes train it alike: in parts, and to the bit."""

import json
import subprocess

import pytest

from tests.breadth import TRIES_ALL
from tests.torchrun import in_processes
from tests.training.conftest import ROOT

N_TRIED = 20 if TRIES_ALL else 4


@pytest.mark.all
@pytest.mark.parametrize("n_processes", [2, 4])
def test_models_drawn_at_random_are_trained_alike_in_parts_and_exactly(
    text_path, stories_path, pairs_path, tasks_path, n_processes
):
    texts = (text_path, stories_path, pairs_path, tasks_path)
    drawn = (100 * n_processes, N_TRIED)
    command = in_processes(n_processes, "tests.training.random_crossings", *texts, *drawn)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-6000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"tried": N_TRIED, "wrong": 0}, done.stdout
