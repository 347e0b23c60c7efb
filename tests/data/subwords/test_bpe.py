"""Merges trained here, and those that subword-nmt or fastBPE wrote, with fairseq's dictionary."""

import gzip
import random
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

import pytest

from sublayer.config.data import DataConfig
from sublayer.data.subwords.bpe_files import find_dictionary, read_codes
from sublayer.data.subwords.bpe_training import (
    Marks,
    Merges,
    alphabet_of,
    count_words,
    train_merges,
)
from sublayer.data.subwords.word_bpe import WordBpeTokenizer
from sublayer.data.tokenizers.named import load_tokenizer
from sublayer.errors import ConfigError, DataError

CODES = "#version: 0.2\nl o\nlo w</w>\ne r</w>\n"

# Special ids, e l o r w, the same with an end of word, and what the merges make.
IDS = {"low": [15], "lower": [14, 8, 16], "lo": [5, 11], "w": [13], "low!": [14, 8, 3], "é": [3]}

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(content: str | bytes, name: str = "codes") -> Path:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return to_file


@pytest.fixture(scope="module")
def captions(real_data: Path) -> list[str]:
    texts = [
        gzip.decompress((real_data / "multi30k" / f"train.{each}.gz").read_bytes())
        for each in ("en", "de")
    ]
    return [line for text in texts for line in text.decode().splitlines()]


@pytest.fixture(scope="module")
def learned(captions: list[str]) -> Merges:
    words = count_words(line.split() for line in captions[::3])
    return train_merges(words, alphabet_of(words), n_merges=4000, marks=Marks(end="</w>"))


def applied(
    word: str, ranks: Mapping[tuple[str, str], int], *, is_apart: bool = False
) -> list[str]:
    """Divide a word by subword-nmt's rule: the pair of the earliest merge until there is none."""
    symbols = [*word, "</w>"] if is_apart else [*word[:-1], f"{word[-1]}</w>"]
    while pairs := [pair for pair in pairwise(symbols) if pair in ranks]:
        best = min(pairs, key=ranks.__getitem__)
        merged, place = [], 0
        while place < len(symbols):
            is_pair = tuple(symbols[place : place + 2]) == best
            merged.append("".join(symbols[place : place + 1 + is_pair]))
            place += 1 + is_pair
        symbols = merged
    return [*symbols[:-2], f"{symbols[-2]}</w>"] if symbols[-1] == "</w>" else symbols


def ranks_of(found: Merges) -> dict[tuple[str, str], int]:
    return {pair: rank for rank, pair in enumerate(found.merges)}


def names_of(tokenizer: WordBpeTokenizer) -> list[str]:
    return [*tokenizer.specials, *tokenizer.content()["pieces"]]


def test_merges_are_applied_in_their_order(write: Write) -> None:
    tokenizer = read_codes(write(CODES))
    for word, ids in IDS.items():
        assert tokenizer.encode(word.encode()).tolist() == ids
    assert tokenizer.vocab_size == 17 and tokenizer.kind == "word-bpe"
    assert (tokenizer.cls_id, tokenizer.pad_id, tokenizer.sep_id, tokenizer.unk_id) == (0, 1, 2, 3)
    counted = read_codes(write("l o 70\nlo w</w> 9\ne r</w> 3\n", "fast.codes"))
    assert counted.fingerprint == tokenizer.fingerprint, "fastBPE counts its merges"


def test_before_0_2_the_end_of_a_word_is_a_symbol_of_its_own(write: Write) -> None:
    tokenizer = read_codes(write("l o\nlo w\nw </w>\n"))
    names = names_of(tokenizer)
    # w is joined before the end is, so that "low" ends without the merge of w and the end.
    for word, pieces in (
        ("low", ["low</w>"]),
        ("lot", ["lo", "<unk>"]),
        ("ww", ["w", "w</w>"]),
        ("o", ["o</w>"]),
    ):
        assert [names[id_] for id_ in tokenizer.encode(word.encode())] == pieces
    assert tokenizer.decode(tokenizer.encode(b"low ww")) == b"low ww "


@pytest.mark.parametrize("version", ["0.1", "0.2"])
def test_every_word_is_divided_as_subword_nmt_says(
    write: Write, learned: Merges, captions: list[str], version: str
) -> None:
    lines = [" ".join(merge) for merge in learned.merges]
    tokenizer = read_codes(write("\n".join([f"#version: {version}", *lines]) + "\n"))
    names, known = names_of(tokenizer), {*names_of(tokenizer)}
    ranks = ranks_of(learned)
    words = sorted({word for line in captions[1::70] for word in line.split()})
    assert len(words) > 1000
    rows = tokenizer.encode_many([word.encode() for word in words])
    for word, ids in zip(words, rows, strict=True):
        pieces = applied(word, ranks, is_apart=version == "0.1")
        expected = [piece if piece in known else "<unk>" for piece in pieces]
        assert [names[id_] for id_ in ids] == expected, word


