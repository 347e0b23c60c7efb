"""Completion as each shell asks for it: by environment variables, line or words, and lines back."""

import shutil
import subprocess
import sys
from collections.abc import Callable

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
        monkeypatch.setenv("COMP_LINE", f"sublayer {line} and what follows")
        monkeypatch.setenv("COMP_POINT", str(len(f"sublayer {line}".encode())))
        monkeypatch.setenv("COMP_WORDBREAKS", " \t\n\"'@><;|&(")
        out = sublayer(*([] if shell == "bash" else line.split(" "))).shown()
        assert out != "\n"
        lines = [each for each in out.splitlines() if each]
        if shell == "bash":
            assert all(each.endswith(" ") != each.endswith("=") for each in lines)
        return [each.partition("\t")[0].rstrip(" ") for each in lines]

    return replies


def test_commands_options_and_their_choices_are_completed(ask):
    assert ask("") == list(cli.COMMANDS)
    assert ask("tr") == ["train", "translate"]
    assert ask("--v") == ["--version"]
    assert ask("nothing a") == []
    assert ask("evaluate runs/a --str") == ["--stride"]
    assert "--resume" in ask("train gpt --")
    assert "--resume" not in ask("train gpt --resume --")
    assert "--vary" in ask("compare gpt --vary model.ffn=gelu,relu --")
    assert ask("evaluate runs/a --split ") == ["valid", "test"]
    assert ask("evaluate runs/a --split=te") == ["--split=test"]
    assert ask("import f") == ["fairseq"]
    assert ask("plan gpt --device cu") == ["cuda"]
    assert ask("tokenize --corpus en") == ["enwik8"]
    assert ask("plan char-depth --scale ") == list(study_scales("char-depth"))
    assert ask("completion fi") == ["fish"]


def test_recipes_fields_and_their_choices_are_completed(ask):
    assert ask("train ") == list(shipped_recipes())
    assert set(ask("compare ")) == {*shipped_recipes(), *shipped_studies()}
    macarons = [name for name in shipped_recipes() if name.startswith("mac")]
    assert ask("compare gpt mac") == macarons
    assert ask("train gpt model.d_f") == ["model.d_ff="]
    assert ask("train gpt ") == [f"{key}=" for key in keys()]
    assert ask("train gpt model.ffn=") == [f"model.ffn={name}" for name in FFNS]
    assert ask("train gpt model.ffn=gelu model.bias=t") == ["model.bias=true"]
    assert ask("compare gpt model.n_layers=2 data.tokenizer=by") == ["data.tokenizer=bytes"]
    assert ask("train gpt optimizer.kind=la") == ["optimizer.kind=lamb"]
    assert ask("compare gpt --vary model.ff") == ["model.ffn="]
    varied = ["model.ffn=gelu,swish", "model.ffn=gelu,swiglu"]
    assert ask("compare gpt --vary model.ffn=gelu,sw") == varied
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


@pytest.mark.parametrize(
    ("line", "breaks", "words"),
    [
        ("sublayer train gpt model.ffn=sw", " \t\n=:", "swish \nswiglu \n"),
        ("sublayer recipes 'mod", " \t\n=:", "modern \n"),
    ],
)
def test_bash_replaces_the_part_behind_its_word_breaks(sublayer, monkeypatch, line, breaks, words):
    asked = {"COMP_LINE": line, "COMP_POINT": str(len(line)), "COMP_WORDBREAKS": breaks}
    for name, value in {VARIABLE: "bash", **asked}.items():
        monkeypatch.setenv(name, value)
    assert sublayer().out == words


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_a_word_comes_with_its_description(sublayer, monkeypatch, shell):
    monkeypatch.setenv(VARIABLE, shell)
    assert sublayer("rep").out == f"report\t{cli.COMMANDS['report'][1]}\n"
    name, _, description = sublayer("train", "gpt", "model.d_ff").out.partition("\t")
    assert name == "model.d_ff=" and description.strip()


def test_a_shell_reads_its_script(shell, sublayer):
    script = sublayer("completion", shell).shown()
    assert f"{VARIABLE}={shell}" in script
    program = shutil.which(shell)
    if program:
        assert subprocess.run([program, "-n"], input=script, text=True, check=False).returncode == 0


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_gets_its_words_by_its_script(tmp_path):
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
    words = ["bash", "--norc", "-c", "\n".join(lines)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert done.stdout == "<swish ><swiglu >"


def test_installing_twice_adds_one_line_to_the_file_of_the_shell(
    shell, sublayer, tmp_path, monkeypatch
):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SHELL", f"/bin/{shell}")
    settings = SHELLS[shell].settings
    if settings:
        (tmp_path / settings).write_text("alias a=b")
    assert str(tmp_path / SHELLS[shell].path) in sublayer("completion", "--install").shown()
    assert sublayer("completion", "--install", "--json").answer()["changed"] is None
    assert (tmp_path / SHELLS[shell].path).read_text() == SHELLS[shell].script
    if settings:
        assert (tmp_path / settings).read_text() == f"alias a=b\n{SHELLS[shell].line}\n"
