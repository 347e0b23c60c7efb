"""Whatever becomes of standard streams, work is finished, and a lost result is told."""

import errno
import io
import json
import os
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest

from sublayer.system.streams import OutputLost, Stream, lasting_streams
from tests.breadth import rows

PROJECT = Path(__file__).parents[2]
TINY = [
    *("model.n_layers=1", "model.d_model=8", "model.n_heads=2", "data.context=16", "train.steps=3"),
    *("train.batch_sequences=2", "train.precision=float32", "train.threads=1", "train.log_steps=1"),
]
STATES = ["closed", "full"] if Path("/dev/full").exists() else ["closed"]
# What the shell makes of each: standard output alone, standard error alone, both.
REDIRECTIONS = {
    "closed": {"out": ">&-", "error": "2>&-", "both": ">&- 2>&-"},
    "full": {"out": ">/dev/full", "error": "2>/dev/full", "both": ">/dev/full 2>&1"},
}


class Broken(io.StringIO):
    """A stream whose reader has left."""

    def write(self, text):
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")


def shell(line, cwd):
    words = ["bash", "-c", line.replace("sublayer ", f"{sys.executable} -m sublayer ", 1)]
    environment = {**os.environ, "PYTHONPATH": str(PROJECT)}
    return subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with a text and a run."""
    folder = tmp_path_factory.mktemp("streams")
    (folder / "text.txt").write_text("The cat sat on the mat. Another dog ran.\n" * 90)
    done = shell(train("run"), folder)
    assert done.returncode == 0, done.stderr
    return folder


def train(out):
    return f"sublayer train gpt data.path=text.txt {' '.join(TINY)} --out {out}"


def test_a_stream_that_fails_loses_what_is_written_and_remembers_why():
    for behind in (Broken(), None):
        stream = Stream(behind, "standard output")
        assert stream.write("text") == 4 and not stream.isatty()
        stream.flush()
        assert stream.failure is not None and stream.is_gone == (behind is not None)
        with pytest.raises(OutputLost):
            stream.require()
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


def lost(state):
    return f"error: the result cannot be printed: standard output is {state}"


@pytest.mark.parametrize(("state", "which"), rows(product(STATES, ["out", "error", "both"]), 3))
def test_training_goes_on_to_its_end(place, state, which):
    out = f"{state}-{which}"
    done = shell(f"{train(out)} {REDIRECTIONS[state][which]}", place)
    assert json.loads((place / out / "record.json").read_text())["step"] == 3
    if which == "error":
        assert done.returncode == 0 and done.stdout.startswith("trained 3 steps")
        return
    assert (done.returncode, done.stdout) == (1, "")
    assert which == "both" or done.stderr.splitlines()[-1] == lost(state)


COMMANDS = ["sublayer evaluate run --split test", "sublayer plan gpt", "sublayer --version"]


@pytest.mark.parametrize(("state", "line"), rows(product(STATES, COMMANDS), 4))
def test_a_result_that_cannot_be_printed_is_one_line_and_exit_1(place, state, line):
    done = shell(f"{line} {REDIRECTIONS[state]['out']}", place)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1] == lost(state)
    unheard = shell(f"{line} {REDIRECTIONS[state]['error']}", place)
    assert unheard.returncode == 0 and unheard.stdout.strip() and unheard.stderr == ""


def test_files_never_take_the_place_of_closed_streams(tmp_path):
    (tmp_path / "probe.py").write_text(
        "import os\nfrom sublayer.system.streams import lasting_streams\n"
        "with lasting_streams(), open('number', 'w') as file: print(file.fileno(), file=file)\n"
    )
    assert shell(f"{sys.executable} probe.py <&- >&- 2>&-", tmp_path).returncode == 0
    assert int((tmp_path / "number").read_text()) > 2
