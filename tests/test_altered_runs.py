"""A run with an altered file: one line of error, or the checkpoint before; nothing is lost."""

from collections import namedtuple
from contextlib import suppress

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given

from sublayer import cli
from sublayer.config.layering.layers import load_recipe
from sublayer.errors import Interrupted, SublayerError
from sublayer.loading import load
from sublayer.runs.run import train_run
from sublayer.training.progress import SilentProgress
from tests.alterations import alterations, copy, make_a_pipe, write_manifest_anew
from tests.breadth import examples, rows
from tests.training.runs import SignalAt

SETTINGS = {"model.n_layers": 1, "model.d_model": 8, "model.n_heads": 2, "data.context": 16}
SETTINGS |= {"train.steps": 8, "train.batch_sequences": 2, "train.precision": "float32"}
SETTINGS |= {"train.threads": 1, "train.evaluate_steps": 3, "train.checkpoint_steps": 2}
SETTINGS |= {"train.evaluate_tokens": 64, "optimizer.warmup_steps": 2}
COMMANDS = ("resume", "evaluate", "generate", "load", "base")
READING_FIRST = (*COMMANDS[1:], "resume")
KEPT = ("recipe.toml", "record.json", "model")
"""Files of a run that a command never writes anew."""
Runs = namedtuple("Runs", "ended interrupted text altered")


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("altered")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
        text = "The cat sat on the mat. Another dog ran over the green fields.\n"
        (folder / "text.txt").write_text(text * 40)
        loaded = load_recipe("gpt", {**SETTINGS, "data.path": str(folder / "text.txt")})
        train_run(loaded, folder / "ended", progress=SilentProgress())
        with pytest.raises(Interrupted):
            train_run(loaded, folder / "interrupted", progress=SignalAt(7))
        yield Runs(*(folder / name for name in ("ended", "interrupted", "text.txt", "altered")))


def words(command, runs):
    run = str(runs.altered)
    given = [f"{key}={value}" for key, value in SETTINGS.items()]
    return {
        "resume": ["train", "gpt", *given, f"data.path={runs.text}", "--out", run, "--resume"],
        "base": ["recipes", run],
        "evaluate": ["evaluate", run, "--split", "valid"],
        "generate": ["generate", run, "--prompt", "The ", "--tokens", "2"],
    }[command]


def files(folder):
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def contents(folder, names):
    paths = [folder / name for name in names]
    return {path.read_bytes() for path in paths if path.is_file() and not path.is_symlink()}


def tried(command, runs, capsys):
    """Run a command on the altered run: it ends well or in a line, and what is the user's stays."""
    if command == "load":
        with suppress(SublayerError):
            load(runs.altered)
        return
    code = cli.main(words(command, runs))
    said = capsys.readouterr().err
    assert code in (cli.DONE, cli.MISTAKE, cli.FAILED) and "Traceback" not in said, said
    errors = [line for line in said.splitlines() if line.startswith("error: ")]
    assert errors == ([] if code == cli.DONE else said.splitlines()[-1:])


def alter_and_try(runs, capsys, number, alteration, commands, *, is_ended, is_listed=False):
    copy(runs.ended if is_ended else runs.interrupted, runs.altered)
    places = [runs.altered / name for name in ("mine.txt", ".mine", "checkpoints/mine.txt")]
    mine = {path: f"mine: {path.name}".encode() for path in places}
    for path, content in mine.items():
        path.write_bytes(content)
    names = [name for name in files(runs.altered) if "mine" not in name.name]
    altered = runs.altered / names[number % len(names)]
    alteration(altered)
    if is_listed:
        write_manifest_anew(altered)
    names = [path for path in files(runs.altered) if path.parts[0] in KEPT]
    if "step-00000007" in altered.parts:
        names.append(altered.relative_to(runs.altered))
    kept = contents(runs.altered, names)
    for command in commands:
        tried(command, runs, capsys)
        assert {path: path.read_bytes() for path in mine} == mine
    assert kept <= contents(runs.altered, files(runs.altered))


_EXAMPLE = {"number": st.integers(0, 10**6), "alteration": alterations()}
_EXAMPLE |= {"commands": st.permutations(COMMANDS).map(lambda names: tuple(names[:2]))}
_EXAMPLE |= {"is_ended": st.booleans(), "is_listed": st.booleans()}


@given(**_EXAMPLE)
@examples(60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_an_altered_run_is_one_line_of_error_or_goes_on(runs, capsys, **example):
    alter_and_try(runs, capsys, **example)


@pytest.mark.parametrize("is_ended", rows([True, False], 1))
def test_no_file_of_a_run_that_became_a_pipe_is_waited_for(runs, capsys, is_ended):
    for number in range(len(files(runs.ended if is_ended else runs.interrupted))):
        alter_and_try(runs, capsys, number, make_a_pipe, READING_FIRST, is_ended=is_ended)
