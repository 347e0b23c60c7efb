"""Completion as each shell asks for it: by environment variables, line or words, and lines back."""

import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sublayer import cli
from sublayer.commands.completion.scripts import SHELLS, VARIABLE
from sublayer.config.architecture.feedforward import FFNS
from sublayer.config.fields.catalog import keys
from sublayer.config.layering.sources import shipped_recipes
from sublayer.study.definition import shipped_studies, study_scales
from tests.commands.results import Sublayer

Ask = Callable[[str], list[str]]


@pytest.fixture(params=SHELLS)
def shell(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def ask(shell: str, sublayer: Sublayer, monkeypatch: pytest.MonkeyPatch) -> Ask:
    """Ask what the last word of a line becomes, as a shell does; return whole words."""

    def replies(line: str) -> list[str]:
        monkeypatch.setenv(VARIABLE, shell)
        words = line.split(" ")[1:]
        if shell == "bash":
            monkeypatch.setenv("COMP_LINE", f"{line} and what follows")
            monkeypatch.setenv("COMP_POINT", str(len(line.encode())))
            monkeypatch.setenv("COMP_WORDBREAKS", " \t\n\"'@><;|&(")
            result = sublayer()
        else:
            result = sublayer(*words)
        assert (result.code, result.err) == (0, "")
        assert result.out != "\n"
        lines = [each for each in result.out.splitlines() if each]
        if shell == "bash":
            assert all(each.endswith(" ") != each.endswith("=") for each in lines)
            return [each.rstrip(" ") for each in lines]
        return [each.partition("\t")[0] for each in lines]

    return replies


def test_commands_and_options_are_completed(ask: Ask):
    assert ask("sublayer ") == list(cli.COMMANDS)
    assert ask("sublayer tr") == ["train", "translate"]
    assert ask("sublayer --v") == ["--version"]
    assert ask("sublayer evaluate runs/a --str") == ["--stride"]
    assert "--resume" in ask("sublayer train gpt --")
    assert "--resume" not in ask("sublayer train gpt --resume --")
    assert "--vary" in ask("sublayer compare gpt --vary model.ffn=gelu,relu --")
    assert ask("sublayer nothing a") == []


def test_choices_of_options_and_arguments_are_completed(ask: Ask):
    assert ask("sublayer evaluate runs/a --split ") == ["valid", "test"]
    assert ask("sublayer evaluate runs/a --split=te") == ["--split=test"]
    assert ask("sublayer import f") == ["fairseq"]
    assert ask("sublayer plan gpt --device cu") == ["cuda"]
    assert ask("sublayer tokenize --corpus en") == ["enwik8"]
    assert ask("sublayer plan char-depth --scale ") == list(study_scales("char-depth"))
    assert ask("sublayer completion fi") == ["fish"]


def test_recipes_and_studies_are_completed(ask: Ask):
    assert ask("sublayer train ") == list(shipped_recipes())
    assert ask("sublayer recipes mod") == ["modern"]
    assert set(ask("sublayer compare ")) == {*shipped_recipes(), *shipped_studies()}
    assert ask("sublayer compare gpt mac") == [
        each for each in shipped_recipes() if each.startswith("mac")
    ]


def test_fields_are_completed_before_the_equals_sign_and_choices_behind_it(ask: Ask):
    assert ask("sublayer train gpt model.d_f") == ["model.d_ff="]
    assert ask("sublayer train gpt ") == [f"{key}=" for key in keys()]
    assert ask("sublayer train gpt model.ffn=") == [f"model.ffn={name}" for name in FFNS]
    assert ask("sublayer train gpt model.ffn=gelu model.bias=t") == ["model.bias=true"]
    assert ask("sublayer compare gpt model.n_layers=2 data.tokenizer=by") == [
        "data.tokenizer=bytes"
    ]
    assert ask("sublayer train gpt optimizer.kind=la") == ["optimizer.kind=lamb"]
    assert ask("sublayer compare gpt --vary model.ff") == ["model.ffn="]
    assert ask("sublayer compare gpt --vary model.ffn=gelu,sw") == [
        "model.ffn=gelu,swish",
        "model.ffn=gelu,swiglu",
    ]
    assert ask("sublayer fields model.d_f") == ["model.d_ff"]


def test_files_are_left_to_the_shell(ask: Ask):
    assert ask("sublayer train gpt data.path=") == []
    assert ask("sublayer train gpt --out ") == []
    assert ask("sublayer export runs/a ") == []


def test_runs_below_runs_are_completed(
    ask: Ask, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shutil.copytree(trained, tmp_path / "runs/bäume")
    shutil.copytree(trained, tmp_path / "runs/ffn/arms/0-gelu/seed-0")
    (tmp_path / "runs/ffn/study.toml").touch()
    monkeypatch.chdir(tmp_path)
    assert ask("sublayer evaluate ") == ["runs/bäume"]
    assert ask("sublayer train gpt init.run=") == ["init.run=runs/bäume"]
    assert ask("sublayer report r") == ["runs/bäume", "runs/ffn"]
    assert ask("sublayer inspect layers runs/b") == ["runs/bäume"]
    assert ask("sublayer inspect layers runs/bäume runs/b") == ["runs/bäume"]
    assert ask("sublayer generate runs/ffn/arms/") == ["runs/ffn/arms/0-gelu/seed-0"]


def test_bash_replaces_what_stands_behind_its_word_breaks(
    sublayer: Sublayer, monkeypatch: pytest.MonkeyPatch
):
    line = "sublayer train gpt model.ffn=sw"
    for name, value in {
        VARIABLE: "bash",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
        "COMP_WORDBREAKS": " \t\n=:",
    }.items():
        monkeypatch.setenv(name, value)
    assert sublayer().out == "swish \nswiglu \n"
    monkeypatch.setenv("COMP_LINE", "sublayer recipes 'mod")
    monkeypatch.setenv("COMP_POINT", "21")
    assert sublayer().out == "modern \n"


def test_zsh_and_fish_say_what_a_word_is(sublayer: Sublayer, monkeypatch: pytest.MonkeyPatch):
    for shell in ("zsh", "fish"):
        monkeypatch.setenv(VARIABLE, shell)
        assert sublayer("rep").out == f"report\t{cli.COMMANDS['report'][1]}\n"
        (line,) = sublayer("train", "gpt", "model.d_ff").out.splitlines()
        assert line.startswith("model.d_ff=\t")
        assert len(line) > len("model.d_ff=\t")


def test_completion_imports_no_pytorch():
    code = (
        "import os, sys; os.environ['_SUBLAYER_COMPLETE'] = 'zsh'; from sublayer.cli import main; "
        "main(['compare', 'gpt', '']); print('torch' in sys.modules, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "False\n"
    assert "model.d_ff=\t" in done.stdout


def test_a_script_is_printed_and_is_what_its_shell_reads(shell: str, sublayer: Sublayer):
    script = sublayer("completion", shell).shown()
    assert script.rstrip("\n") == SHELLS[shell].script.rstrip("\n")
    assert f"{VARIABLE}={shell}" in script
    program = shutil.which(shell)
    if program:
        assert subprocess.run([program, "-n"], input=script, text=True, check=False).returncode == 0


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_gets_its_words_by_its_script(tmp_path: Path):
    program = tmp_path / "sublayer"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m sublayer "$@"\n')
    program.chmod(0o755)
    lines = [
        SHELLS["bash"].script,
        'COMP_LINE="sublayer train gpt model.ffn=sw"',
        "COMP_POINT=${#COMP_LINE}",
        f"_sublayer_completion {program}",
        "printf '<%s>' \"${COMPREPLY[@]}\"",
    ]
    done = subprocess.run(
        ["bash", "--norc", "-c", "\n".join(lines)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "<swish ><swiglu >"


def test_installing_twice_adds_one_line_to_the_shells_own_file(
    shell: str, sublayer: Sublayer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    settings = SHELLS[shell].settings
    if settings:
        (tmp_path / settings).write_text("alias a=b")
    first = sublayer("completion", "--install").shown()
    assert str(tmp_path / SHELLS[shell].path) in first
    again = sublayer("completion", "--install", "--json").answer()
    assert again["changed"] is None
    assert (tmp_path / SHELLS[shell].path).read_text() == SHELLS[shell].script
    if settings:
        expected = f"alias a=b\n{SHELLS[shell].line}\n"
        assert (tmp_path / settings).read_text() == expected
