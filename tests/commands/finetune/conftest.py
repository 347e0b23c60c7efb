"""A small encoder, fine-tuned once on a table of reviews."""

import os
from pathlib import Path

import pytest

from sublayer import cli
from tests.commands.finetune.reviews import reviews, write_csv

TINY = (
    "model.n_layers=1",
    "model.d_model=32",
    "model.n_heads=2",
    "model.d_embed=32",
    "data.tokenizer=wordpiece",
    "data.vocab_size=120",
    "data.context=24",
    "optimizer.kind=adamw",
    "optimizer.lr=1e-2",
    "train.steps=60",
    "train.batch_sequences=16",
    "train.evaluate_steps=30",
    "train.precision=float32",
    "train.threads=1",
)
"""What makes ``albert-small`` learn the table in a second."""


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
    before = Path.cwd()
    os.chdir(folder)
    try:
        words = ("--text", "review", "--label", "stars", "--group", "film", *TINY)
        assert cli.main(["finetune", "albert-small", "my.csv", *words]) == 0
    finally:
        os.chdir(before)
    return folder / "runs" / "my"
