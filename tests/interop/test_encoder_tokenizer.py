"""Tokenizers go along with encoders in both directions, and make the same ids."""

import json
from pathlib import Path
from typing import Any

import pytest

from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.errors import CheckpointError
from sublayer.interop.huggingface.exchange import (
    export_huggingface,
    import_huggingface,
    read_huggingface,
)
from sublayer.interop.tensorflow.albert_tf import import_albert_tf
from sublayer.loading import load
from sublayer.model.build import build
from tests.interop.bundles import write_bundle
from tests.interop.encoders import random_encoder
from tests.interop.test_albert_tf import released
from tests.interop.test_encoder_export import BASE

TRAINING = [
    b"the cat sat on the mat and the dog sat on the cat; over the field it ran, and on."
] * 9
TEXT = "the dog ran over the mat"


def trained(kind: str) -> Tokenizer:
    return train_tokenizer(kind, TRAINING, vocab_size=60)


def export(tokenizer: Tokenizer, out: Path, **fields: Any) -> None:
    config = ModelConfig.model_validate({**BASE, **fields})
    model = build(resolve_model(config, vocab_size=tokenizer.vocab_size, context=32), seed=0).eval()
    model.tokenizer = tokenizer
    export_huggingface(model, out)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
@pytest.mark.parametrize("fields", [{}, {"share": "all"}], ids=["bert", "albert"])
def test_an_exported_tokenizer_frames_the_same_ids_in_transformers(
    tmp_path: Path, kind: str, fields: dict[str, Any]
) -> None:
    from transformers import AutoConfig, AutoTokenizer

    ours = trained(kind)
    export(ours, tmp_path / "exported", **fields)
    theirs = AutoTokenizer.from_pretrained(tmp_path / "exported")
    ids = ours.encode(TEXT.encode()).tolist()
    pair = theirs(TEXT, "the cat")
    second = ours.encode(b"the cat").tolist()
    assert pair.input_ids == [ours.cls_id, *ids, ours.sep_id, *second, ours.sep_id]
    assert pair.token_type_ids == [0] * (len(ids) + 2) + [1] * (len(second) + 1)
    assert theirs.model_max_length == 32
    config = AutoConfig.from_pretrained(tmp_path / "exported")
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (
        ours.pad_id,
        ours.cls_id,
        ours.sep_id,
    )
    import_huggingface(tmp_path / "exported", tmp_path / "imported")
    again = load(tmp_path / "imported").tokenizer
    assert again.encode(TEXT.encode()).tolist() == ids
    assert again.mask_id == ours.mask_id


@pytest.mark.parametrize(
    ("kind", "original"), [("wordpiece", "vocab.txt"), ("unigram", "spiece.model")]
)
def test_the_original_files_alone_will_do(tmp_path: Path, kind: str, original: str) -> None:
    ours = trained(kind)
    export(ours, tmp_path / "exported")
    (tmp_path / "exported" / "tokenizer.json").unlink()
    assert (tmp_path / "exported" / original).is_file()
    again = read_huggingface(tmp_path / "exported").tokenizer
    assert again is not None
    assert again.encode(TEXT.encode()).tolist() == ours.encode(TEXT.encode()).tolist()


def test_a_tokenizer_of_bytes_stays_behind(tmp_path: Path) -> None:
    export(train_tokenizer("bytes", []), tmp_path / "exported")
    assert not (tmp_path / "exported" / "tokenizer.json").exists()


def release(folder: Path, vocab_size: int) -> Tokenizer:
    ours = trained("unigram")
    assert isinstance(ours, UnigramTokenizer)
    sizes = {
        "hidden_size": 6,
        "num_attention_heads": 2,
        "intermediate_size": 7,
        "num_hidden_layers": 2,
    }
    sizes |= {"vocab_size": vocab_size, "max_position_embeddings": 16, "embedding_size": 4}
    folder.mkdir()
    write_bundle(folder / "model.ckpt-best", released(random_encoder("albert", **sizes)))
    (folder / "albert_config.json").write_text(json.dumps(sizes))
    (folder / "30k-clean.model").write_bytes(ours.model)
    return load_tokenizer(folder / "30k-clean.model")


def test_the_model_beside_a_release_comes_along(tmp_path: Path) -> None:
    ours = release(tmp_path / "albert", 64)
    import_albert_tf(tmp_path / "albert", tmp_path / "imported")
    again = load(tmp_path / "imported").tokenizer
    assert again.encode(TEXT.encode()).tolist() == ours.encode(TEXT.encode()).tolist()


def test_a_model_beside_a_release_that_is_anothers_is_refused(tmp_path: Path) -> None:
    ours = release(tmp_path / "albert", 30)
    with pytest.raises(
        CheckpointError, match=rf"has {ours.vocab_size} ids, the model's vocab_size is 30"
    ):
        import_albert_tf(tmp_path / "albert", tmp_path / "imported")
    (tmp_path / "albert" / "another.model").write_bytes(b"")
    with pytest.raises(
        CheckpointError,
        match=r"has 30k-clean.model and another.model: leave the model's own tokenizer",
    ):
        import_albert_tf(tmp_path / "albert", tmp_path / "imported")
