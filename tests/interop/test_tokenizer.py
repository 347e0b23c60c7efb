"""Tokenizers go along with GPT-2 models in both directions, and make the same ids."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from tokenizers import decoders, models, pre_tokenizers, trainers

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import CheckpointError
from sublayer.interop.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.loading import load
from sublayer.model.build import build

SaveGpt2 = Callable[..., tuple[Path, Any]]
TEXT = "Zwölf Boxkämpfer jagen  Viktor\nquer über den Sylter Deich; 日本 don't\t <|endo"
TRAINING = [
    "the cat sat on the mat and the dog sat on the cat",
    "Zwölf Boxkämpfer über den Deich",
] * 9


def library_tokenizer(vocab_size: int) -> tokenizers.Tokenizer:
    trained = tokenizers.Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    trained.train_from_iterator(TRAINING, trainer)
    return trained


@pytest.mark.parametrize("files", ["tokenizer.json", "vocab.json and merges.txt"])
def test_an_imported_tokenizer_makes_the_ids_of_the_library(
    save_gpt2: SaveGpt2, tmp_path: Path, files: str
) -> None:
    folder, _ = save_gpt2(vocab_size=290)
    theirs = library_tokenizer(280)
    if files == "tokenizer.json":
        theirs.save(str(folder / files))
    else:
        theirs.model.save(str(folder))
    import_huggingface(folder, tmp_path / "imported")
    ours = load(tmp_path / "imported").tokenizer
    assert ours.encode(TEXT.encode()).tolist() == theirs.encode(TEXT).ids
    assert ours.decode(ours.encode(TEXT.encode())) == TEXT.encode()
    assert ours.is_lossless
    assert ours.end_id == theirs.token_to_id("<|endoftext|>")


def test_a_tokenizer_of_another_model_is_refused(save_gpt2: SaveGpt2) -> None:
    folder, _ = save_gpt2(vocab_size=279)
    library_tokenizer(280).save(str(folder / "tokenizer.json"))
    with pytest.raises(CheckpointError, match=r"has 280 ids, the model's vocab_size is 279"):
        read_huggingface(folder)


@pytest.mark.parametrize("kind", ["bytes", "bpe"])
def test_an_exported_tokenizer_makes_the_same_ids_in_transformers(
    tmp_path: Path, kind: str
) -> None:
    from transformers import AutoTokenizer

    ours = train_tokenizer(kind, [text.encode() for text in TRAINING], vocab_size=280)
    export(ours, tmp_path / "exported")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "exported")
    ids = ours.encode(TEXT.encode()).tolist()
    assert theirs(TEXT).input_ids == ids
    assert theirs.decode(ids) == TEXT
    assert theirs.eos_token_id == ours.end_id
    again = read_huggingface(tmp_path / "exported").tokenizer
    assert again is not None
    assert again.encode(TEXT.encode()).tolist() == ids


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_a_lossy_tokenizer_makes_the_same_ids_in_transformers_and_adds_none(
    tmp_path: Path, kind: str
) -> None:
    from transformers import AutoTokenizer

    ours = train_tokenizer(kind, [text.encode() for text in TRAINING], vocab_size=120)
    export(ours, tmp_path / "exported")
    theirs = AutoTokenizer.from_pretrained(tmp_path / "exported")
    assert theirs("Zwölf cats sat").input_ids == ours.encode("Zwölf cats sat".encode()).tolist()


def test_a_tokenizer_of_characters_stays_behind(tmp_path: Path) -> None:
    export(train_tokenizer("characters", [TEXT.encode()]), tmp_path / "exported")
    assert not (tmp_path / "exported" / "tokenizer.json").exists()


def export(tokenizer: Tokenizer, out: Path) -> None:
    config = resolve_model(
        ModelConfig(n_layers=1, d_model=8, n_heads=2), vocab_size=tokenizer.vocab_size, context=16
    )
    model = build(config, seed=0).eval()
    model.tokenizer = tokenizer
    export_huggingface(model, out)
