"""Bytes, characters and words belong to the tokens that hold their first byte."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sublayer.data.split import Split
from sublayer.data.store import TokenStore
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.evaluation.counts import Counter, Counts


def counter_of(text: bytes, document_starts: tuple[int, ...] = (0,)) -> Counter:
    ids = np.frombuffer(text, dtype=np.uint8)
    starts = np.array(document_starts, dtype=np.int64)
    store = TokenStore(ids, starts, np.array([0]), len(text), "", is_lossless=True)
    return Counter(Split("test", store, ByteTokenizer(), ("text",)))


def test_a_word_counts_where_it_begins() -> None:
    counter = counter_of(b"ab cd\n\tef")
    assert counter.count(0, 9).words == 3
    assert counter.count(1, 9).words == 2  # begins inside "ab"
    assert counter.count(1, 4).words == 1  # ends inside "cd"
    assert counter.count(4, 7).words == 0  # "d", and whitespace


def test_a_document_ends_a_word() -> None:
    assert counter_of(b"abcd").count(0, 4).words == 1
    assert counter_of(b"abcd", document_starts=(0, 2)).count(0, 4).words == 2
    assert counter_of(b"abcd", document_starts=(0, 2)).count(1, 4).words == 1


def test_a_character_counts_where_it_begins() -> None:
    counter = counter_of("aü€".encode())  # 1, 2 and 3 bytes
    assert counter.count(0, 6) == Counts(tokens=6, bytes=6, characters=3, words=1)
    assert counter.count(2, 6) == Counts(tokens=4, bytes=4, characters=1, words=0)


def test_long_ranges_are_counted_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    text = b"one two  three\nfour " * 9
    whole = counter_of(text).count(1, len(text))
    monkeypatch.setattr("sublayer.evaluation.counts._CHUNK_TOKENS", 7)
    assert counter_of(text).count(1, len(text)) == whole


@pytest.mark.parametrize("chunk_tokens", [1, 8, 1 << 20])
def test_ranges_that_follow_each_other_are_counted_as_each_alone(
    monkeypatch: pytest.MonkeyPatch, chunk_tokens: int
) -> None:
    text = "zwölf two  three\nfour ".encode() * 9
    counter = counter_of(text, document_starts=(0, 50))
    bounds = np.array([1, 4, 5, 30, 61, 62, 100, len(text)])
    alone = [counter.count(*each) for each in pairwise(bounds.tolist())]
    monkeypatch.setattr("sublayer.evaluation.counts._CHUNK_TOKENS", chunk_tokens)
    found = counter.count_each(bounds)
    assert [Counts(*each) for each in found.tolist()] == alone


@given(text=st.text(alphabet="aü \n\t€", min_size=1, max_size=40), data=st.data())
def test_counts_add_up_and_equal_those_of_the_text(text: str, data: st.DataObject) -> None:
    raw = text.encode()
    counter = counter_of(raw)
    whole = counter.count(0, len(raw))
    assert whole == Counts(
        tokens=len(raw), bytes=len(raw), characters=len(text), words=len(raw.split())
    )
    cut = data.draw(st.integers(0, len(raw)))
    assert counter.count(0, cut) + counter.count(cut, len(raw)) == whole
