import errno
import json
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import takewhile
from pathlib import Path
from types import ModuleType
from typing import Annotated

import pytest
import typer

from sublayer import cli, errors
from sublayer.commands.shared.base import JsonOption, RecipeArgument, SettingsArgument, emit
from tests.stopping import stopped_at

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def run_in_process(*words: str) -> tuple[int, str, str]:
        code = cli.main(words)
        out, err = capsys.readouterr()
        return code, out, err

    return run_in_process


@pytest.fixture
def register(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., None]], None]:
    """Add a command named ``probe`` to those that there are."""

    def add(command: Callable[..., None]) -> None:
        module = ModuleType("sublayer.commands.probe")
        module.command, module.EXAMPLE = command, "sublayer probe"  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "sublayer.commands.probe", module)
        monkeypatch.setitem(cli.COMMANDS, "probe", ("probe", "Try the frame."))

    return add


def outside(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "sublayer", *words], capture_output=True, text=True, check=False
    )


def one_line(err: str) -> str:
    assert err.startswith("error: ")
    assert err.endswith("\n")
    assert err.count("\n") == 1
    return err.removeprefix("error: ").rstrip("\n")


def test_help_lists_every_command_in_a_line_each(run: Run):
    code, out, err = run("--help")
    assert (code, err) == (0, "")
    listed = [
        line.split()[0] for line in out.partition("Commands:")[2].splitlines() if line[2:3].strip()
    ]
    assert listed == list(cli.COMMANDS)
    assert run() == (code, out, err)


def test_help_imports_nothing_slow():
    code = (
        "import sys; from sublayer.cli import main; main(['--help']); "
        "print(sorted(sys.modules), file=sys.stderr)"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stderr
    assert "'sublayer.cli'" in loaded
    assert not [
        name
        for name in ("torch", "pydantic", "numpy", "scipy", "rich", "matplotlib")
        if f"'{name}'" in loaded
    ]


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_has_help_with_an_example_that_it_accepts(name: str, run: Run):
    module = import_module(f"sublayer.commands.{cli.COMMANDS[name][0]}")
    words = list(takewhile(lambda word: word != "<", shlex.split(module.EXAMPLE)))
    assert words[:2] == ["sublayer", name]
    code, out, err = run(name, "--help")
    assert (code, err) == (0, "")
    assert f"Example: {module.EXAMPLE}\n" in out
    assert "--json" in out
    app = typer.Typer()
    app.command()(module.command)
    typer.main.get_command(app).make_context(name, words[2:])


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["recips"], "No such command 'recips'. Did you mean 'recipes'?"),
        (["zzzzzz"], "No such command 'zzzzzz'; see `sublayer --help`"),
        (["recipes", "--jsn"], "there is no option --jsn: did you mean --json?"),
        (["recipes", "--zzzzzz"], "No such option: --zzzzzz; see `sublayer recipes --help`"),
        (["--zzzzzz"], "No such option: --zzzzzz; see `sublayer --help`"),
        (
            ["recipes", "gpt", "--model.d_ff=3"],
            "there is no option --model.d_ff: settings are written model.d_ff=VALUE",
        ),
        (
            ["fields", "model", "train"],
            "Got unexpected extra argument(s) (train); see `sublayer fields --help`",
        ),
        (["recipes", "runs/gone"], "there is no run runs/gone: sublayer runs lists"),
        (["recipes", "gtp"], "'gtp' is not a recipe, a .toml file or a run: did you mean gpt?"),
        (
            ["recipes", "gpt", "model.n_layer=3"],
            "model.n_layer is not a field: did you mean model.n_layers?",
        ),
        (
            ["train", "gpt", "--setps", "3"],
            "there is no option --setps: settings are written train.steps=VALUE",
        ),
        (["train", "gpt", "--resme"], "there is no option --resme: did you mean --resume?"),
        (
            ["fields", "d_mdoel"],
            "no field is called 'd_mdoel', and no description has it: did you mean model.d_model?",
        ),
        (
            ["fields", "modle"],
            "no field is called 'modle', and no description has it: did you mean model?",
        ),
    ],
)
def test_a_mistake_is_one_line_on_stderr_and_exit_2(words: list[str], says: str, run: Run):
    code, out, err = run(*words)
    assert (code, out) == (2, "")
    assert one_line(err).startswith(says)
    assert run(*words, "--json")[:2] == (2, "")


