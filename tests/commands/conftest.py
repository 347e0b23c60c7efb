"""Small runs, trained once, and the commands run in this process."""

import io
from contextlib import chdir
from types import SimpleNamespace

import pytest

from sublayer.cli import main as cli
from tests.commands.reviews import reviews, write_csv
from tests.commands.translators import sentences, train_translator, write_pair
from tests.task_files import write_rte

TEXT = "The cat sat on the mät. Another dog ran over the green fields while it rained.\n"
PLAIN = ("model.n_layers=1", "model.n_heads=2", "train.precision=float32", "train.threads=1")
SMALL = (*PLAIN, "model.d_model=16", "data.context=32")
SHORT = (
    *PLAIN, "model.d_model=32", "model.d_embed=32", "data.tokenizer=wordpiece", "data.context=24",
    "data.vocab_size=120", "optimizer.kind=adamw", "optimizer.lr=1e-2", "train.batch_sequences=16",
)  # fmt: skip
TINY = (*SHORT, "train.steps=60", "train.evaluate_steps=30")
"""What makes ``albert-small`` learn the table in a second; ``SHORT`` is without a length."""


def finetuned(folder, *words):
    with chdir(folder):
        assert cli.main(["finetune", "albert-small", *words]) == 0
    return folder / words[words.index("--out") + 1]


@pytest.fixture(scope="session")
def trained(tmp_path_factory, own_cache):
    folder = tmp_path_factory.mktemp("trained")
    (folder / "text.txt").write_text(TEXT * 300)
    words = (*SMALL, "train.steps=4", "train.batch_sequences=2", f"data.path={folder}/text.txt")
    assert cli.main(["train", "gpt", *words, "--out", f"{folder}/run"]) == 0
    return folder / "run"


@pytest.fixture
def standard_input(monkeypatch):
    """Set what the next command reads from standard input: a text, or lines as they come."""

    def give(given):
        buffer = io.BytesIO(given) if isinstance(given, bytes) else given
        monkeypatch.setattr("sys.stdin", SimpleNamespace(buffer=buffer, isatty=lambda: False))

    return give


@pytest.fixture
def here(tmp_path, monkeypatch, own_cache):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(scope="session")
def reviewer(tmp_path_factory, own_cache):
    folder = tmp_path_factory.mktemp("reviewer")
    write_csv(folder / "my.csv", reviews(240))
    columns = ("--text", "review", "--label", "stars", "--group", "film")
    return finetuned(folder, "my.csv", *columns, *TINY, "--out", "runs/my")


@pytest.fixture(scope="session")
def entailed(tmp_path_factory, own_cache):
    folder = tmp_path_factory.mktemp("entailed")
    write_rte(folder / "glue")
    return finetuned(folder, "rte", "--data", "glue", *SHORT, "train.steps=1", "--out", "rte")


@pytest.fixture(scope="session")
def translator(tmp_path_factory):
    folder = tmp_path_factory.mktemp("translator")
    words = ("a cat dog sees the and runs", "ein Kater Hund sieht der und rennt")
    write_pair(folder, *(sentences(each.split(), 240, longest=6) for each in words))
    settings = {"data__lowercase": False, "data__vocab_size": 60, "train__evaluate_steps": 25}
    return train_translator(folder, **settings, train__best_by="bleu", train__keep_checkpoints=3)


@pytest.fixture
def translate(sublayer, standard_input):
    def run(model, given, *options):
        standard_input(given)
        return sublayer("translate", model, *options)

    return run
