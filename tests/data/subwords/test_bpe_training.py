import random

import pytest

from sublayer.data.subwords.bpe_training import Marks, alphabet_of, train_merges

WORDS = {f"{a}{b}{c}": ord(a) % 3 + 1 for a in "abcde" for b in "xyz" for c in "mnop"}


def test_the_alphabet_is_the_most_frequent_characters_in_order(monkeypatch):
    assert alphabet_of({"ba": 2, "c": 1}) == ["a", "b", "c"]
    monkeypatch.setattr("sublayer.data.subwords.bpe_training.N_CHARACTERS", 2)
    assert alphabet_of({"zb": 2, "a": 1, "c": 1}) == ["b", "z"]


@pytest.mark.parametrize("marks", [Marks(inner="##"), Marks(end="</w>")])
def test_merges_do_not_depend_on_the_order_of_words(marks):
    words = list(WORDS.items())
    found = train_merges(dict(words), alphabet_of(WORDS), n_merges=20, marks=marks)
    for seed in range(4):
        random.Random(seed).shuffle(words)
        assert train_merges(dict(words), alphabet_of(WORDS), n_merges=20, marks=marks) == found
    assert len(found.merges) == 20
    assert len(found.pieces) == 2 * 12 + 20


def test_the_most_frequent_pair_is_merged_first():
    # a-b is 3 times in "ab" and once in "abb"; then "a" + "bb" is no pair, "ab" + "b" is.
    found = train_merges({"ab": 3, "abb": 1}, ["a", "b"], n_merges=2, marks=Marks(inner="##"))
    assert found.pieces == ("a", "b", "##a", "##b", "ab", "abb")
    assert found.merges == (("a", "##b"), ("ab", "##b"))


def test_characters_outside_the_alphabet_are_left_out():
    found = train_merges({"ab": 3, "cb": 9}, ["a", "b"], n_merges=5, marks=Marks(end="</w>"))
    assert not any("c" in piece for piece in found.pieces)


def test_words_are_counted_however_often_they_are_said(monkeypatch):
    few = train_merges({"abab": 100, "ba": 7}, ["a", "b"], n_merges=3, marks=Marks(end="</w>"))
    monkeypatch.setattr("sublayer.data.subwords.bpe_training._BATCH_CHARACTERS", 11)
    assert (
        train_merges({"abab": 100, "ba": 7}, ["a", "b"], n_merges=3, marks=Marks(end="</w>")) == few
    )
