"""A vocabulary's size is known, or assumed and said, before any text is read."""

from pathlib import Path

import pytest

from sublayer.config.layering.layers import load_recipe
from sublayer.data.tokenizers.characters import CharacterTokenizer
from sublayer.errors import ConfigError
from sublayer.study.budget.vocabulary import expected_vocabulary
from tests.data.sentencepiece.t5 import write_t5


@pytest.mark.parametrize(
    ("settings", "size"),
    [
        ([], 256),
        (["data.tokenizer=bpe"], 8192),
        (["data.tokenizer=bpe", "data.vocab_size=500"], 500),
        (["data.tokenizer=characters", "data.vocab_size=97"], 97),
        (["data.tokenizer=unigram"], 30_000),
        (["data.tokenizer=unigram", "data.vocab_size=900", "data.sentinels=100"], 900),
        (["data.tokenizer=wordpiece"], 30_000),
        (["data.tokenizer=wordpiece", "data.vocab_size=900"], 900),
        (["data.tokenizer=moses-bpe", "data.vocab_size=900"], 900),
        (["data.tokenizer=gpt1-bpe", "data.vocab_size=900"], 900),
    ],
)
def test_a_kind_of_tokenizer_counts_as_what_it_will_train(settings: list[str], size: int) -> None:
    vocabulary = expected_vocabulary(load_recipe("gpt", settings).recipe)
    assert (vocabulary.size, vocabulary.note) == (size, "")


def test_unknown_characters_are_assumed_and_said() -> None:
    vocabulary = expected_vocabulary(load_recipe("gpt", ["data.tokenizer=characters"]).recipe)
    assert vocabulary.size == 256
    assert "counted as 256" in vocabulary.note


def test_the_dictionary_of_moses_bpe_is_assumed_and_said() -> None:
    vocabulary = expected_vocabulary(load_recipe("gpt", ["data.tokenizer=moses-bpe"]).recipe)
    assert vocabulary.size == 32_768
    assert "32640 merges are counted as 32768" in vocabulary.note


@pytest.mark.parametrize(("settings", "size"), [([], 40_478), (["data.merges=8000"], 8478)])
def test_the_characters_beside_gpt1s_merges_are_assumed_and_said(
    settings: list[str], size: int
) -> None:
    recipe = load_recipe("gpt", ["data.tokenizer=gpt1-bpe", *settings]).recipe
    vocabulary = expected_vocabulary(recipe)
    assert vocabulary.size == size
    assert f"{size - 478} merges are counted as {size}" in vocabulary.note


def test_a_tokenizer_s_file_has_its_own_size(tmp_path: Path) -> None:
    CharacterTokenizer("abc").save(tmp_path / "tokenizer.json")
    recipe = load_recipe("gpt", [f"data.tokenizer={tmp_path / 'tokenizer.json'}"]).recipe
    assert expected_vocabulary(recipe).size == 4


def test_sentinels_are_added_to_the_size_of_a_model_that_has_none(tmp_path: Path) -> None:
    path = write_t5(tmp_path / "t5") / "spiece.model"
    sizes = []
    for settings in ([], ["data.sentinels=100"]):
        recipe = load_recipe("gpt", [f"data.tokenizer={path}", *settings]).recipe
        sizes.append(expected_vocabulary(recipe).size)
    assert sizes[1] == sizes[0] + 100


@pytest.mark.parametrize("place", ["model", "checkpoints/step-00000007/model", "."])
def test_the_tokenizer_of_a_run_comes_with_it(tmp_path: Path, place: str) -> None:
    CharacterTokenizer("abcde").save(tmp_path / place / "tokenizer.json")
    assert expected_vocabulary(load_recipe("gpt", [f"init.run={tmp_path}"]).recipe).size == 6


def test_a_run_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no tokenizer\.json"):
        expected_vocabulary(load_recipe("gpt", [f"init.run={tmp_path}"]).recipe)
