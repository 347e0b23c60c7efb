"""Steps prepared by a thread while the one before computes: nothing but the time differs."""

import signal
import subprocess
import sys
import threading

import pytest
import torch

from sublayer.errors import DataError, Interrupted
from sublayer.runs.run import train_run
from sublayer.training.ahead import Ahead, PreparedStep
from sublayer.training.progress import SilentProgress
from tests.made import TINY
from tests.training.conftest import ROOT
from tests.training.test_resume import SignalAt, results


class Counted:
    """Prepares nothing, and notes which step in which thread; ``before`` is called first."""

    def __init__(self, before=lambda step: None):
        self.asked = []
        self.before = before

    def __call__(self, step):
        self.asked.append((step, threading.current_thread().name))
        self.before(step)
        return PreparedStep([], 10 * step)

    def n_tokens(self, step):
        self.asked.append((f"count {step}", threading.current_thread().name))
        return 10 * step


def test_the_next_step_is_prepared_while_one_computes():
    begun, computed = threading.Event(), threading.Event()

    def before(step):
        if step == 1:
            begun.set()
            assert computed.wait(60), "it was not begun before step 0 ended"

    ahead = Ahead(Counted(before), 3)
    assert ahead(0).n_tokens == 0
    # Here the step computes: the next one is being prepared.
    assert begun.wait(60)
    computed.set()
    assert ahead(1).n_tokens == 10


def test_one_thread_reads_all_batches_and_none_beyond_the_last_step():
    counted = Counted()
    ahead = Ahead(counted, 3)
    taken = [ahead(step).n_tokens for step in range(3)]
    assert taken == [0, 10, 20] and ahead.n_tokens(7) == 70
    assert [step for step, _ in counted.asked] == [0, 1, 2, "count 7"]
    (thread,) = {name for _, name in counted.asked}
    assert thread.startswith("batches")


def test_a_step_out_of_turn_is_that_step():
    ahead = Ahead(Counted(), 9)
    assert [ahead(step).n_tokens for step in (0, 5, 5, 6, 2)] == [0, 50, 50, 60, 20]


def test_what_goes_wrong_is_raised_where_its_step_is_taken():
    def before(step):
        if step == 1:
            raise DataError("text.txt: line 7 is gone")

    ahead = Ahead(Counted(before), 3)
    ahead(0)
    with pytest.raises(DataError, match="line 7 is gone"):
        ahead(1)
    assert ahead(2).n_tokens == 20


def test_a_run_stopped_and_resumed_ahead_equals_one_that_never_prepared_ahead(
    tiny, tmp_path, monkeypatch
):
    loaded = tiny({"model.dropout": 0.2, "train.steps": 24, "train.micro_batch_sequences": 2})
    cpu, folder = torch.device("cpu"), tmp_path / "run"
    train_run(loaded, tmp_path / "unbroken", device=cpu, progress=SilentProgress())
    monkeypatch.setattr("sublayer.training.step.pays", lambda device: True)
    with pytest.raises(Interrupted, match="saved at step 11"):
        train_run(loaded, folder, device=cpu, progress=SignalAt(11))
    train_run(loaded, folder, device=cpu, progress=SilentProgress(), resume=True)
    assert results(folder) == results(tmp_path / "unbroken")


_INTERRUPTED = """
import os, signal, sys
import sublayer.training.step as step

step.pays = lambda device: True
taken = step.TrainStep.__call__


def stop_at_5(self, number):
    result = taken(self, number)
    if number == 5:
        os.kill(os.getpid(), signal.SIGINT)
    return result


step.TrainStep.__call__ = stop_at_5
from sublayer.cli import main

sys.exit(main(sys.argv[1:]))
"""


def trained_by(program, text_path, tmp_path):
    """Train a tiny run by a program that changes something first."""
    fields = [f"{key}={value}" for key, value in {**TINY, "data.path": str(text_path)}.items()]
    return subprocess.run(
        [sys.executable, "-c", program, "train", "gpt", *fields, "--out", tmp_path / "run"],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=600,
    )


@pytest.mark.slow
def test_ctrl_c_ends_the_program_and_its_thread(text_path, tmp_path):
    ended = trained_by(_INTERRUPTED, text_path, tmp_path)
    assert ended.returncode == 128 + signal.SIGINT, ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("interrupted and saved at step 6 of")


_FAILS = """
import sys
import sublayer.training.step as step
from sublayer.data.batches import Windows
from sublayer.errors import DataError

step.pays = lambda device: True
made = Windows.batch


def fails_at_5(self, number, rank=0, world=1):
    if number == 5:
        raise DataError("words.txt: changed while it was read")
    return made(self, number, rank, world)


Windows.batch = fails_at_5
from sublayer.cli import main

sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_an_error_of_the_thread_is_one_line(text_path, tmp_path):
    ended = trained_by(_FAILS, text_path, tmp_path)
    assert ended.returncode not in (0, 1), ended.stderr
    assert ended.stderr.splitlines()[-1] == "error: words.txt: changed while it was read"
    assert "Traceback" not in ended.stderr
