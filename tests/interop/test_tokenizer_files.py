"""Tokenizers of masked models are given to transformers, which makes the same ids of them."""

from pathlib import Path
from typing import Any

import pytest
import tokenizers

from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.data.tokenizers.moses import MosesTokenizer
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.interop.huggingface.tokenizer_files import export_files
from tests.breadth import rows
from tests.data.sentences import WRITTEN, sentences
from tests.interop.folders import opened

TEXT = "\n".join(WRITTEN).encode() * 3


def exported(tokenizer: Tokenizer, folder: Path) -> Any:
    for name, content in export_files(tokenizer).items():
        (folder / name).write_bytes(content)
    return opened(folder)


def theirs(library: Any, text: str) -> list[int]:
    ids: list[int] = library(text, add_special_tokens=False, split_special_tokens=True).input_ids
    return ids


def without_names(text: str) -> str:
    # The library takes the names of special ids in the text of a unigram vocabulary for those ids.
    return text.replace("<pad>", "").replace("<unk>", "")


@pytest.mark.parametrize("name", ["albert/spiece.model", "bert/vocab.txt"])
def test_published_vocabularies_make_the_same_ids_in_transformers(
    real_data: Path, tmp_path: Path, name: str
) -> None:
    tokenizer = load_tokenizer(real_data / "vocab" / name)
    library = exported(tokenizer, tmp_path)
    assert len(sentences(real_data)) > 1000
    found = [without_names(sentence) for sentence in rows(sentences(real_data), 400)]
    ids = library(found, add_special_tokens=False, split_special_tokens=True).input_ids
    for text, expected in zip(found, ids, strict=True):
        assert tokenizer.encode(text.encode()).tolist() == expected, text
    framed = [tokenizer.cls_id, *tokenizer.encode(b"a").tolist(), tokenizer.sep_id]
    assert library("a").input_ids == framed
    again = load_tokenizer(tmp_path)
    whole = "\n".join(found).encode()
    assert again.encode(whole).tolist() == tokenizer.encode(whole).tolist()
    assert again.special_ids == tokenizer.special_ids


@pytest.mark.parametrize("kind", ["unigram", "wordpiece"])
def test_trained_vocabularies_make_the_same_ids_in_transformers(tmp_path: Path, kind: str) -> None:
    tokenizer = train_tokenizer(kind, [TEXT], vocab_size=600)
    library = exported(tokenizer, tmp_path)
    # One letter repeated has ways to be divided that are equally probable.
    for each in map(without_names, WRITTEN):
        if kind == "wordpiece" or "xxx" not in each:
            assert theirs(library, each) == tokenizer.encode(each.encode()).tolist()
    for name in ("pad", "cls", "sep", "mask", "unk"):
        assert getattr(library, f"{name}_token_id") == getattr(tokenizer, f"{name}_id")


@pytest.mark.parametrize(
    ("kind", "file"), [("unigram", "spiece.model"), ("wordpiece", "vocab.txt")]
)
def test_the_original_files_go_along(tmp_path: Path, kind: str, file: str) -> None:
    tokenizer = train_tokenizer(kind, [TEXT], vocab_size=600)
    files = export_files(tokenizer)
    assert set(files) == {"tokenizer.json", file, "tokenizer_config.json"}
    (tmp_path / file).write_bytes(files[file])
    assert load_tokenizer(tmp_path / file).fingerprint == tokenizer.fingerprint


def test_byte_level_bpe_with_names_for_masks_goes_along(tmp_path: Path) -> None:
    own = train_tokenizer("bpe", [TEXT], vocab_size=300)
    library = tokenizers.Tokenizer.from_str(own.serialize().decode())
    library.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer = SubwordTokenizer(library)
    loaded = exported(tokenizer, tmp_path)
    assert loaded.mask_token_id == tokenizer.mask_id
    assert theirs(loaded, "naïve text") == tokenizer.encode("naïve text".encode()).tolist()


def test_tokenizers_that_transformers_lacks_stay_behind() -> None:
    words = MosesTokenizer.train([TEXT], n_merges=3)
    assert [export_files(each) for each in (ByteTokenizer(), words)] == [{}, {}]
