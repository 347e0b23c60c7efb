import copy

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.tokenizers import words as words_module
from sublayer.data.tokenizers.words import (
    Ragged,
    WordCache,
    begins_word,
    encode_words,
    split_before_spaces,
    split_words,
)


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


def test_text_is_divided_at_spaces_and_ends_of_lines_alone():
    assert split_words(" a b\n\nc\td\x1ce ") == ["a", "b", "c\td\x1ce"]


@pytest.mark.parametrize(
    ("piece", "begins"),
    [
        ("▁the", True), ("the", False), ("▁", True), ("<unk>", True), (",", True), ("(", True),
        ("'", True), ("'s", True), ("–", True), ("€", True), ("9", True), ("a9", True),
        ("é", True), ("漢", True), ("A", False), ("..", False), ("ing.", False),
    ],
)  # fmt: skip
def test_pieces_begin_words_as_released(piece, begins):
    assert begins_word(piece) == begins


@pytest.mark.parametrize(("most", "most_characters"), [(1, 99), (5, 99), (99, 9), (99, 99)])
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


def test_words_begin_at_spaces_behind_other_text():
    # A tab, a carriage return and what follows a space begin none.
    text = " a  b\tc d\r\n\x1ce\n\nf "
    assert split_before_spaces(text) == [" a", "  b\tc", " d\r\n\x1ce", "\n\nf", " "]
    assert split_before_spaces("") == []
