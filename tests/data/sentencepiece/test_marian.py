"""Marian's vocabulary has the ids and texts of transformers' MarianTokenizer, and is stored."""

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sublayer.data.sentencepiece.marian import PairedModels
from sublayer.data.tokenizers.bilingual import BilingualTokenizer
from sublayer.data.tokenizers.language_rules import LanguageRules
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import DataError
from tests.data.sentencepiece.marian import DE, EN, write_marian

NEW = [
    "A young dog operates outside the machine!",
    "Ein  Hund\u00a0bedient\tBüsche",
    "日本 men",
    ">>de<< Two dogs",
    ">>xx<<snow",
    ">> men",
    "½ ﬁne",
    "",
]


@pytest.mark.parametrize(
    "rules", [{}, {"model_type": "bpe"}, {"byte_fallback": True, "vocab_size": 350}], ids=str
)
def test_ids_and_texts_are_those_of_transformers(tmp_path: Path, rules: dict[str, Any]) -> None:
    transformers = pytest.importorskip("transformers")
    folder = write_marian(tmp_path / "marian", **rules)
    vocabulary = load_tokenizer(folder)
    assert isinstance(vocabulary, PairedModels)
    ours = BilingualTokenizer(vocabulary, LanguageRules("en"), LanguageRules("de"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        theirs = transformers.MarianTokenizer.from_pretrained(folder)
    assert (ours.sep_id, ours.pad_id, ours.unk_id) == (
        theirs.eos_token_id,
        theirs.pad_token_id,
        theirs.unk_token_id,
    )
    lines = [*EN, *DE, *NEW]
    for line, ids in zip(lines, ours.encode_source(lines), strict=True):
        assert theirs(line).input_ids == [*ids, ours.sep_id], line
    n_unknown = 0
    for line, ids in zip(lines, ours.encode_target(lines), strict=True):
        assert theirs(text_target=line).input_ids == [*ids, ours.sep_id], line
        n_unknown += int((ids == ours.unk_id).sum())
        if ours.unk_id not in ids:
            text = theirs.decode(
                [*ids, ours.sep_id], skip_special_tokens=True, use_source_tokenizer=False
            )
            assert ours.write([*ids, ours.sep_id]) == " ".join(text.split()), line
    assert n_unknown > 0


def test_the_languages_are_divided_by_their_own_models(tmp_path: Path) -> None:
    vocabulary = PairedModels.read(write_marian(tmp_path / "marian"))
    (source,), (target,) = (
        vocabulary.encode_many([DE[0].encode()]),
        vocabulary.encode_targets([DE[0].encode()]),
    )
    assert len(target) < len(source)
    assert vocabulary.unk_id in source  # the letters that English has not
    assert vocabulary.decode(np.array([vocabulary.unk_id, vocabulary.sep_id])).decode() == "⁇"


def test_it_comes_back_as_it_was(tmp_path: Path) -> None:
    folder = write_marian(tmp_path / "marian")
    first = PairedModels.read(folder)
    first.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    assert isinstance(again, PairedModels)
    assert again.fingerprint == first.fingerprint
    assert (again.names, again.source_model, again.target_model) == (
        first.names,
        first.source_model,
        first.target_model,
    )
    content = first.content()
    for change, message in (
        ({"names": [1]}, "its table of pieces is damaged"),
        ({"names": ["a", "b"]}, "the vocabulary has no <unk>"),
        ({"source": None}, "its SentencePiece model does not have its checksum"),
        ({"target": {**content["target"], "model": "!"}}, "its SentencePiece model is not base64"),
    ):
        (tmp_path / "tokenizer.json").write_text(json.dumps({**content, **change}))
        with pytest.raises(DataError, match=f"tokenizer.json: {message}"):
            load_tokenizer(tmp_path / "tokenizer.json")


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        (
            "source.spm",
            "no model",
            r"marian: source.spm is not a SentencePiece model, or it is damaged",
        ),
        ("target.spm", "", r"marian: target.spm is not a SentencePiece model, or it is damaged"),
        ("vocab.json", "{", r"marian/vocab.json is not JSON"),
        (
            "vocab.json",
            '{"a": "b"}',
            r"marian/vocab.json: the id of 'a' is b, which is no id of one of 1 pieces",
        ),
        (
            "vocab.json",
            '{"<unk>": 0, "a": 2}',
            r"marian/vocab.json: the ids of its 2 pieces are not 0 to 1",
        ),
        ("vocab.json", '{"a": 0}', r"marian: the vocabulary has no <unk>"),
    ],
)
def test_damage_is_named(tmp_path: Path, file: str, content: str, message: str) -> None:
    folder = write_marian(tmp_path / "marian")
    (folder / file).write_text(content)
    with pytest.raises(DataError, match=message):
        load_tokenizer(folder)