def test_a_dictionary_gives_the_ids(write: Write) -> None:
    dictionary = "er 90\nlow 9\nw@@ 7\ne@@ 5\n@@ 2\nmadeupword0000 0\n"
    codes = write(CODES)
    write(dictionary, "dict.de.txt")
    write(dictionary, "dict.en.txt")
    tokenizer = load_tokenizer(codes)
    assert isinstance(tokenizer, WordBpeTokenizer)
    pieces = ["er</w>", "low</w>", "w", "e", "@@</w>", "madeupword0000</w>"]
    assert names_of(tokenizer)[4:] == pieces
    # "lo" is made on the way and no piece: unknown where it stays, as one.
    assert tokenizer.encode(b"low lower @ wer").tolist() == [5, 3, 6, 4, 3, 6, 4]
    assert tokenizer.decode([6, 4, 5, 3, 9]) == b"wer low madeupword0000 "
    assert tokenizer.vocab_size == 10


@pytest.mark.parametrize(("version", "has_dictionary"), [("0.1", True), ("0.2", False)])
def test_saving_and_loading_changes_nothing(
    write: Write, tmp_path: Path, version: str, *, has_dictionary: bool
) -> None:
    codes = write(CODES.replace("0.2", version))
    dictionary = write("er 90\nw@@ 7\n", "dict.txt") if has_dictionary else None
    tokenizer = read_codes(codes, dictionary)
    tokenizer.save(tmp_path / "tokenizer.json")
    again = load_tokenizer(tmp_path / "tokenizer.json")
    text = b"lower low wer l\nw"
    assert again.fingerprint == tokenizer.fingerprint
    assert again.encode(text).tolist() == tokenizer.encode(text).tolist()


@pytest.mark.parametrize(
    ("codes", "dictionary", "message"),
    [
        ("", None, "codes has no merge with an end of word"),
        ("#version: 0.3\na b</w>\n", None, "codes, line 1: codes of version '0.3'"),
        ("#version: 0.2\na b</w>\na\n", None, "codes, line 3: 'a' is not a merge"),
        ("a b</w> 9\na b x\n", None, "codes, line 2: 'a b x' is not a merge, .* and a count"),
        (b"a b</w>\n\xff b\n", None, "codes, line 2: byte 0xff is not UTF-8"),
        (CODES, "er 9\nlow\n", "dict.txt, line 2: 'low' is not a piece and its count"),
        (CODES, "er 9\nlow x\n", "dict.txt, line 2: 'low x' is not a piece and its count"),
        (CODES, "er 9\nw@@ 3\ner 1\n", "dict.txt, line 3: 'er' is there already"),
        (CODES, "</s> 9\n", "dict.txt, line 1: '</s>' is there already"),
    ],
)
def test_damaged_codes_and_dictionaries_are_refused_with_their_line(
    write: Write, codes: str | bytes, dictionary: str | None, message: str
) -> None:
    beside = None if dictionary is None else write(dictionary, "dict.txt")
    with pytest.raises(DataError, match=message):
        read_codes(write(codes), beside)


def test_two_dictionaries_that_differ_are_refused(write: Write, tmp_path: Path) -> None:
    assert find_dictionary(tmp_path) is None
    write("er 9\n", "dict.en.txt")
    write("er 8\n", "dict.de.txt")
    with pytest.raises(DataError, match=r"dict.de.txt and dict.en.txt differ"):
        find_dictionary(tmp_path)


def test_codes_are_known_by_their_names() -> None:
    for name in ("a/b.codes", "codes", "x/code", "bpecodes", "ende.code", "joint.bpe"):
        assert DataConfig(tokenizer=name).tokenizer == name
    with pytest.raises(ConfigError, match=r"nor a file"):
        DataConfig(tokenizer="x/decode")


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


def test_the_most_frequent_pair_is_merged_first(monkeypatch):
    # a-b is 3 times in "ab" and once in "abb"; then "a" + "bb" is no pair, "ab" + "b" is.
    found = train_merges({"ab": 3, "abb": 1}, ["a", "b"], n_merges=2, marks=Marks(inner="##"))
    assert found.pieces == ("a", "b", "##a", "##b", "ab", "abb")
    assert found.merges == (("a", "##b"), ("ab", "##b"))
    marks = Marks(end="</w>")
    found = train_merges({"ab": 3, "cb": 9}, ["a", "b"], n_merges=5, marks=marks)
    assert not any("c" in piece for piece in found.pieces), "c is outside the alphabet"
    counts = {"abab": 100, "ba": 7}
    whole = train_merges(counts, ["a", "b"], n_merges=3, marks=marks)
    monkeypatch.setattr("sublayer.data.subwords.bpe_training._BATCH_CHARACTERS", 11)
    assert train_merges(counts, ["a", "b"], n_merges=3, marks=marks) == whole
