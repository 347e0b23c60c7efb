"""Small runs, trained once, and the commands run in this process."""

import io
from collections.abc import Callable, Iterable, Iterator
from contextlib import chdir
from pathlib import Path
from types import SimpleNamespace

import pytest

from sublayer import cli
from tests.commands.results import Result, Sublayer
from tests.commands.reviews import reviews, write_csv
from tests.task_files import write_rte

TEXT = "The cat sat on the mät. Another dog ran over the green fields while it rained.\n"

SHORT = [
    *("model.n_layers=1", "model.d_model=32", "model.n_heads=2", "model.d_embed=32"),
    *("data.tokenizer=wordpiece", "data.vocab_size=120", "data.context=24"),
    *("optimizer.kind=adamw", "optimizer.lr=1e-2", "train.batch_sequences=16"),
    *("train.precision=float32", "train.threads=1"),
]
TINY = (*SHORT, "train.steps=60", "train.evaluate_steps=30")
"""What makes ``albert-small`` learn the table in a second; ``SHORT`` is without a length."""

StandardInput = Callable[[Iterable[bytes]], None]


def finetuned(folder: Path, *words: str) -> Path:
    """Fine-tune ``albert-small`` in a folder, and return the run."""
    with chdir(folder):
        assert cli.main(["finetune", "albert-small", *words]) == 0
    return folder / words[words.index("--out") + 1]


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
    words = (
        *("model.n_layers=1", "model.d_model=16", "model.n_heads=2", "data.context=32"),
        *("train.steps=4", "train.batch_sequences=2", "train.precision=float32"),
        *("train.threads=1", f"data.path={folder / 'text.txt'}", "--out", f"{folder / 'run'}"),
    )
    assert cli.main(["train", "gpt", *words]) == 0
    return folder / "run"


@pytest.fixture
def sublayer(capsys: pytest.CaptureFixture[str], own_cache: None) -> Sublayer:
    """Run a command line, and return its exit code, standard output and standard error."""

    def run(*words: object) -> Result:
        capsys.readouterr()  # of what made the files
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


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_cache: None) -> Path:
    """An empty working folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def reviewer(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Path:
    """The folder of a run that was trained on ``my.csv`` beside its ``runs``."""
    folder = tmp_path_factory.mktemp("reviewer")
    write_csv(folder / "my.csv", reviews(240))
    columns = ("--text", "review", "--label", "stars", "--group", "film")
    return finetuned(folder, "my.csv", *columns, *TINY, "--out", "runs/my")


@pytest.fixture(scope="session")
def entailed(tmp_path_factory: pytest.TempPathFactory, own_cache: None) -> Path:
    """A run of one step on RTE, in ``glue`` beside it."""
    folder = tmp_path_factory.mktemp("entailed")
    write_rte(folder / "glue")
    words = ("rte", "--data", "glue", *SHORT, "train.steps=1", "--out", "rte")
    return finetuned(folder, *words)
