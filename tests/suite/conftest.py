"""Models of four kinds, each trained for two steps on one small text, and the files of a suite."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sublayer import cli
from tests.commands.results import Result
from tests.task_files import write_rte, write_sst2

_TRAINING = (
    *("train.steps=2", "train.batch_sequences=2", "train.evaluate_steps=2"),
    *("train.evaluate_tokens=256", "train.precision=float32", "train.threads=1"),
    *("model.n_layers=1", "data.vocab_size=300", "data.context=48"),
)
KINDS = {
    "dec": ("gpt", "data.tokenizer=bpe", "model.d_model=16", "model.n_heads=2"),
    "lstm": ("gpt", "data.tokenizer=bpe", "model.d_model=16", "model.kind=lstm"),
    "enc": ("albert-small", "model.d_model=16", "model.d_embed=16", "model.n_heads=2"),
    "t5": ("t5-mini", "model.d_model=16", "model.n_heads=2"),
}
Evaluate = Callable[..., Result]


@pytest.fixture(scope="session")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with the runs ``dec``, ``lstm``, ``enc`` and ``t5``, ``text.txt`` and ``glue``."""
    folder = tmp_path_factory.mktemp("suite")
    patch = pytest.MonkeyPatch()
    patch.setenv("SUBLAYER_CACHE", str(folder / "cache"))
    patch.chdir(folder)
    lines = [
        f"the {n} films of year {n % 7} were {'fine' if n % 3 else 'dull'}" for n in range(300)
    ]
    (folder / "text.txt").write_text("\n".join(lines))
    (folder / "other.txt").write_text("\n".join(lines[:60]))
    sizes = {"train": 24, "dev": 8}
    write_rte(write_sst2(folder / "glue", sizes), sizes)
    for name, words in KINDS.items():
        assert cli.main(["train", *words, *_TRAINING, "data.path=text.txt", "--out", name]) == 0
    yield folder
    patch.undo()


@pytest.fixture
def evaluate(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> Evaluate:
    """Evaluate runs by a suite of a text, in the folder of the runs."""
    monkeypatch.chdir(place)

    def run(suite: str, *words: object) -> Result:
        path = tmp_path / "suite.toml"
        path.write_text(suite)
        code = cli.main(["evaluate", *map(str, words), "--suite", str(path)])
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return run
