"""Words, characters and bytes: their ids, counts and cuts, and how tokens are shown."""

import copy

import numpy as np
import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers import words as words_module
from sublayer.data.tokenizers.base import Tokenizer, check_masking
from sublayer.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer, character_start
from sublayer.data.tokenizers.extended import with_names
from sublayer.data.tokenizers.shown import show_tokens, special_names
from sublayer.data.tokenizers.words import (
    Ragged,
    WordCache,
    begins_word,
    encode_words,
    split_before_spaces,
    split_words,
)
from sublayer.errors import ConfigError
from tests.breadth import examples


@examples(200)
@given(st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1), st.data())
def test_rows_are_taken_one_after_another(rows, data):
    numbers = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20))
    found = Ragged(rows).take(np.array(numbers, dtype=np.int64))
    assert found.tolist() == [id_ for number in numbers for id_ in rows[number]]
    assert found.dtype == np.int32


def test_each_different_word_is_encoded_once():
    seen = []

    def encode(words):
        seen.extend(words)
        return [[len(word), 7] for word in words]

    assert encode_words(["a", "bb", "a", "a"], encode).tolist() == [1, 7, 2, 7, 1, 7, 1, 7]
    assert seen == ["a", "bb"]
    assert encode_words([], encode).tolist() == []


def test_text_is_divided_at_spaces_and_ends_of_lines():
    assert split_words(" a b\n\nc\td\x1ce ") == ["a", "b", "c\td\x1ce"]
    # A tab, a carriage return and what follows a space begin none.
    text = " a  b\tc d\r\n\x1ce\n\nf "
    assert split_before_spaces(text) == [" a", "  b\tc", " d\r\n\x1ce", "\n\nf", " "]
    assert split_before_spaces("") == []


def test_pieces_begin_words_as_released():
    begin = ("▁the", "▁", "<unk>", ",", "(", "'", "'s", "–", "€", "9", "a9", "é", "漢")
    assert all(map(begins_word, begin))
    assert not any(map(begins_word, ("the", "A", "..", "ing.")))


@pytest.mark.parametrize(("most", "most_characters"), [(1, 99), (99, 9), (99, 99)])
def test_a_word_is_encoded_once_and_what_is_forgotten_again(monkeypatch, most, most_characters):
    monkeypatch.setattr(words_module, "_MOST_WORDS", most)
    monkeypatch.setattr(words_module, "_MOST_CHARACTERS", most_characters)
    random = np.random.default_rng(0)
    known = ["a", "bb", "", "dddd", "long enough", "f", "gg"]
    cache = WordCache()
    seen = []

    def encode(words):
        seen.extend(words)
        return [[len(word)] * len(word) for word in words]

    for _ in range(40):
        words = [known[number] for number in random.integers(0, len(known), 6)]
        expected = [len(word) for word in words for _ in word]
        assert cache.encode(words, encode).tolist() == expected
    # With room for all, each was asked for once.
    assert (len(seen) == len(known)) == (most == most_characters == 99)


def test_a_cache_that_could_not_encode_knows_nothing_wrong():
    cache = WordCache()

    def fail(words):
        raise ValueError

    with pytest.raises(ValueError):
        cache.encode(["a"], fail)
    assert cache.encode(["a"], lambda words: [[3]]).tolist() == [3]
    assert copy.deepcopy(cache).encode(["a"], lambda words: [[4]]).tolist() == [4]


@given(st.text(st.characters(codec="utf-8"), min_size=1))
def test_known_bytes_and_characters_round_trip_and_count(text):
    data = text.encode()
    characters = CharacterTokenizer.train([data[:0], data])
    for tokenizer, n_ids in ((ByteTokenizer(), len(data)), (characters, len(text))):
        ids = tokenizer.encode(data)
        assert len(ids) == n_ids
        assert tokenizer.decode(ids) == data
        assert tokenizer.token_bytes[ids].sum() == len(data)
        assert tokenizer.token_characters[ids].sum() == len(text)
        assert tokenizer.unk_id is None or tokenizer.unk_id not in ids
    assert ByteTokenizer().encode(data).tolist() == list(data)


def test_bytes_have_no_special_ids():
    tokenizer = ByteTokenizer()
    assert (tokenizer.vocab_size, tokenizer.end_id, tokenizer.unk_id) == (256, None, None)
    assert tokenizer.special_ids == () and tokenizer.is_lossless


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


def test_cuts_move_back_to_the_start_of_a_character():
    # 1, 2, 3 and 4 bytes begin at 0, 1, 3 and 6.
    starts = [0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10]
    assert [character_start("aé€𝄞".encode(), near) for near in range(12)] == starts
    assert character_start(b"\x80" * 10, 7) == 7, "bytes that begin none are cut anywhere"


def test_ids_for_masks_are_known_by_their_usual_names():
    library = tokenizers.Tokenizer(
        tokenizers.models.WordPiece({"[UNK]": 0, "a": 1}, unk_token="[UNK]")
    )
    library.add_special_tokens(["[PAD]", "[CLS]", "[SEP]"])
    with pytest.raises(ConfigError, match=r"vocab.txt has no \[MASK\], which"):
        check_masking(SubwordTokenizer(library), "vocab.txt")
    content = SubwordTokenizer.train([b"a text of words"], vocab_size=270).serialize().decode()
    library = tokenizers.Tokenizer.from_str(content)
    first = library.get_vocab_size()
    library.add_special_tokens(["<s>", "<pad>", "</s>", "<unk>", "<mask>"])
    tokenizer = SubwordTokenizer(library)
    check_masking(tokenizer, "tokenizer.json")
    names = (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.mask_id)
    assert names == (first, first + 1, first + 2, first + 4)
    assert tokenizer.special_ids == (0, *range(first, first + 5))
    assert tokenizer.is_lossless
    assert not set(tokenizer.special_ids) & set(tokenizer.encode(b"<s> <mask></s>").tolist())


def test_blanks_are_seen_and_what_has_no_shape_is_escaped() -> None:
    tokenizer = with_names(ByteTokenizer(), ["[START]"])
    text = b"a b\n\xc3"
    ids = np.append(tokenizer.encode(text), tokenizer.added_ids["[START]"])
    assert show_tokens(ids, tokenizer) == ["a", "▁", "b", "\\n", "\\xc3", "[START]"]


def test_tokens_of_text_and_names_of_marks_are_told_apart(
    words: Tokenizer, stories: list[list[str]]
) -> None:
    text = stories[0][0]
    ids = words.encode(text.encode())
    shown = "".join(show_tokens(ids, words)).replace("##", "")
    assert shown.replace("▁", "").lower() == text.replace(" ", "").lower()
    assert words.sep_id is not None
    name = special_names(words)[words.sep_id]
    assert show_tokens(np.array([words.sep_id]), words) == [name]
    assert name in ("[SEP]", "</s>")
