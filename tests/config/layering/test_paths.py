"""A run means the same from every folder."""

from pathlib import Path

import pytest

from sublayer.config.data import DataConfig
from sublayer.config.layering.layers import load_recipe
from sublayer.config.layering.paths import absolute_paths
from sublayer.config.recipe import Recipe


@pytest.mark.parametrize("name", ["tokenizer.json", "deep/code"])
def test_a_tokenizer_s_file_is_anchored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(tmp_path)
    recipe = absolute_paths(load_recipe("gpt", [f"data.tokenizer={name}"]).recipe)
    assert recipe.data.tokenizer == str(tmp_path / name)


@pytest.mark.parametrize("kind", ["bytes", "moses-bpe"])
def test_a_kind_of_tokenizer_is_no_path(kind: str) -> None:
    assert (
        absolute_paths(load_recipe("gpt", [f"data.tokenizer={kind}"]).recipe).data.tokenizer == kind
    )


def test_paths_are_made_absolute_and_data_sets_of_the_hub_and_urls_are_not(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = DataConfig(
        path=("a/../b.txt", "hub:owner/name:config@train", "https://owner.org/a.txt"),
        valid_path="hub:owner/other",
    )
    found = absolute_paths(Recipe(data=data)).data
    assert found.path == (
        str(Path.cwd() / "b.txt"),
        "hub:owner/name:config@train",
        "https://owner.org/a.txt",
    )
    assert found.valid_path == "hub:owner/other"


def test_a_corpus_that_is_scored_is_no_path():
    given = ["data.test_path=albert-intrinsic", "data.valid_path=squad-dev", "data.path=squad-dev"]
    found = absolute_paths(load_recipe("albert-small", given).recipe).data
    assert (found.test_path, found.valid_path) == ("albert-intrinsic", "squad-dev")
    assert found.path == str(Path("squad-dev").absolute())
