"""The frame of all commands: mistakes, exit codes, ``--json``, arguments and their completion."""

import errno
import json
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from itertools import product
from pathlib import Path
from types import ModuleType
from typing import get_args

import pytest

from sublayer import errors
from sublayer.api.results import Found
from sublayer.cli import main as cli
from sublayer.cli.build import client_of
from sublayer.cli.completion import SHELLS
from sublayer.config.layers import shipped_recipes
from sublayer.config.model import FFNS
from sublayer.config.recipe import keys
from sublayer.options import Argument
from sublayer.study.definition import shipped_studies, study_scales
from tests.breadth import rows


@pytest.fixture
def run(capsys):
    return lambda *words: (cli.main(words), *capsys.readouterr())


@pytest.fixture
def register(monkeypatch):
    def add(command):
        module = ModuleType("sublayer.cli.probe")
        module.probe = client_of(example="sublayer probe")(command)
        monkeypatch.setitem(sys.modules, "sublayer.cli.probe", module)
        monkeypatch.setitem(cli.COMMANDS, "probe", "Try the frame.")

    return add


def test_an_option_without_its_value_names_the_help_of_its_command(run):
    line = "error: Option '--out' requires an argument; see `sublayer train --help`\n"
    assert run("train", "gpt", "--out") == (2, "", line)


@pytest.mark.parametrize("words, line", [
    ("--zzzzzz", "No such option: --zzzzzz; see `sublayer --help`"),
    ("recipes --zzzzzz", "No such option: --zzzzzz; see `sublayer recipes --help`"),
    ("fields model train", "Got unexpected extra argument(s) (train); see `sublayer fields"),
    ("evaluate runs/a --path a --split test --path b", "--path is given 2 times but takes one"),
    ("recipes runs/gone", "'runs/gone' is not a recipe, a .toml file or a run"),
])  # fmt: skip
def test_a_mistake_is_one_line_on_stderr(words, line, run):
    for options in ((), ("--json",)):
        code, out, err = run(*words.split(), *options)
        assert (code, out, err.count("\n")) == (2, "", 1)
        assert err.startswith(f"error: {line}")


