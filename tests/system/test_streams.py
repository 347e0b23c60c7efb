"""Stages are shown while they last, and work ends as it should, whatever becomes of streams."""

import errno
import io
import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from itertools import product
from pathlib import Path
from unittest.mock import Mock

import pytest
from rich.cells import cell_len

from sublayer.system import signals, terminal
from sublayer.system.terminal import (
    LiveStages,
    OutputLost,
    PlainStages,
    Stream,
    display,
    lasting_streams,
    stage,
)
from tests.breadth import rows
from tests.stopping import stopped_at

CHOOSE = terminal._choose  # replaced in all other tests
STATES = ["closed", "full"] if Path("/dev/full").exists() else ["closed"]
LOST = "error: the result cannot be printed: standard output is {}"
# What the shell makes of each: standard output alone, standard error alone, both.
REDIRECTIONS = {"closed": {"out": ">&-", "error": "2>&-", "both": ">&- 2>&-"}}
REDIRECTIONS |= {"full": {"out": ">/dev/full", "error": "2>/dev/full", "both": ">/dev/full 2>&1"}}
TINY = "model.n_layers=1 model.d_model=8 model.n_heads=2 data.context=16 train.log_steps=1 "
TINY += "train.batch_sequences=2 train.precision=float32 train.threads=1"
INT, TERM = signal.SIGINT, signal.SIGTERM
TRAIN = ["train", "gpt", "data.path=text.txt", *TINY.split(), "train.steps=6", "--out", "run"]
LINES = "The cat sat on the mat. Another dog ran.\n" * 90


class Shown:
    """A display with a clock that stands until it is moved."""

    def __init__(self, kind, written):
        self.now = 100.0
        self.shown = kind(written, lambda: self.now, has_thread=False)

    def last(self, seconds):
        for _ in range(int(seconds * 10)):
            self.now = round(self.now + 0.1, 1)
            self.shown.tick()

    def stage(self, text, seconds):
        entered = self.shown.begin(text)
        self.last(seconds)
        self.shown.end(entered)


def test_in_a_pipe_a_stage_has_a_line_after_a_second_and_then_every_ten():
    lines = []
    piped = Shown(PlainStages, lines.append)
    entered = piped.shown.begin("reading")
    piped.last(0.9)
    assert lines == []
    piped.last(24)
    assert lines == ["reading", "reading 0:11", "reading 0:21"]
    piped.shown.end(entered)
    piped.shown.note("read")
    for number in range(30):
        piped.stage(f"part {number}", 0.5)
    assert lines[3:] == ["read", "part 19"], "short stages are not silent"
    lines = []
    piped = Shown(PlainStages, lines.append)
    training = piped.shown.begin("training", is_timed=False)
    for step in range(1, 13):
        piped.stage(f"evaluating at step {step}", 2)
    assert lines == ["evaluating at step 1", "evaluating at step 6", "evaluating at step 11"]
    piped.shown.end(training)
    piped.stage("evaluating at step 1", 1.1)
    assert lines[3:] == ["evaluating at step 1"], "another run begins anew"


def on_screen(stream):
    """Return the lines that a terminal shows, of which each is drawn over what stood there."""
    text = re.sub(r"\x1b\[\?25[lh]|\x1b\[[0-9;]*m|\r(?=\n)", "", stream.getvalue())
    lines, at = [""], 0
    for part in re.findall(r"\x1b\[1A|\x1b\[2K|\r|\n|[^\x1b\r\n]+", text):
        if part == "\x1b[1A":
            at -= 1
        elif part == "\n":
            at += 1
            lines += [""] * (at + 1 - len(lines))
        elif part == "\x1b[2K":
            lines[at] = ""
        elif part != "\r":
            lines[at] += part
    return [line.rstrip() for line in lines]


