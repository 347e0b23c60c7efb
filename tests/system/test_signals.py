"""Signals at any moment, one or several in a row: the first decides, in one line."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from sublayer.system import signals
from sublayer.system.signals import interruptible
from tests.breadth import rows

INT, TERM = signal.SIGINT, signal.SIGTERM
PROJECT = Path(__file__).parents[2]
# Signals itself when it comes to a place: an event of Python's audit hooks and the end of what it
# is about.
PROGRAM = """
import os, sys

event_there, there = sys.argv[1:3]
numbers = [int(number) for number in sys.argv[3].split(",")]

def signal_there(event, arguments):
    if event == event_there and any(str(each).endswith(there) for each in arguments[:2]):
        signal_now()

def signal_now(kill=os.kill, me=os.getpid()):
    due = numbers[:]
    numbers.clear()
    for number in due:
        kill(me, number)

sys.addaudithook(signal_there)
sys.argv[1:] = sys.argv[4:]
from sublayer.__main__ import run

sys.exit(run())
"""
TRAIN = [
    *("train", "gpt", "model.n_layers=1", "model.d_model=8", "model.n_heads=2"),
    *("data.context=16", "train.steps=6"),
    *("train.batch_sequences=2", "train.precision=float32", "train.threads=1", "--out", "run"),
]


def python(words, cwd):
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    command = [sys.executable, *words]
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)


def ended(event, there, row, words, cwd):
    numbers = ",".join(str(int(number)) for number in row)
    return python(["-c", PROGRAM, event, there, numbers, *words], cwd)


@pytest.mark.parametrize("row", [(INT,), (TERM, INT), (INT, INT, INT, TERM)], ids=str)
def test_signals_while_the_program_is_imported(tmp_path, row):
    place = "sublayer.cli" if len(row) > 2 else "typer.main"
    done = ended("import", place, row, ["--version"], tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


MOMENTS = [
    ("import", "torch", (INT, TERM)),
    ("os.mkdir", "run", (TERM, INT)),
    ("open", ".sublayer-lock", (INT, TERM)),
    ("open", "metrics.jsonl", (INT, INT, INT, TERM)),
    ("os.rename", "checkpoints/step-00000006", (TERM, TERM)),
    ("os.rename", "record.json", (TERM, INT)),
]


@pytest.mark.parametrize(("event", "there", "row"), rows(MOMENTS, 4), ids=str)
def test_signals_while_a_run_is_set_up_trained_and_saved(tmp_path, event, there, row):
    done = ended(event, there, row, TRAIN, tmp_path)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("interrupted")
    again = python(["-m", "sublayer", *TRAIN, "--resume"], tmp_path)
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "run" / "record.json").is_file()


def test_a_signal_that_came_to_nothing_is_followed_by_another(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    before = signal.getsignal(INT), signal.getsignal(TERM)
    with interruptible():
        with interruptible():
            assert signal.getsignal(TERM) is signals.interruption
        for later, is_heard in ((0.0, True), (0.1, False), (1.8, False), (0.2, True)):
            now[0] += later
            if is_heard:
                with pytest.raises(KeyboardInterrupt):
                    os.kill(os.getpid(), TERM)
            else:
                os.kill(os.getpid(), INT)
    assert (signal.getsignal(INT), signal.getsignal(TERM)) == before
