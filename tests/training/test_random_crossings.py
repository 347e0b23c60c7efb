"""Whatever is trained, several processes train it alike: in parts, and to the bit."""

import json
import subprocess

import pytest

from tests.at_length import EXPLORES
from tests.stories import write_stories
from tests.task_files import write_copa, write_rte, write_squad, write_sst2, write_stsb
from tests.torchrun import in_processes
from tests.training.conftest import ROOT

N_TRIED = 20 if EXPLORES else 4


@pytest.mark.explore
@pytest.mark.parametrize("n_processes", [2, 4])
def test_models_drawn_at_random_are_trained_alike_in_parts_and_exactly(
    tmp_path, text_path, pairs_path, n_processes
):
    (tmp_path / "words.txt").symlink_to(text_path)
    (tmp_path / "pairs.tsv").symlink_to(pairs_path)
    (tmp_path / "stories").mkdir()
    write_stories(tmp_path / "stories")
    (tmp_path / "tasks").mkdir()
    write_squad(write_rte(write_copa(write_stsb(write_sst2(tmp_path / "tasks")))))
    module = "tests.training.random_crossings"
    command = in_processes(n_processes, module, tmp_path, 100 * n_processes, N_TRIED)
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr[-6000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found == {"tried": N_TRIED, "wrong": 0}, done.stdout
