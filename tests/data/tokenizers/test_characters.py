import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.tokenizers.base import NotUtf8
from sublayer.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer, character_start


@given(st.binary())
def test_bytes_round_trip_and_count(text):
    tokenizer = ByteTokenizer()
    ids = tokenizer.encode(text)
    assert ids.tolist() == list(text)
    assert tokenizer.decode(ids) == text
    assert tokenizer.token_bytes[ids].sum() == len(text)


def test_bytes_are_256_ids_and_nothing_else():
    tokenizer = ByteTokenizer()
    assert (tokenizer.vocab_size, tokenizer.end_id, tokenizer.unk_id, tokenizer.is_lossless) == (
        256,
        None,
        None,
        True,
    )


@given(st.text(st.characters(codec="utf-8")))
def test_bytes_count_the_characters_of_utf8(text):
    tokenizer = ByteTokenizer()
    assert tokenizer.token_characters[tokenizer.encode(text.encode())].sum() == len(text)


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_known_characters_round_trip_and_count(text):
    tokenizer = CharacterTokenizer.train([text.encode()])
    ids = tokenizer.encode(text.encode())
    assert len(ids) == len(text)
    assert tokenizer.decode(ids) == text.encode()
    assert tokenizer.token_bytes[ids].sum() == len(text.encode())
    assert tokenizer.token_characters[ids].sum() == len(text)
    assert tokenizer.unk_id not in ids


def test_characters_are_numbered_by_code_after_the_unknown():
    tokenizer = CharacterTokenizer.train(["bé".encode(), b"ab"])
    assert tokenizer.vocab_size == 4
    assert tokenizer.encode("abé!".encode()).tolist() == [1, 2, 3, 0]
    assert tokenizer.token_bytes.tolist() == [1, 1, 1, 2]
    assert tokenizer.decode([3, 0, 1]) == "é\ufffda".encode()


def test_a_capped_vocabulary_keeps_the_most_frequent():
    tokenizer = CharacterTokenizer.train([b"aabbbc", b"dd"], vocab_size=3)
    assert tokenizer.characters == "ab"
    assert tokenizer.vocab_size == 3


def test_chunks_train_as_one_text():
    text = "añb€ñ𝄞".encode() * 3
    assert (
        CharacterTokenizer.train([text]).characters
        == CharacterTokenizer.train([text[:9], text[9:]]).characters
    )


def test_the_first_bad_byte_is_found():
    tokenizer = CharacterTokenizer("ab")
    with pytest.raises(NotUtf8, match="line 3: byte 0xff is not UTF-8") as raised:
        tokenizer.encode(b"a\nb\nab\xff\xfe")
    assert raised.value.position == 6


@pytest.mark.parametrize(
    ("near", "start"),
    [(0, 0), (1, 1), (2, 1), (3, 3), (4, 3), (5, 3), (6, 6), (9, 6), (10, 10), (99, 10)],
)
def test_cuts_move_back_to_the_start_of_a_character(near, start):
    # 1, 2, 3 and 4 bytes begin at 0, 1, 3 and 6.
    assert character_start("aé€𝄞".encode(), near) == start


def test_bytes_that_never_begin_a_character_are_cut_anywhere():
    assert character_start(b"\x80" * 10, 7) == 7


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=30), st.integers(0, 130))
def test_encoding_in_two_parts_changes_nothing(text, near):
    data = text.encode()
    tokenizer = CharacterTokenizer.train([data])
    place = tokenizer.cut(data, near)
    parts = [tokenizer.encode(data[:place]), tokenizer.encode(data[place:])]
    assert np.concatenate(parts).tolist() == tokenizer.encode(data).tolist()
