import json

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import decoders, models, normalizers, pre_tokenizers, trainers

from sublayer.data.subwords.subword import END, SubwordTokenizer
from sublayer.data.subwords.whitespace_cuts import before_whitespace
from sublayer.data.tokenizers.base import NotUtf8
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import ConfigError

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


@given(st.binary(max_size=200))
def test_any_bytes_round_trip_and_count(text):
    ids = TRAINED.encode(text)
    assert TRAINED.decode(ids) == text
    assert TRAINED.token_bytes[ids].sum() == len(text)


@given(st.text(st.characters(codec="utf-8"), max_size=100))
def test_characters_are_counted_exactly(text):
    assert TRAINED.token_characters[TRAINED.encode(text.encode())].sum() == len(text)


@given(ODD)
def test_ids_are_the_librarys(text):
    assert TRAINED.encode(text.encode()).tolist() == library_ids(TRAINED, text)


@given(st.lists(ODD.map(str.encode) | st.binary(max_size=9), max_size=5))
def test_several_texts_have_the_ids_of_each(texts):
    assert [ids.tolist() for ids in TRAINED.encode_many(texts)] == [
        TRAINED.encode(text).tolist() for text in texts
    ]


@given(ODD, st.integers(0, 200))
def test_a_cut_changes_no_id(text, near):
    data = text.encode()
    place = TRAINED.cut(data, min(near, len(data)))
    parts = np.concatenate([TRAINED.encode(data[:place]), TRAINED.encode(data[place:])])
    assert parts.tolist() == TRAINED.encode(data).tolist()
    assert place <= near


@given(ODD)
def test_batches_change_no_id(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sublayer.data.subwords.whitespace_cuts._BATCH_CHARACTERS", 5)
        assert TRAINED.encode(text.encode()).tolist() == library_ids(TRAINED, text)


def test_cuts_fall_before_whitespace_after_something_else():
    assert before_whitespace(b"one two\n\nthree", 13) == 7
    assert before_whitespace(b"one two three", 9) == 7
    assert before_whitespace(b"one two three", 6) == 3
    assert before_whitespace(b"  onetwothree", 13) == 0
    assert before_whitespace(b"", 0) == 0


def test_the_end_of_a_document_has_no_bytes_and_is_never_in_a_text():
    assert TRAINED.end_id == 0
    assert TRAINED.token_bytes[0] == 0
    assert TRAINED.decode([0]) == b""
    ids = TRAINED.encode(END.encode())
    assert TRAINED.end_id not in ids
    assert TRAINED.decode(ids) == END.encode()


def test_training_in_pieces_gives_the_same_merges():
    data = PROSE.encode()
    place = before_whitespace(data, 700)
    pieces = SubwordTokenizer.train([data[:place], data[place:]], vocab_size=320)
    assert pieces.fingerprint == TRAINED.fingerprint


def test_training_again_gives_the_same_file():
    assert (
        SubwordTokenizer.train([PROSE.encode()], vocab_size=320).serialize() == TRAINED.serialize()
    )


def test_merges_shorten_the_text_they_were_trained_on():
    assert TRAINED.vocab_size == 320
    assert len(TRAINED.encode(PROSE.encode())) < len(PROSE.encode()) / 2


def test_a_short_text_holds_fewer_merges_than_asked():
    assert 257 <= SubwordTokenizer.train([b"aaaa"], vocab_size=1000).vocab_size < 262


def test_bytes_that_are_not_utf8_do_not_stop_training():
    assert SubwordTokenizer.train([b"abab\xffabab"], vocab_size=300).encode(b"\xff").tolist() != []


def test_a_vocabulary_smaller_than_the_bytes_is_refused():
    with pytest.raises(ConfigError, match=r"data.vocab_size = 256 is too small for bpe"):
        SubwordTokenizer.train([b"text"], vocab_size=256)


def test_saving_and_loading_changes_nothing(tmp_path):
    TRAINED.save(tmp_path / "deep" / "tokenizer.json")
    loaded = load_tokenizer(tmp_path / "deep" / "tokenizer.json")
    assert isinstance(loaded, SubwordTokenizer)
    assert loaded.kind == "bpe"
    assert loaded.fingerprint == TRAINED.fingerprint
    assert loaded.encode(PROSE.encode()).tolist() == TRAINED.encode(PROSE.encode()).tolist()
    assert loaded.token_bytes.tolist() == TRAINED.token_bytes.tolist()


def test_dropout_in_a_file_is_switched_off(tmp_path):
    content = json.loads(TRAINED.serialize())
    content["model"]["dropout"] = 0.5
    (tmp_path / "tokenizer.json").write_text(json.dumps(content))
    loaded = load_tokenizer(tmp_path)
    assert loaded.encode(PROSE.encode()).tolist() == TRAINED.encode(PROSE.encode()).tolist()


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


def byte_level(*, add_prefix_space: bool = False) -> tokenizers.Tokenizer:
    library = tokenizers.Tokenizer.from_str(TRAINED.serialize().decode())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space)
    return library


def test_what_changes_text_is_marked_as_lossy(tmp_path):
    assert library_file(tmp_path, byte_level()).is_lossless
    assert not library_file(tmp_path, byte_level(add_prefix_space=True)).is_lossless
    normalising = byte_level()
    normalising.normalizer = normalizers.NFC()
    assert not library_file(tmp_path, normalising).is_lossless
    stripping = byte_level()
    stripping.add_tokens([tokenizers.AddedToken("<tag>", lstrip=True)])
    assert not library_file(tmp_path, stripping).is_lossless


@given(ODD)
def test_another_pattern_is_encoded_whole_and_without_loss(text):
    assert PATTERNED.is_lossless
    assert PATTERNED.cut(text.encode(), len(text.encode())) == 0
    ids = PATTERNED.encode(text.encode())
    assert ids.tolist() == library_ids(PATTERNED, text)
    assert PATTERNED.decode(ids) == text.encode()
    assert PATTERNED.token_bytes[ids].sum() == len(text.encode())


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


def test_gpt2s_original_files_give_its_tokenizer(tmp_path):
    content = json.loads(TRAINED.serialize())
    merges = [
        merge if isinstance(merge, str) else " ".join(merge) for merge in content["model"]["merges"]
    ]
    (tmp_path / "vocab.json").write_text(json.dumps(content["model"]["vocab"]), encoding="utf-8")
    (tmp_path / "merges.txt").write_text(
        "\n".join(["#version: 0.2", *merges]) + "\n", encoding="utf-8"
    )
    loaded = load_tokenizer(tmp_path)
    assert loaded.is_lossless
    assert loaded.end_id == TRAINED.end_id
    assert loaded.encode(PROSE.encode()).tolist() == TRAINED.encode(PROSE.encode()).tolist()


@pytest.mark.slow
def test_real_text_is_encoded_in_chunks_as_a_whole(real_data):
    data = (real_data / "enwik8" / "enwik8_first_4MB").read_bytes()[:400_000]
    tokenizer = SubwordTokenizer.train([data], vocab_size=1000)
    ids = tokenizer.encode(data)
    assert tokenizer.decode(ids) == data
    assert tokenizer.token_bytes[ids].sum() == len(data)
    assert ids.tolist() == library_ids(tokenizer, data.decode())
