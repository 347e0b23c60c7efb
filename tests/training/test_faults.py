"""Processes that are lost, hang, are warned or were started differently."""

import signal
import subprocess
import sys

import pytest
from safetensors.torch import load_file

from sublayer.errors import Preempted
from sublayer.files.checkpoints import saved_steps
from tests.made import TINY
from tests.stopping import stopped_at
from tests.training.conftest import ROOT
from tests.training.test_parallel import figures
from tests.training.test_resume import SignalAt

SETTINGS = {**TINY, "train.steps": 60, "train.hang_minutes": 0.5}


def words(folder, text_path, **changed):
    settings = {**SETTINGS, "data.path": str(text_path), **changed}
    fields = [f"{key}={value}" for key, value in settings.items()]
    return ["train", "gpt", *fields, "--out", str(folder), "--resume"]


def launched(n_processes, module, *arguments):
    launcher = ["torch.distributed.run", "--standalone", "--max-restarts", "3"]
    return [
        *(sys.executable, "-m", *launcher, "--nproc-per-node", str(n_processes)),
        *("-m", module, *arguments),
    ]


def own_lines(errors):
    """What we say of a failure, not what torchrun logs of it."""
    return [line for line in errors.splitlines() if line.startswith("error:")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shard", "number", "said"),
    [
        ("full", signal.SIGKILL, "was lost"),
        ("none", signal.SIGSTOP, "hangs"),
        pytest.param("none", signal.SIGKILL, "was lost", marks=pytest.mark.explore),
        pytest.param("full", signal.SIGSTOP, "hangs", marks=pytest.mark.explore),
    ],
)
def test_a_process_that_is_lost_costs_one_line_and_what_came_after_the_last_checkpoint(
    tmp_path, text_path, shard, number, said
):
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    settings = {"train.shard": shard}
    subprocess.run(
        launched(2, "sublayer", *words(unbroken, text_path, **settings)),
        check=True,
        capture_output=True,
        cwd=ROOT,
    )
    # The second process sends itself the signal after step 31, in its first start alone.
    again = launched(
        2, "tests.training.lost_process", number.value, *words(broken, text_path, **settings)
    )
    result = subprocess.run(list(map(str, again)), capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    told = f"error: another process {said}: what {broken} has as a checkpoint is kept"
    assert own_lines(result.stderr) == [told]
    assert "Traceback" not in result.stderr
    ours, theirs = (load_file(each / "model" / "model.safetensors") for each in (unbroken, broken))
    assert all((theirs[name] == value).all() for name, value in ours.items())
    for kind in ("train", "valid"):
        assert figures(broken, kind) == figures(unbroken, kind)


@pytest.mark.slow
def test_processes_that_were_started_differently_are_refused_in_one_line(tmp_path, text_path):
    given = words(tmp_path / "run", text_path)
    # Each process adds its number to the seed.
    result = subprocess.run(
        launched(2, "tests.training.started_differently", *given),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert result.returncode != 0
    assert set(own_lines(result.stderr)) == {
        "error: process 1 has another recipe than the first: give all processes the same settings"
    }
    assert not (tmp_path / "run" / "recipe.toml").exists()


def test_a_warning_saves_and_asks_to_be_started_again(run, tmp_path):
    with pytest.raises(Preempted, match="saved at step 11 of 24"):
        run("warned", progress=SignalAt(11, signal.SIGUSR1))
    assert saved_steps(tmp_path / "warned" / "checkpoints")[-1] == 11


@pytest.mark.slow
def test_the_exit_code_of_a_warning_is_that_of_trying_again(tmp_path, text_path):
    given = words(tmp_path / "run", text_path)
    # While the second checkpoint is written.
    places = [("open", "state.json")] * 2
    ended = subprocess.run(
        stopped_at(places, signal.SIGUSR1, *given), capture_output=True, text=True, cwd=ROOT
    )
    assert ended.returncode == 75, ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("interrupted and saved at step")
    before = subprocess.run(
        stopped_at([("open", "recipe.toml")], signal.SIGUSR1, *given),
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert before.returncode == 75, before.stderr
