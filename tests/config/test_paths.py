"""A run means the same from every folder."""

from pathlib import Path

import pytest

from sublayer.config.layers import load_recipe
from sublayer.config.paths import anchored


@pytest.mark.parametrize("name", ["tokenizer.json", "deep/spiece.model", "vocab.txt"])
def test_a_tokenizer_s_file_is_anchored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = anchored(load_recipe("gpt", [f"data.tokenizer={name}"]).recipe)
    assert recipe.data.tokenizer == str(tmp_path / name)


@pytest.mark.parametrize("kind", ["bytes", "unigram", "wordpiece", "moses-bpe"])
def test_a_kind_of_tokenizer_is_no_path(kind: str) -> None:
    assert anchored(load_recipe("gpt", [f"data.tokenizer={kind}"]).recipe).data.tokenizer == kind
