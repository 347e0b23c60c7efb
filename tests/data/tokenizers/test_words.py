import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.tokenizers.words import Ragged, begins_word, encode_words, split_words


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
