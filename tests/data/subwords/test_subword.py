"""Byte-level BPE and files of the ``tokenizers`` library, which are tried before they are read."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

from sublayer.data.subwords.library_files import call_library
from sublayer.data.subwords.probe import try_file
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.subwords.whitespace_cuts import before_whitespace
from sublayer.data.tokenizers.base import NotUtf8
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import DataError
from tests.breadth import examples, rows
from tests.data.hostile import FORMS, charsmap_of_nfkc, check_file, published

PROSE = (
    "It is a truth universally acknowledged, "
    "that a single man's fortune — naïve, or 1,000 £ — isn't his.\n\n" * 20
)

TRAINED = SubwordTokenizer.train([PROSE.encode()], vocab_size=320)

ODD = st.text(
    st.sampled_from("ab 's1.\n\t\r\u00a0\u3000\u0085\u2028\x1c\x1f\u200b\ufeffé漢𝄞"), max_size=60
)


def library_ids(tokenizer: SubwordTokenizer, text: str) -> list[int]:
    library = tokenizers.Tokenizer.from_str(tokenizer.serialize().decode())
    library.encode_special_tokens = True
    return list(library.encode(text, add_special_tokens=False).ids)


def byte_level(*, add_prefix_space: bool = False) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer.from_str(TRAINED.serialize().decode())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    return library


def _patterned() -> SubwordTokenizer:
    library = byte_level()
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(tokenizers.Regex(r"\p{L}+\s*|[^\p{L}]+"), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    library.add_tokens(["a b"])
    return SubwordTokenizer(library)


PATTERNED = _patterned()


@given(st.binary(max_size=200))
def test_any_bytes_round_trip_and_count(text):
    ids = TRAINED.encode(text)
    assert TRAINED.decode(ids) == text
    assert TRAINED.token_bytes[ids].sum() == len(text)
    several, _ = TRAINED.encode_many([text, b"a"])
    assert several.tolist() == ids.tolist()


@examples(250)
@given(ODD)
def test_ids_are_the_librarys_in_batches_too(text):
    ids = TRAINED.encode(text.encode())
    assert ids.tolist() == library_ids(TRAINED, text)
    assert TRAINED.token_characters[ids].sum() == len(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sublayer.data.subwords.subword._SPAN_CHARACTERS", 7)
        assert TRAINED.encode(text.encode()).tolist() == ids.tolist()


@examples(250)
@given(ODD)
def test_another_pattern_is_encoded_whole_and_without_loss(text):
    assert PATTERNED.is_lossless
    assert PATTERNED.cut(text.encode(), len(text.encode())) == 0
    ids = PATTERNED.encode(text.encode())
    assert ids.tolist() == library_ids(PATTERNED, text)
    assert PATTERNED.decode(ids) == text.encode()
    assert PATTERNED.token_bytes[ids].sum() == len(text.encode())


def test_cuts_fall_before_whitespace_after_something_else():
    assert before_whitespace(b"one two\n\nthree", 13) == 7
    assert before_whitespace(b"one two three", 9) == 7
    assert before_whitespace(b"one two three", 6) == 3
    assert before_whitespace(b"  onetwothree", 13) == 0
    assert before_whitespace(b"", 0) == 0


def test_training_in_parts_gives_the_same_merges_up_to_those_of_the_text():
    data = PROSE.encode()
    place = before_whitespace(data, 700)
    parts = SubwordTokenizer.train([data[:place], data[place:]], vocab_size=320)
    assert parts.serialize() == TRAINED.serialize()
    assert TRAINED.vocab_size == 320
    assert len(TRAINED.encode(data)) < len(data) / 2
    short = SubwordTokenizer.train([b"aaaa\xffaaaa"], vocab_size=1000)
    assert 257 <= short.vocab_size < 262


def test_files_of_the_library_and_gpt2s_are_read_without_dropout(tmp_path):
    content = json.loads(TRAINED.serialize())
    content["model"]["dropout"] = 0.5
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    ids = TRAINED.encode(PROSE.encode()).tolist()
    assert load_tokenizer(tmp_path).encode(PROSE.encode()).tolist() == ids
    (tmp_path / "tokenizer.json").unlink()
    merges = [" ".join(merge) for merge in content["model"]["merges"]]
    (tmp_path / "vocab.json").write_text(json.dumps(content["model"]["vocab"]))
    (tmp_path / "merges.txt").write_text("\n".join(["#version: 0.2", *merges, ""]))
    loaded = load_tokenizer(tmp_path)
    assert loaded.is_lossless and loaded.end_id == TRAINED.end_id
    assert loaded.encode(PROSE.encode()).tolist() == ids
    for line in (b"\xff", b"a b c"):
        (tmp_path / "merges.txt").write_bytes(b"#version: 0.2\n" + line)
        with pytest.raises(DataError, match="merges.txt, line 2"):
            load_tokenizer(tmp_path)


def library_file(tmp_path, tokenizer: tokenizers.Tokenizer):
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return load_tokenizer(tmp_path / "tokenizer.json")


def test_wordpiece_is_read_and_marked_as_lossy(tmp_path):
    library = tokenizers.Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.Lowercase()
    library.pre_tokenizer = pre_tokenizers.Whitespace()
    library.decoder = decoders.WordPiece()
    library.train_from_iterator(
        [PROSE],
        trainers.WordPieceTrainer(vocab_size=80, special_tokens=["[UNK]"], show_progress=False),
    )
    tokenizer = library_file(tmp_path, library)
    assert tokenizer.kind == "wordpiece"
    assert not tokenizer.is_lossless
    assert tokenizer.unk_id == library.token_to_id("[UNK]")
    assert tokenizer.encode(b"Universally").tolist() == library.encode("Universally").ids
    with pytest.raises(NotUtf8, match="line 2: byte 0xff"):
        tokenizer.encode(b"a\n\xff")


def test_rules_that_change_text_are_marked_as_lossy(tmp_path):
    assert library_file(tmp_path, byte_level()).is_lossless
    assert not library_file(tmp_path, byte_level(add_prefix_space=True)).is_lossless
    normalising, stripping = byte_level(), byte_level()
    normalising.normalizer = normalizers.NFC()
    stripping.add_tokens([tokenizers.AddedToken("<tag>", lstrip=True)])
    for library in (normalising, stripping):
        assert not library_file(tmp_path, library).is_lossless


def write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content))
    return path


def changed(form: str, **parts: Any) -> dict[str, Any]:
    content = json.loads(json.dumps(published(form)))
    model = parts.pop("model", {})
    return {**content, **parts, "model": {**content["model"], **model}}


@pytest.mark.parametrize("form", rows(FORMS, 5))
def test_every_published_form_is_read(tmp_path: Path, form: str) -> None:
    path = write(tmp_path / "tokenizer.json", published(form))
    assert check_file(path)
    tokenizer = load_tokenizer(path)
    theirs = Tokenizer.from_str(json.dumps(published(form)))
    for text in ("the quick fox's 12,345 dogs", "Zo\u00eb  na\u00efve \u4e2d\u6587 \U0001f389\n a"):
        ids = theirs.encode(text, add_special_tokens=False).ids
        assert tokenizer.encode(text.encode()).tolist() == ids


def normalizer(charsmap: object) -> dict[str, Any]:
    return {"normalizer": {"type": "Precompiled", "precompiled_charsmap": charsmap}}


def doubled(times: int) -> dict[str, Any]:
    double = {"type": "Replace", "pattern": {"Regex": "."}, "content": "aaaa"}
    return {"normalizer": {"type": "Sequence", "normalizers": [double] * times}}


def template(*names: str) -> dict[str, Any]:
    single = [{"Sequence": {"id": name, "type_id": 0}} for name in names]
    kind = {"type": "TemplateProcessing", "special_tokens": {}}
    return {"post_processor": {**kind, "single": single, "pair": single}}


@pytest.mark.parametrize(
    ("form", "parts", "message"),
    [
        ("t5", normalizer("@"), "Precompiled"),
        ("t5", normalizer(0), "Precompiled"),
        ("t5", normalizer("@" + charsmap_of_nfkc()[1:]), "Precomp"),
        ("bert", {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": []}, r"Missing \[UNK\]"),
        ("bert", {"model": {"vocab": {"[UNK]": 0, "a": 1 << 31}}}, "its greatest id is 2147483648"),
        ("gpt2", doubled(40), "takes too much memory|dies"),
        ("gpt2", doubled(3), "it makes .* ids of a text"),
        ("gpt2", template("A", "A"), "changes the ids of the text itself"),
        ("gpt2", template("B"), "index out of bounds"),
    ],
)
def test_files_that_end_the_library_are_refused(
    tmp_path: Path, form: str, parts: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sublayer.data.subwords.probe._BYTES", 192 << 20)
    path = write(tmp_path / "tokenizer.json", changed(form, **parts))
    with pytest.raises(DataError, match=f"tokenizer.json is not a tokenizer .*({message})"):
        load_tokenizer(path)


def test_a_file_that_takes_too_long_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sublayer.data.subwords.probe._SECONDS", 1)
    pattern = {"type": "Split", "pattern": {"Regex": "a+a+(?<!a)"}, "behavior": "Isolated"}
    content = changed("gpt2", pre_tokenizer={**pattern, "invert": False})
    with pytest.raises(DataError, match="it takes more than 1 seconds of a processor"):
        load_tokenizer(write(tmp_path / "tokenizer.json", content))


def test_a_panic_is_an_error_of_ours() -> None:
    content = changed("t5", normalizer={"type": "Precompiled", "precompiled_charsmap": "@"})
    with pytest.raises(DataError, match="reading fails: Precompiled"):
        call_library(lambda: Tokenizer.from_str(json.dumps(content)), "reading fails")
    with pytest.raises(KeyboardInterrupt):
        call_library(lambda: (_ for _ in ()).throw(KeyboardInterrupt), "reading fails")


def test_each_content_is_tried_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path / "cache"))
    data = json.dumps(changed("gpt2", truncation=None)).encode() + b" " * 7
    try_file("tokenizers", data, "it")
    assert len(list((tmp_path / "cache" / "tried").iterdir())) == 1
    # A process of its own cannot be had here any more, and none is needed.
    monkeypatch.setattr(sys, "executable", str(tmp_path / "none"))
    monkeypatch.setattr("sublayer.data.subwords.probe._tried", set())
    try_file("tokenizers", data, "it")
    with pytest.raises(DataError, match="it: the process that tries it cannot be started"):
        try_file("tokenizers", data + b" ", "it")
