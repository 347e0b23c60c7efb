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
ROWS = [(INT,), (TERM,), (INT, TERM), (TERM, INT), (TERM, TERM), (INT, INT), (INT, INT, INT, TERM)]
PROJECT = Path(__file__).parents[2]
# Signals itself when it comes to a place: an event of Python's audit hooks and the end of what it
# is about.
PROGRAM = """
import atexit, os, sys

event_there, there = sys.argv[1:3]
numbers = [int(number) for number in sys.argv[3].split(",")]
is_there = False


def signal_there(event, arguments):
    global is_there
    if is_there or event != event_there:
        return
    if any(str(each).endswith(there) for each in arguments[:2]):
        is_there = True
        signal_now()


def signal_now():
    for number in numbers:
        os.kill(os.getpid(), number)


class LastOfAll:
    def __init__(self):
        self.kill, self.me = os.kill, os.getpid()

    def __del__(self):
        for number in numbers:
            self.kill(self.me, number)


sys.addaudithook(signal_there)
if event_there == "atexit":
    atexit.register(signal_now)
if event_there == "teardown":
    sys.modules["last"] = LastOfAll()
sys.argv[1:] = sys.argv[4:]
from sublayer.__main__ import run

sys.exit(run())
"""
TRAIN = [
    *(
        "train",
        "gpt",
        "model.n_layers=1",
        "model.d_model=8",
        "model.n_heads=2",
        "data.context=16",
        "train.steps=6",
    ),
    *("train.batch_sequences=2", "train.precision=float32", "train.threads=1", "--out", "run"),
]


def ended(
    event: str, there: str, row: tuple[int, ...], words: list[str], cwd: Path
) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        "-c",
        PROGRAM,
        event,
        there,
        ",".join(str(int(number)) for number in row),
        *words,
    ]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=300
    )


@pytest.mark.parametrize("row", ROWS, ids=str)
def test_signals_while_the_program_is_imported(tmp_path: Path, row: tuple[int, ...]) -> None:
    done = ended(
        "import", "sublayer.cli" if len(row) > 2 else "typer.main", row, ["--version"], tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize("moment", ["atexit", "teardown"])
@pytest.mark.parametrize("row", ROWS[2:4], ids=str)
def test_signals_when_all_is_done_change_nothing(
    tmp_path: Path, moment: str, row: tuple[int, ...]
) -> None:
    done = ended(moment, "", row, ["--version"], tmp_path)
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.startswith("sublayer ")


MOMENTS = [
    *(
        ("import", "torch"),
        ("os.mkdir", "run"),
        ("open", ".sublayer-lock"),
        ("open", "metrics.jsonl"),
    ),
    *(("os.rename", "checkpoints/step-00000006"), ("os.rename", "record.json")),
]


@pytest.mark.parametrize(
    ("event", "there", "row"),
    rows(
        (
            (*moment, row)
            for number, moment in enumerate(MOMENTS)
            for row in (ROWS[2 + number % 5], ROWS[2 + number % 2])
        ),
        5,
    ),
    ids=str,
)
def test_signals_while_a_run_is_set_up_trained_and_saved(
    tmp_path: Path, event: str, there: str, row: tuple[int, ...]
) -> None:
    done = ended(event, there, row, TRAIN, tmp_path)
    assert done.returncode == 130, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("interrupted")
    again = subprocess.run(
        [sys.executable, "-m", "sublayer", *TRAIN, "--resume"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert again.returncode == 0, again.stderr
    assert (tmp_path / "run" / "record.json").is_file()


def test_a_signal_that_came_to_nothing_is_followed_by_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    with interruptible():
        for later, is_heard in ((0.0, True), (0.1, False), (1.8, False), (0.2, True)):
            now[0] += later
            if is_heard:
                with pytest.raises(KeyboardInterrupt):
                    os.kill(os.getpid(), TERM)
            else:
                os.kill(os.getpid(), INT)


def test_signals_are_given_back() -> None:
    before = signal.getsignal(INT), signal.getsignal(TERM)
    with interruptible():
        assert signal.getsignal(TERM) is signals.interruption
        with interruptible():
            pass
        assert signal.getsignal(INT) is signals.interruption
    assert (signal.getsignal(INT), signal.getsignal(TERM)) == before
