"""The frame of all commands: mistakes, errors and exit codes, ``--json``, and their end."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from sublayer import cli, errors
from sublayer.commands.shared.base import JsonOption, emit
from tests.stopping import stopped_at


@pytest.fixture
def run(capsys):
    return lambda *words: (cli.main(words), *capsys.readouterr())


@pytest.fixture
def register(monkeypatch):
    def add(command):
        module = ModuleType("sublayer.commands.probe")
        module.command, module.EXAMPLE = command, "sublayer probe"
        monkeypatch.setitem(sys.modules, "sublayer.commands.probe", module)
        monkeypatch.setitem(cli.COMMANDS, "probe", ("probe", "Try the frame."))

    return add


@pytest.mark.parametrize("words, line", [
    ("--zzzzzz", "No such option: --zzzzzz; see `sublayer --help`"),
    ("recipes --zzzzzz", "No such option: --zzzzzz; see `sublayer recipes --help`"),
    ("fields model train", "Got unexpected extra argument(s) (train); see `sublayer fields"),
    ("evaluate runs/a --path a --split test --path b", "--path is given 2 times, and takes one"),
    ("recipes runs/gone", "there is no run runs/gone: sublayer runs lists"),
])  # fmt: skip
def test_a_mistake_is_one_line_on_stderr(words, line, run):
    for options in ((), ("--json",)):
        code, out, err = run(*words.split(), *options)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"error: {line}")


@pytest.mark.parametrize("error, code, line", [
    (errors.DataError("a.txt is\nempty"), 2, "error: a.txt is empty"),
    (errors.TrainingError("loss is nan at step 3"), 3, "error: loss is nan at step 3"),
    (errors.Interrupted("interrupted at step 3"), 130, "interrupted at step 3"),
    (KeyboardInterrupt(), 130, "interrupted"),
    (OSError(errno.ENOSPC, "No", "a"), 2, "error: a: the disk is full: free some space"),
    (PermissionError(errno.EACCES, "No", "/a"), 2, "error: /a: permission denied"),
    (FileNotFoundError(errno.ENOENT, "No", "a"), 2, "error: a: there is no such file"),
    (OSError(errno.EIO, "Input/output error"), 2, "error: Input/output error"),
    (OSError("written in part"), 2, "error: written in part"),
    (ZeroDivisionError(), None, "a bug is raised as it is"),
])  # fmt: skip
def test_each_error_has_its_exit_code_and_one_line(error, code, line, register, run):
    def probe() -> None:
        raise error

    register(probe)
    if code is None:
        with pytest.raises(type(error)):
            run("probe")
    else:
        assert run("probe") == (code, "", line + "\n")


def test_with_json_only_the_object_is_on_stdout(register, run):
    def probe(as_json: JsonOption = False) -> None:
        print("a library that talks")
        found = {"loss": float("nan"), "steps": [1, 2.5], "path": Path("a")}
        emit(found, as_json, lambda result: "text")

    register(probe)
    code, out, err = run("probe", "--json")
    assert (code, err) == (0, "a library that talks\n")
    assert json.loads(out) == {"loss": None, "steps": [1, 2.5], "path": "a"}
    assert run("probe") == (0, "a library that talks\ntext\n", "")


@pytest.mark.parametrize("environment", [
    {"PYTHONIOENCODING": "cp1252"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
])  # fmt: skip
def test_arguments_and_what_is_kept_are_utf8_under_any_locale(tmp_path, environment):
    name = tmp_path / "日本 ü"
    name.mkdir()
    command = [sys.executable, "-m", "sublayer", "tasks", str(name)]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True)
    assert "日本 ü" in done.stdout.decode("utf-8") and done.returncode == 0


def test_a_reader_that_leaves_early_is_no_error():
    words, pipe = (sys.executable, "-m", "sublayer", "fields"), subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 0)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_stopped_while_it_is_set_up_exits_130_and_leaves_nothing(tmp_path, number):
    (tmp_path / "text.txt").write_text("The cat sat on the mat.\n" * 500)
    words = ["train", "gpt", f"data.path={tmp_path / 'text.txt'}", "train.steps=1"]
    # The run's folder is there before the text is read.
    places = [("open", "run/.sublayer-lock"), ("open", "text.txt")]
    command = stopped_at(places, number, *words, "--out", str(tmp_path / "run"))
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout, (tmp_path / "run").exists()) == (130, "", False)
    assert done.stderr.splitlines()[-1] == "interrupted" and "Traceback" not in done.stderr
