"""A small run, trained once, and the commands run in this process."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sublayer import cli
from sublayer.config.layers import load_recipe
from sublayer.run import train_run
from sublayer.train.progress import SilentProgress

TEXT = "The cat sat on the mät. Another dog ran over the green fields while it rained.\n"

Sublayer = Callable[..., tuple[int, str, str]]


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
    """Run a command line and give its exit code, standard output and standard error."""

    def run(*words: object) -> tuple[int, str, str]:
        code = cli.main([str(word) for word in words])
        out, err = capsys.readouterr()
        return code, out, err

    return run