def test_on_a_terminal_the_innermost_stage_is_a_line_below_all_notes(monkeypatch):
    def seen():
        # The spinner moves with the time of day.
        return [re.sub("^[\u2800-\u28ff]", "*", line) for line in on_screen(stream)]

    monkeypatch.setenv("COLUMNS", "40")
    stream = io.StringIO()
    terminal = Shown(LiveStages, stream)
    shown = terminal.shown
    outer, inner = shown.begin("training"), shown.begin("evaluating")
    assert seen() == ["* evaluating"]
    shown.note("a [red]document[/] is :books: long")
    terminal.now += 3.0
    shown.show()
    assert seen() == ["a [red]document[/] is :books: long", "* evaluating  0:03"]
    shown.end(inner)
    shown.change(outer, "training", 0.4)
    shown.show()
    [_, line] = seen()
    assert re.fullmatch(r"\* training  0:03 ━{6,9}[╸╺]━{9,14}", line)
    for text in ("step 12/400 " * 20, "学习" * 60):
        shown.change(outer, text, 0.5)
        shown.show()
        assert seen()[-1].startswith(f"* {text[:8]}") and 34 <= cell_len(seen()[-1]) <= 37
    with shown.hidden():  # a terminal's echo of ^C had room in the line above
        stream.write("a row\n")
    assert seen()[1] == "a row", "nothing of the line that moves is left before it"
    shown.end(outer)
    assert [line for line in seen() if line] == ["a [red]document[/] is :books: long", "a row"]
    assert stream.getvalue().endswith("\x1b[?25h\r\x1b[1A\x1b[2K"), "the cursor is shown again"
    shown.note("a note that is longer than the terminal is wide\n  and a path/" + 40 * "l")
    wrapped = ["a note that is longer than the terminal", "is wide", "  and a", "path/" + 40 * "l"]
    assert [line for line in seen() if line][2:] == wrapped


def test_stages_are_left_where_they_fail_and_heard_elsewhere():
    heard, notes = [], []
    with terminal.shown_by(terminal.HeardStages(heard.append, notes.append)):
        with pytest.raises(KeyError), stage("reading"), stage("sorting"):
            raise KeyError(terminal.note("it is long"))
        assert display() is not terminal._own and display().is_idle
    assert heard == ["reading", "sorting", "reading", ""] and notes == ["it is long"]


@pytest.mark.parametrize("is_live", [False, True])
def test_a_thread_moves_the_line_and_ends_with_the_stage(is_live, monkeypatch):
    before, drawn = set(threading.enumerate()), threading.Event()
    kind, name = (LiveStages, "_draw") if is_live else (PlainStages, "tick")
    monkeypatch.setattr(kind, name, lambda shown: drawn.set())
    shown = kind(io.StringIO() if is_live else print)
    with terminal.shown_by(shown), stage("reading"):
        drawn.clear()
        assert drawn.wait(60)
        (thread,) = set(threading.enumerate()) - before
    thread.join(60)
    assert not thread.is_alive()


def test_a_terminal_is_recognized_and_a_dumb_one_is_not(monkeypatch):
    leader, follower = pty.openpty()
    monkeypatch.setattr(terminal, "_choose", CHOOSE)
    with os.fdopen(follower, "w") as stream, os.fdopen(leader, "rb", buffering=0) as screen:
        monkeypatch.setattr("sys.stderr", stream)
        monkeypatch.setenv("TERM", "xterm")
        with stage("reading"):
            assert isinstance(display(), LiveStages)
            drawn = b""
            while b"reading" not in drawn:
                drawn += screen.read(1000)
        monkeypatch.setenv("TERM", "dumb")
        monkeypatch.setattr(terminal, "_own", None)
        assert isinstance(display(), PlainStages)
    monkeypatch.setattr(terminal, "_own", None)


def ran(words, cwd):
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True)


def shell(line, cwd):
    return ran(["bash", "-c", line.replace("sublayer ", f"{sys.executable} -m sublayer ", 1)], cwd)


def test_a_stream_that_fails_loses_what_is_written_and_remembers_why():
    broken = io.StringIO()
    broken.write = Mock(side_effect=BrokenPipeError(errno.EPIPE, "Broken pipe"))
    for behind in (broken, None):
        stream = Stream(behind, "standard output")
        assert stream.write("text") == 4 and not stream.isatty()
        stream.flush()
        assert stream.failure is not None and stream.is_gone == (behind is not None)
        with pytest.raises(OutputLost):
            stream.require()
    closed = io.StringIO()
    closed.flush = Mock(side_effect=ValueError("I/O operation on closed file"))
    stream = Stream(closed, "standard output")
    stream.flush()
    assert stream.failure.errno == errno.EBADF and not stream.is_gone
    closed.close()
    assert not stream.isatty()
    stream = Stream(io.StringIO(), "standard output")
    stream.write("text")
    stream.require()
    with pytest.raises(TypeError):
        stream.write(b"text")