def test_a_missing_argument_is_a_mistake(register: Callable[[Callable[..., None]], None], run: Run):
    def probe(
        recipe: RecipeArgument, count: Annotated[int, typer.Option("--count")] = 1
    ) -> None: ...

    register(probe)
    assert one_line(run("probe")[2]) == "Missing argument 'RECIPE'; see `sublayer probe --help`"
    assert one_line(run("probe", "gpt", "--count", "x")[2]).startswith(
        "--count must be a whole number; see `sublayer probe --help`"
    )
    assert run("probe", "gpt", "--count")[0] == 2


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (errors.ConfigError("model.d_ff is wrong"), 2, "error: model.d_ff is wrong"),
        (errors.DataError("a.txt is\nempty"), 2, "error: a.txt is empty"),
        (errors.CheckpointError("no checkpoint"), 2, "error: no checkpoint"),
        (errors.TrainingError("loss is nan at step 3"), 3, "error: loss is nan at step 3"),
        (errors.Interrupted("interrupted at step 3"), 130, "interrupted at step 3"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (
            OSError(errno.ENOSPC, "No space left on device", "runs/a"),
            2,
            "error: runs/a: the disk is full: free some space",
        ),
        (
            PermissionError(errno.EACCES, "Permission denied", "/a"),
            2,
            "error: /a: permission denied",
        ),
        (
            FileNotFoundError(errno.ENOENT, "No such file", "a.txt"),
            2,
            "error: a.txt: there is no such file",
        ),
        (OSError(errno.EIO, "Input/output error"), 2, "error: Input/output error"),
        (OSError("written in part"), 2, "error: written in part"),
    ],
)
def test_each_error_has_its_exit_code_and_one_line(
    error: BaseException,
    code: int,
    line: str,
    register: Callable[[Callable[..., None]], None],
    run: Run,
):
    def probe() -> None:
        raise error

    register(probe)
    assert run("probe") == (code, "", line + "\n")


def test_a_bug_is_raised_as_it_is(register: Callable[[Callable[..., None]], None]):
    def probe() -> None:
        raise ZeroDivisionError

    register(probe)
    with pytest.raises(ZeroDivisionError):
        cli.main(["probe"])


def test_settings_and_options_come_in_any_order(
    register: Callable[[Callable[..., None]], None], run: Run
):
    def probe(
        recipe: RecipeArgument,
        settings: SettingsArgument = None,
        out: Annotated[Path | None, typer.Option("--out")] = None,
        as_json: JsonOption = False,
    ) -> None:
        emit({"recipe": recipe, "settings": settings, "out": out}, as_json, str)

    register(probe)
    for words in (
        "gpt a=1 --out runs/a b=2 --json",
        "--json gpt --out runs/a a=1 b=2",
        "--out=runs/a gpt a=1 b=2 --json",
    ):
        assert json.loads(run("probe", *words.split())[1]) == {
            "recipe": "gpt",
            "settings": ["a=1", "b=2"],
            "out": "runs/a",
        }


def test_with_json_only_the_object_is_on_stdout(
    register: Callable[[Callable[..., None]], None], run: Run
):
    def probe(as_json: JsonOption = False) -> None:
        print("a library that talks")
        emit(
            {"loss": float("nan"), "steps": [1, 2.5], "path": Path("a")},
            as_json,
            lambda result: "text",
        )

    register(probe)
    code, out, err = run("probe", "--json")
    assert (code, err) == (0, "a library that talks\n")
    assert json.loads(out) == {"loss": None, "steps": [1, 2.5], "path": "a"}
    assert run("probe") == (0, "a library that talks\ntext\n", "")


def test_exit_codes_reach_the_shell():
    mistake = outside("recipes", "gtp", "--json")
    assert (mistake.returncode, mistake.stdout) == (2, "")
    assert "did you mean gpt?" in one_line(mistake.stderr)


def test_a_result_that_a_full_disk_does_not_take_is_one_line_and_exit_1():
    with Path("/dev/full").open("w") as full:
        words = [sys.executable, "-m", "sublayer", "fields"]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert one_line(done.stderr) == "the result cannot be printed: standard output is full"


def test_a_reader_that_leaves_early_is_no_error():
    words = [sys.executable, "-m", "sublayer", "fields"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait() == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_stopped_while_it_is_set_up_exits_130_and_leaves_nothing(
    tmp_path: Path, number: int
):
    (tmp_path / "text.txt").write_text("The cat sat on the mat.\n" * 500)
    words = [
        "train",
        "gpt",
        f"data.path={tmp_path / 'text.txt'}",
        "train.steps=1",
        "--out",
        str(tmp_path / "run"),
    ]
    # The run's folder is there before the text is read.
    command = stopped_at([("open", "run/.sublayer-lock"), ("open", "text.txt")], number, *words)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr.splitlines()[-1] == "interrupted"
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "run").exists()
