"""A small run, trained once, and the commands run in this process."""

import io
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from sublayer import cli
from sublayer.config.layering.layers import load_recipe
from sublayer.runs.run import train_run
from sublayer.training.progress import SilentProgress
from tests.commands.results import Result, Sublayer

TEXT = "The cat sat on the mät. Another dog ran over the green fields while it rained.\n"

StandardInput = Callable[[Iterable[bytes]], None]


@pytest.fixture(scope="session")
def own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A cache of these tests' own."""
    patch = pytest.MonkeyPatch()
    patch.setenv("SUBLAYER_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Path:
    """The folder of a run on bytes, beside its text ``text.txt``."""
    folder = tmp_path_factory.mktemp("trained")
    (folder / "text.txt").write_text(TEXT * 300)
    settings = {
        "model.n_layers": 1,
        "model.d_model": 16,
        "model.n_heads": 2,
        "data.path": str(folder / "text.txt"),
        "data.context": 32,
        "train.steps": 4,
        "train.batch_sequences": 2,
        "train.precision": "float32",
        "train.threads": 1,
    }
    train_run(load_recipe("gpt", settings), folder / "run", progress=SilentProgress())
    return folder / "run"


@pytest.fixture
def sublayer(capsys: pytest.CaptureFixture[str], own_cache: None) -> Sublayer:
    """Run a command line, and return its exit code, standard output and standard error."""

    def run(*words: object) -> Result:
        code = cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return run


@pytest.fixture
def standard_input(monkeypatch: pytest.MonkeyPatch) -> StandardInput:
    """Set what the next command reads from standard input: a text, or lines as they come."""

    def give(given: Iterable[bytes]) -> None:
        buffer = io.BytesIO(given) if isinstance(given, bytes) else given
        stream = SimpleNamespace(buffer=buffer, isatty=lambda: False)
        monkeypatch.setattr("sys.stdin", stream)

    return give