def test_streams_are_put_back(capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    before = sys.stdin, sys.stdout, sys.stderr
    with lasting_streams():
        with sys.stdin as given:
            assert given.read() == ""
        print("said")
    assert (sys.stdin, sys.stdout, sys.stderr) == before
    assert capsys.readouterr().out == "said\n"


@pytest.mark.parametrize(("state", "which"), rows(product(STATES, ["out", "error", "both"]), 3))
def test_training_goes_on_to_its_end(place, state, which):
    out = f"{state}-{which}"
    done = shell(f"{train(out)} {REDIRECTIONS[state][which]}", place)
    assert json.loads((place / out / "record.json").read_text())["step"] == 3
    if which == "error":
        assert done.returncode == 0 and done.stdout.startswith("trained 3 steps")
        return
    assert (done.returncode, done.stdout) == (1, "")
    assert which == "both" or done.stderr.splitlines()[-1] == LOST.format(state)


@pytest.mark.parametrize(("state", "line"), rows(product(STATES, [
    "sublayer evaluate run --split test", "sublayer plan gpt", "sublayer --version",
]), 4))  # fmt: skip
def test_a_result_that_cannot_be_printed_is_one_line_and_exit_1(place, state, line):
    done = shell(f"{line} {REDIRECTIONS[state]['out']}", place)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == LOST.format(state)
    unheard = shell(f"{line} {REDIRECTIONS[state]['error']}", place)
    assert unheard.returncode == 0 and unheard.stdout.strip() and unheard.stderr == ""


def test_files_never_take_the_place_of_closed_streams(tmp_path):
    program = "from sublayer.system.terminal import lasting_streams\n"
    program += "with lasting_streams(), open('n', 'w') as file: print(file.fileno(), file=file)"
    (tmp_path / "probe.py").write_text(program)
    assert shell(f"{sys.executable} probe.py <&- >&- 2>&-", tmp_path).returncode == 0
    assert int((tmp_path / "n").read_text()) > 2


def train(out):
    return f"sublayer train gpt data.path=text.txt train.steps=3 {TINY} --out {out}"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("streams")
    (folder / "text.txt").write_text(LINES)
    done = shell(train("run"), folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("row", [(INT,), (TERM, INT), (INT, INT, INT, TERM)], ids=str)
def test_signals_while_the_program_is_imported(tmp_path, row):
    place = "sublayer.cli.main" if len(row) > 2 else "typer.main"
    done = ran(stopped_at([("import", place)], row, "--version"), tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "interrupted\n")


@pytest.mark.parametrize(("event", "there", "row"), rows([
    ("import", "torch", (INT, TERM)), ("os.mkdir", "run", (TERM, INT)),
    ("open", "text.txt", (TERM,)), ("open", ".sublayer-lock", (INT, TERM)),
    ("open", "metrics.jsonl", (INT, INT, INT, TERM)),
    ("os.rename", "checkpoints/step-00000006", (TERM, TERM)),
    ("os.rename", "record.json", (TERM, INT)),
], 4), ids=str)  # fmt: skip
def test_signals_while_a_run_is_set_up_trained_and_saved(tmp_path, event, there, row):
    (tmp_path / "text.txt").write_text(LINES)
    places = [(event, there)]
    if there == "text.txt":  # it is read once the run's folder is there
        places.insert(0, ("open", ".sublayer-lock"))
    done = ran(stopped_at(places, row, *TRAIN), tmp_path)
    assert done.returncode == 130 and "Traceback" not in done.stderr, done.stderr
    assert done.stderr.splitlines()[-1].startswith("interrupted")
    is_begun = (tmp_path / "run").exists()
    assert there != "text.txt" or (done.stdout, is_begun) == ("", False)
    resumed = ["--resume"] if is_begun else []
    again = ran([sys.executable, "-m", "sublayer", *TRAIN, *resumed], tmp_path)
    assert again.returncode == 0 and (tmp_path / "run" / "record.json").is_file(), again.stderr


def test_a_signal_that_came_to_nothing_is_followed_by_another(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(signals.time, "monotonic", lambda: now[0])
    before = signal.getsignal(INT), signal.getsignal(TERM)
    with signals.interruptible():
        with signals.interruptible():
            assert signal.getsignal(TERM) is signals.interruption
        for later, is_heard in ((0.0, True), (0.1, False), (1.8, False), (0.2, True)):
            now[0] += later
            if is_heard:
                with pytest.raises(KeyboardInterrupt):
                    os.kill(os.getpid(), TERM)
            else:
                os.kill(os.getpid(), INT)
    assert (signal.getsignal(INT), signal.getsignal(TERM)) == before
