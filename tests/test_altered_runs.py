"""A run with an altered file: one line of error, or the checkpoint before; nothing is lost."""

import os
import signal
import stat
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import HealthCheck, given, settings

from sublayer import cli
from sublayer.config.layering.layers import load_recipe
from sublayer.errors import Interrupted, SublayerError
from sublayer.loading import load
from sublayer.runs.run import train_run
from sublayer.training.progress import SilentProgress
from tests.alterations import Alteration, alterations, copy, make_a_pipe, write_manifest_anew
from tests.breadth import examples, rows

SETTINGS = {
    "model.n_layers": 1,
    "model.d_model": 8,
    "model.n_heads": 2,
    "data.context": 16,
    "train.steps": 8,
    "train.batch_sequences": 2,
    "train.precision": "float32",
    "train.threads": 1,
    "train.evaluate_steps": 3,
    "train.checkpoint_steps": 2,
    "train.evaluate_tokens": 64,
    "optimizer.warmup_steps": 2,
}
COMMANDS = ("resume", "evaluate", "generate", "load", "base")


@dataclass(frozen=True)
class Runs:
    """A run that has ended and one that was interrupted, with their text and room for copies."""

    ended: Path
    interrupted: Path
    text: Path
    altered: Path


class _InterruptedAt(SilentProgress):
    def update(self, status):
        if status.step == 7:
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("altered")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
        (folder / "text.txt").write_text(
            "The cat sat on the mat. Another dog ran over the green fields.\n" * 40
        )
        loaded = load_recipe("gpt", {**SETTINGS, "data.path": str(folder / "text.txt")})
        train_run(loaded, folder / "ended", progress=SilentProgress())
        with pytest.raises(Interrupted):
            train_run(loaded, folder / "interrupted", progress=_InterruptedAt())
        yield Runs(
            folder / "ended", folder / "interrupted", folder / "text.txt", folder / "altered"
        )


def words(command: str, runs: Runs) -> list[str]:
    run = str(runs.altered)
    given = [f"{key}={value}" for key, value in SETTINGS.items()]
    if command == "resume":
        return ["train", "gpt", *given, f"data.path={runs.text}", "--out", run, "--resume"]
    if command == "base":
        return ["recipes", run]
    if command == "evaluate":
        return ["evaluate", run, "--split", "valid"]
    return ["generate", run, "--prompt", "The ", "--tokens", "2"]


def files(folder: Path) -> list[Path]:
    return sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())


def contents(folder: Path, wanted: Callable[[Path], bool] = lambda name: True) -> set[bytes]:
    """Read the files below a folder whose names in it are wanted, links and pipes left out."""
    paths = (path for path in folder.rglob("*") if wanted(path.relative_to(folder)))
    return {path.read_bytes() for path in paths if stat.S_ISREG(path.lstat().st_mode)}


def tried(command: str, runs: Runs, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a command on the altered run: it ends well or in a line, and what is the user's stays."""
    if command == "load":
        with suppress(SublayerError):
            load(runs.altered)
        return
    code = cli.main(words(command, runs))
    said = capsys.readouterr().err
    assert code in (cli.DONE, cli.MISTAKE, cli.FAILED), said
    assert "Traceback" not in said
    if code != cli.DONE:
        lines = said.splitlines()
        assert (
            lines[-1].startswith("error: ")
            and sum(line.startswith("error: ") for line in lines) == 1
        )


def alter_and_try(
    runs: Runs,
    number: int,
    alteration: Alteration,
    commands: tuple[str, ...],
    capsys: pytest.CaptureFixture[str],
    *,
    is_ended: bool,
    is_listed: bool,
) -> None:
    copy(runs.ended if is_ended else runs.interrupted, runs.altered)
    mine = {
        runs.altered / name: f"mine: {name}".encode()
        for name in ("mine.txt", ".mine", "checkpoints/mine.txt")
    }
    for path, content in mine.items():
        path.write_bytes(content)
    names = [name for name in files(runs.altered) if "mine" not in name.name]
    altered = runs.altered / names[number % len(names)]
    alteration(altered)
    if is_listed:
        write_manifest_anew(altered)
    kept = contents(
        runs.altered, lambda name: name.parts[0] in ("recipe.toml", "record.json", "model")
    )
    if "step-00000007" in altered.parts:
        kept |= contents(runs.altered, lambda name: name == altered.relative_to(runs.altered))
    for command in commands:
        tried(command, runs, capsys)
        assert {path: path.read_bytes() for path in mine} == mine
    assert kept <= contents(runs.altered)


_EXAMPLE = {
    "number": st.integers(0, 10**6),
    "alteration": alterations(),
    "commands": st.permutations(COMMANDS).map(lambda names: tuple(names[:2])),
    "is_ended": st.booleans(),
    "is_listed": st.booleans(),
}
_SHARED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow]


@given(**_EXAMPLE)
@settings(max_examples=12, suppress_health_check=_SHARED)
def test_an_altered_run_is_one_line_of_error_or_goes_on(runs, capsys, **example) -> None:
    alter_and_try(
        runs,
        example.pop("number"),
        example.pop("alteration"),
        example.pop("commands"),
        capsys,
        **example,
    )


@pytest.mark.all
@given(**_EXAMPLE)
@examples(400, suppress_health_check=_SHARED)
def test_altered_runs_at_length(runs, capsys, **example) -> None:
    alter_and_try(
        runs,
        example.pop("number"),
        example.pop("alteration"),
        example.pop("commands"),
        capsys,
        **example,
    )


@pytest.mark.parametrize("is_ended", rows([True, False], 1), ids=str)
def test_no_file_of_a_run_that_became_a_pipe_is_waited_for(runs, capsys, is_ended: bool) -> None:
    mine = ("mine.txt", ".mine")
    names = [
        name
        for name in files(runs.ended if is_ended else runs.interrupted)
        if name.name not in mine
    ]
    for number in range(len(names)):
        for command in COMMANDS:
            alter_and_try(
                runs, number, make_a_pipe, (command,), capsys, is_ended=is_ended, is_listed=False
            )
