"""Steps prepared by a thread while the one before computes: nothing but the time differs."""

import signal
import subprocess
import sys
import threading

import pytest

from sublayer.cli import main
from sublayer.data.batches import Windows
from sublayer.errors import DataError, Interrupted
from sublayer.training.ahead import Ahead, PreparedStep
from tests.made import TINY
from tests.training.conftest import ROOT
from tests.training.runs import SignalAt, results


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


def words_of(text_path, folder):
    fields = [f"{key}={value}" for key, value in {**TINY, "data.path": str(text_path)}.items()]
    return ["train", "gpt", *fields, "--out", str(folder / "run")]


@pytest.fixture
def prepares_ahead(monkeypatch):
    monkeypatch.setattr("sublayer.training.step.pays", lambda device: True)


def test_a_run_stopped_and_resumed_ahead_equals_one_that_never_prepared_ahead(
    run, made, tmp_path, prepares_ahead
):
    with pytest.raises(Interrupted, match="saved at step 11"):
        run("ahead", progress=SignalAt(11))
    run("ahead", resume=True)
    assert results(tmp_path / "ahead") == results(made("causal"))


def test_an_error_of_the_thread_is_one_line(
    workshop, tmp_path, monkeypatch, capsys, prepares_ahead
):
    batch = Windows.batch

    def fails_at_5(self, number, rank=0, world=1):
        if number == 5:
            raise DataError("words.txt: changed while it was read")
        return batch(self, number, rank, world)

    monkeypatch.setattr(Windows, "batch", fails_at_5)
    fields = [f"{key}={value}" for key, value in TINY.items()]
    words = [
        "train",
        "gpt",
        *fields,
        f"data.path={workshop.path({})}",
        "--out",
        str(tmp_path / "run"),
    ]
    assert main(words) == 2
    assert capsys.readouterr().err.splitlines()[-1] == "error: words.txt: changed while it was read"


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


def test_ctrl_c_ends_the_program_and_its_thread(text_path, tmp_path):
    command = [sys.executable, "-c", _INTERRUPTED, *words_of(text_path, tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=600)
    assert ended.returncode == 128 + signal.SIGINT, ended.stderr
    assert ended.stderr.splitlines()[-1].startswith("interrupted and saved at step 6 of")