def test_a_long_error_is_wrapped_at_spaces_and_its_paths_and_commands_stay_whole(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    path, command = "runs/" + "a" * 60, "`sublayer compare a b --out runs/c --seeds 3`"
    lines = cli.wrapped(f"error: {path} is not there: see {command}, or name another").splitlines()
    assert path in lines[1] and any(command in line for line in lines)
    assert all(len(line) <= 40 or path in line or command in line for line in lines)


@pytest.mark.parametrize("error, code, line", [
    (errors.DataError("a.txt is\nempty"), 2, "error: a.txt is empty"),
    (errors.TrainingError("loss is nan at step 3"), 3, "error: loss is nan at step 3"),
    (errors.Interrupted("interrupted at step 3"), 130, "interrupted at step 3"),
    (KeyboardInterrupt(), 130, "interrupted"),
    (OSError(errno.ENOSPC, "No", "a"), 2, "error: a: the disk is full: free some space"),
    (
        *(PermissionError(errno.EACCES, "No", "/a"), 2),
        "error: /a: permission denied: name another file or folder, or change who may use it",
    ),
    (FileNotFoundError(errno.ENOENT, "No", "a"), 2, "error: a is not there"),
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
    def probe():
        print("a library that talks")
        return Found({"loss": float("nan"), "steps": [1, 2.5], "path": Path("a")}, "text")

    register(probe)
    code, out, err = run("probe", "--json")
    assert (code, err) == (0, "a library that talks\n")
    assert json.loads(out) == {"loss": None, "steps": [1, 2.5], "path": "a"}
    assert run("probe") == (0, "a library that talks\ntext\n", "")


@pytest.mark.parametrize("environment", [
    {"PYTHONIOENCODING": "cp1252"}, {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
])  # fmt: skip
def test_arguments_and_what_is_kept_are_utf8_under_any_locale(tmp_path, environment):
    (name := tmp_path / "日本 ü").mkdir()
    command = [sys.executable, "-m", "sublayer", "tasks", str(name)]
    environment = {**os.environ, **environment}
    done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True)
    assert "日本 ü" in done.stdout.decode("utf-8") and done.returncode == 0


def test_a_reader_that_leaves_early_is_no_error():
    words, pipe = (sys.executable, "-m", "sublayer", "fields"), subprocess.PIPE
    with subprocess.Popen(words, stdout=pipe, stderr=pipe) as process:
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 0)


COMMANDS = {name: cli.command_of(name) for name in cli.COMMANDS}
Option = namedtuple("Option", "command name types least most")


def options(command):
    for parameter, (hint, option) in COMMANDS[command].declared.items():
        if not isinstance(option, Argument):
            name, types = option.named(parameter), get_args(hint) or (hint,)
            yield Option(command, name, types, option.least, option.most)


NAMED = "{0.command} {0.name}".format
OPTIONS = [option for command in COMMANDS for option in options(command)]
NUMBERS = [each for each in OPTIONS if {int, float} & {*each.types} and str not in each.types]
TEXTS = [
    option
    for option in OPTIONS
    if {str, Path} & {*option.types}
    and option.command != "demo"  # which trains, wherever its results go
]

BEFORE = dict.fromkeys(("plan", "train", "compare"), "gpt data.path=/nowhere/text")
BEFORE |= {**dict.fromkeys(("evaluate", "translate"), "/nowhere/run"), "inspect": "layers /nowhere"}
BEFORE |= dict.fromkeys(("export", "import"), "huggingface /nowhere/run")
BEFORE |= {"generate": "/nowhere/run --prompt a"}
"""Arguments that commands need beside their options, none of which is there."""


def check_refused(sublayer, *words, may_be_accepted=False):
    code, _, err = sublayer(*words)
    if not (may_be_accepted and code == cli.DONE):
        assert code == cli.MISTAKE
        assert err.splitlines()[-1].startswith("error: ")


def test_every_number_of_a_command_line_has_a_least_and_a_greatest_value():
    assert len(NUMBERS) > 20
    assert not [each for each in NUMBERS if None in (each.least, each.most)]


HOSTILE_NUMBERS = [
    *("nan", "inf", "-inf", "1e999", "", " ", "0x10", "1e3.5", "٣", "\udcff"),
    *("9" * 5000, "-" + "9" * 5000, str(-(2**63)), str(10**30)),
]


@pytest.mark.parametrize("option", rows(NUMBERS, 8), ids=NAMED)
def test_a_number_out_of_its_range_is_refused(sublayer, option):
    for value in (option.least - 1, option.most + 1, *HOSTILE_NUMBERS):
        words = (option.command, *BEFORE.get(option.command, "").split(), option.name, str(value))
        check_refused(sublayer, *words)


HOSTILE_TEXTS = ["\udcff", "a/\udc80/b", "\0", "x" * 70_000]
HOSTILE_TEXTS += ["~nobody-here/x", "/dev/null/x", "n" * 300, "loop/x", ""]


@pytest.fixture
def loop(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    return Path("loop")


@pytest.mark.parametrize("option", rows(TEXTS, 8), ids=NAMED)
def test_a_text_that_no_file_takes_is_refused_before_anything_is_made(sublayer, option, loop):
    before = (option.command, *BEFORE.get(option.command, "").split())
    for value in HOSTILE_TEXTS[:4]:
        check_refused(sublayer, *before, option.name, value)
    assert list(Path().iterdir()) == [loop]
    for value in HOSTILE_TEXTS[4:]:
        check_refused(sublayer, *before, f"{option.name}={value}", may_be_accepted=True)


CHANGING = ("plan", "train", "compare", "evaluate", "generate", "translate", "tokenize", "export")
AFTER = {"generate": ["--prompt", "a"], "tokenize": ["--text", "a"], "export": ["--out", "new"]}


@pytest.mark.parametrize("command, value", rows(product(CHANGING, HOSTILE_TEXTS), 10), ids=len)
def test_an_argument_that_no_file_takes_is_refused(sublayer, command, value, loop):
    before = ["huggingface"] if command == "export" else []
    check_refused(sublayer, command, *before, value, *AFTER.get(command, []))
    assert list(Path().iterdir()) == [loop]


@pytest.mark.parametrize("arguments, message", [
    ({"length_penalty": float("nan")}, "^--length-penalty nan must be finite$"),
    ({"runs": [Path("a\udcff")]}, r"^RUN 'a\\udcff' is not valid UTF-8"),
    ({"runs": ["a", "b\0"]}, r"^RUN 'b\\x00' contains a null"),
])  # fmt: skip
def test_an_argument_is_named_as_the_user_wrote_it(arguments, message):
    with pytest.raises(errors.ConfigError, match=message):
        COMMANDS["evaluate"](**arguments)


def test_a_comparison_of_too_many_values_is_refused_uncounted(sublayer):
    values = ",".join(map(str, range(1, 100)))
    fields = ("n_layers", "d_model", "n_heads", "d_ff", "max_len")
    refusal = sublayer("plan", "gpt", *(f"--vary=model.{field}={values}" for field in fields))
    assert "--vary: 9,509,900,499 combinations of values: give at most 500" in refusal.err


@pytest.fixture(params=SHELLS)
def shell(request):
    return request.param


@pytest.fixture
def ask(shell, sublayer, monkeypatch):
    """Ask what the last word of a line becomes, as a shell does; return whole words."""

    def replies(line):
        length = len(f"sublayer {line}".encode())
        asked = {"LINE": f"sublayer {line} and what follows", "POINT": str(length)}
        for name, value in {**asked, "WORDBREAKS": " \t\n\"'@><;|&("}.items():
            monkeypatch.setenv(f"COMP_{name}", value)
        monkeypatch.setenv(cli.VARIABLE, shell)
        out = sublayer(*([] if shell == "bash" else line.split(" "))).shown()
        assert out != "\n"
        lines = [each for each in out.splitlines() if each]
        if shell == "bash":
            assert all(each.endswith(" ") != each.endswith("=") for each in lines)
        return [each.partition("\t")[0].rstrip(" ") for each in lines]

    return replies


def test_commands_options_and_their_choices_are_completed(ask):
    assert ask("") == list(cli.COMMANDS)
    assert (ask("tr"), ask("--v"), ask("nothing a")) == (["train", "translate"], ["--version"], [])
    assert ask("evaluate runs/a --str") == ["--stride"]
    assert "--resume" in ask("train gpt --")
    assert "--resume" not in ask("train gpt --resume --")
    assert "--vary" in ask("compare gpt --vary model.ffn=gelu,relu --")
    assert ask("evaluate runs/a --split ") == ["valid", "test"]
    assert ask("evaluate runs/a --split=te") == ["--split=test"]
    assert (ask("import f"), ask("plan gpt --device cu")) == (["fairseq"], ["cuda"])
    assert (ask("tokenize --corpus en"), ask("completion fi")) == (["enwik8"], ["fish"])
    assert ask("plan char-depth --scale ") == list(study_scales("char-depth"))


def test_recipes_fields_and_their_choices_are_completed(ask):
    assert ask("train ") == list(shipped_recipes())
    assert set(ask("compare ")) == {*shipped_recipes(), *shipped_studies()}
    assert ask("compare gpt mac") == [name for name in shipped_recipes() if name[:3] == "mac"]
    assert ask("train gpt model.d_f") == ["model.d_ff="]
    assert ask("train gpt ") == [f"{key}=" for key in keys()]
    assert ask("train gpt model.ffn=") == [f"model.ffn={name}" for name in FFNS]
    assert ask("train gpt model.ffn=gelu model.bias=t") == ["model.bias=true"]
    assert ask("compare gpt model.n_layers=2 data.tokenizer=by") == ["data.tokenizer=bytes"]
    assert ask("train gpt optimizer.kind=la") == ["optimizer.kind=lamb"]
    assert ask("compare gpt --vary model.ff") == ["model.ffn="]
    varied = "model.ffn=gelu,sw"
    assert ask(f"compare gpt --vary {varied}") == [f"{varied}ish", f"{varied}iglu"]
    assert ask("fields model.d_f") == ["model.d_ff"]
    # Files are left to the shell.
    assert ask("train gpt data.path=") == ask("train gpt --out ") == ask("export runs/a ") == []


def test_runs_below_runs_are_completed(ask, trained, tmp_path, monkeypatch):
    shutil.copytree(trained, tmp_path / "runs/bäume")
    shutil.copytree(trained, tmp_path / "runs/ffn/arms/0-gelu/seed-0")
    (tmp_path / "runs/ffn/study.toml").touch()
    monkeypatch.chdir(tmp_path)
    assert ask("evaluate ") == ["runs/bäume"]
    assert ask("train gpt init.run=") == ["init.run=runs/bäume"]
    assert ask("report r") == ["runs/bäume", "runs/ffn"]
    assert ask("inspect layers runs/b") == ["runs/bäume"]
    assert ask("inspect layers runs/bäume runs/b") == ["runs/bäume"]
    assert ask("generate runs/ffn/arms/") == ["runs/ffn/arms/0-gelu/seed-0"]


def test_bash_replaces_the_part_behind_its_word_breaks(sublayer, monkeypatch):
    expected = {"train gpt model.ffn=sw": "swish \nswiglu \n", "recipes 'lla": "llama-2023 \n"}
    for line, words in expected.items():
        asked = {"COMP_LINE": f"sublayer {line}", "COMP_POINT": str(len(line) + 9)}
        for name, value in {cli.VARIABLE: "bash", "COMP_WORDBREAKS": " \t\n=:", **asked}.items():
            monkeypatch.setenv(name, value)
        assert sublayer().out == words


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_word_comes_with_its_description(sublayer, monkeypatch, shell):
    monkeypatch.setenv(cli.VARIABLE, shell)
    assert sublayer("rep").out == f"report\t{cli.COMMANDS['report']}\n"
    name, _, description = sublayer("train", "gpt", "model.d_ff").out.partition("\t")
    assert name == "model.d_ff=" and description.strip()


def test_a_shell_reads_its_script(shell, sublayer):
    script = sublayer("completion", shell).shown()
    assert f"{cli.VARIABLE}={shell}" in script
    program = shutil.which(shell)
    if program:
        assert subprocess.run([program, "-n"], input=script, text=True, check=False).returncode == 0


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_gets_its_words_by_its_script(tmp_path):
    program = tmp_path / "sublayer"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sublayer "$@"\n')
    program.chmod(0o755)
    asked = 'COMP_LINE="sublayer train gpt model.ffn=sw"\nCOMP_POINT=${#COMP_LINE}\n'
    asked += f"_sublayer_completion {program}\nprintf '<%s>' \"${{COMPREPLY[@]}}\""
    words = ["bash", "--norc", "-c", f"{SHELLS['bash'].script}\n{asked}"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "<swish ><swiglu >"


def test_installing_twice_adds_one_line(shell, sublayer, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    settings, path = SHELLS[shell].settings, tmp_path / SHELLS[shell].path
    if settings:
        (tmp_path / settings).write_text("alias a=b")
    assert str(path) in sublayer("completion", "--install").shown()
    assert sublayer("completion", "--install", "--json").answer()["changed"] is None
    assert path.read_text() == SHELLS[shell].script
    if settings:
        assert (tmp_path / settings).read_text() == f"alias a=b\n{SHELLS[shell].line}\n"


def test_the_text_none_is_a_value(sublayer, here):
    assert "None" in sublayer("recipes", "None").refusal()
    arms = ("relu", 1), ("None", 2)
    rows = [f"{arm},{n},{score + n / 7}" for arm, score in arms for n in range(3)]
    (here / "scores.csv").write_text("\n".join(["arm,seed,value", *rows]))
    words = ("scores.csv", "--baseline", "None", "--higher-is-better", "--json")
    assert json.loads(sublayer("judge", *words).out)["baseline"] == "None"
