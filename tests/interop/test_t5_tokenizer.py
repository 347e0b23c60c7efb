"""T5's tokenizer as transformers' own class reads it: the same ids, and the same bytes again."""

import json
from pathlib import Path
from typing import Any

import pytest

from sublayer.data.sentencepiece.model_file import parse_model
from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.named import load_tokenizer, train_tokenizer
from sublayer.interop.huggingface.folder_tokenizer import read_tokenizer
from sublayer.interop.t5.t5_tokenizer import t5_files
from tests.data.sentencepiece.t5 import LINES, TEXTS, t5_model, write_t5
from tests.sentinels import encode_with_sentinels

NAMES = [f"<extra_id_{number}>" for number in range(5)]


def trained() -> Tokenizer:
    lines = [line.encode() for line in LINES] * 20
    return train_tokenizer("unigram", lines, vocab_size=75, sentinels=5)


def tokenizer_of(kind: str, folder: Path) -> Tokenizer:
    if kind == "trained":
        return trained()
    rules = {"user_defined_symbols": NAMES} if kind == "inside" else {}
    path = write_t5(folder, **rules) / "spiece.model"
    return load_tokenizer(path, sentinels=5)


def write(tokenizer: Tokenizer, folder: Path) -> dict[str, bytes]:
    folder.mkdir(exist_ok=True)
    files = t5_files(tokenizer, max_len=512)
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return files


def check_same_ids(ours: Tokenizer, theirs: Any) -> None:
    assert len(theirs) == ours.vocab_size
    assert (theirs.pad_token_id, theirs.eos_token_id) == (ours.pad_id, ours.sep_id)
    assert theirs.model_max_length == 512
    for text in [*LINES, *TEXTS]:
        ids = encode_with_sentinels(ours, text.encode()).tolist()
        assert theirs(text).input_ids == [*ids, ours.sep_id], text
    first, second = (encode_with_sentinels(ours, text.encode()).tolist() for text in TEXTS[:2])
    pair = [*first, ours.sep_id, *second, ours.sep_id]
    assert theirs(TEXTS[0], TEXTS[1]).input_ids == pair


@pytest.mark.parametrize("kind", ["trained", "published", "inside"])
def test_transformers_makes_the_same_ids(tmp_path: Path, kind: str) -> None:
    transformers = pytest.importorskip("transformers")
    ours = tokenizer_of(kind, tmp_path / "t5")
    folder = tmp_path / "exported"
    assert write(ours, folder).keys() == {"spiece.model", "tokenizer.json", "tokenizer_config.json"}
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert isinstance(theirs, transformers.T5Tokenizer)
    assert theirs.convert_tokens_to_ids(NAMES) == list(ours.sentinel_ids)
    assert set(ours.sentinel_ids) <= set(theirs.all_special_ids)
    check_same_ids(ours, theirs)
    check_same_ids(ours, transformers.PreTrainedTokenizerFast.from_pretrained(folder))
    if kind != "inside":
        (folder / "tokenizer.json").unlink()
        check_same_ids(ours, transformers.AutoTokenizer.from_pretrained(folder))


@pytest.mark.parametrize("kind", ["trained", "published", "inside"])
@pytest.mark.parametrize("left_out", [None, "tokenizer.json", "spiece.model"])
def test_it_is_read_again(tmp_path: Path, kind: str, left_out: str | None) -> None:
    ours = tokenizer_of(kind, tmp_path / "t5")
    folder = tmp_path / "exported"
    files = write(ours, folder)
    if left_out is not None:
        (folder / left_out).unlink()
    again = read_tokenizer(folder, vocab_size=128)
    assert again is not None
    assert again.sentinel_ids == ours.sentinel_ids
    for text in [*LINES, *TEXTS]:
        assert again.encode(text.encode()).tolist() == ours.encode(text.encode()).tolist()
    if left_out != "spiece.model":
        assert again.fingerprint == ours.fingerprint
        assert t5_files(again, max_len=512) == files
    else:
        assert write(again, tmp_path / "again").keys() == files.keys() - {left_out}
        assert load_tokenizer(tmp_path / "again").fingerprint == again.fingerprint


def test_a_tokenizer_json_is_given_as_it_is(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    theirs = transformers.T5Tokenizer.from_pretrained(write_t5(tmp_path / "t5"), extra_ids=5)
    theirs.save_pretrained(tmp_path / "fast")
    ours = load_tokenizer(tmp_path / "fast" / "tokenizer.json")
    write(ours, tmp_path / "exported")
    check_same_ids(ours, transformers.AutoTokenizer.from_pretrained(tmp_path / "exported"))


def test_what_is_not_t5s_layout_is_of_no_class_of_its_own(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    lines = [line.encode() for line in LINES] * 20
    model: Any = train_tokenizer("unigram", lines, vocab_size=75)
    ours = UnigramTokenizer(model.model, model.normalization, sentinels=5)
    files = write(ours, tmp_path)
    assert (
        json.loads(files["tokenizer_config.json"])["tokenizer_class"] == "PreTrainedTokenizerFast"
    )
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    text = "The CAT sat <extra_id_4> on"
    ids = encode_with_sentinels(ours, text.encode()).tolist()
    assert theirs(text).input_ids == [*ids, ours.sep_id]


def test_what_cannot_be_given_has_no_files() -> None:
    assert t5_files(None, max_len=8) == {}
    assert t5_files(train_tokenizer("bytes", []), max_len=8) == {}
    text = [b"the dog"] * 9
    assert t5_files(train_tokenizer("word-bpe", text, vocab_size=40), max_len=8) == {}
    assert t5_files(UnigramTokenizer(t5_model(model_type="bpe"), sentinels=2), max_len=8) == {}
    content = parse_model(t5_model())
    content.pieces[-1].piece = "<extra_id_0>"
    named_alike = UnigramTokenizer(content.SerializeToString(), sentinels=2)
    assert t5_files(named_alike, max_len=8) == {}
