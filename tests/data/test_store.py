"""Stored ids, their checksums and keys, and the random numbers that orders are drawn by."""

import hashlib
import os
from itertools import pairwise

import numpy as np
import pytest
import tokenizers
from scipy.stats import binom, chisquare

from sublayer.data import random_order as module
from sublayer.data.cache import content_key, file_digest
from sublayer.data.counter_rng import Purpose, below, binomial, fork, seeds
from sublayer.data.epochs import LastEpochs
from sublayer.data.random_order import random_order
from sublayer.data.store import read_store, write_store
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import MemoryDocument
from sublayer.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer
from sublayer.errors import DataError

BYTES = ByteTokenizer()

DOCUMENTS = [
    MemoryDocument("one", b"one two"),
    MemoryDocument("two", b"three\nfour"),
    MemoryDocument("three", b"five"),
]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tokens" / "store"


def ranges(*documents) -> list[DocumentRange]:
    return [DocumentRange(document) for document in documents]


def test_ids_documents_and_sources_are_kept(path):
    first = [DocumentRange(DOCUMENTS[0], 2, 6), DocumentRange(DOCUMENTS[1])]
    write_store(path, [first, ranges(DOCUMENTS[2])], BYTES)
    store = read_store(path)
    assert bytes(store.ids.astype(np.uint8)) == b"e twthree\nfourfive"
    assert store.ids.dtype == np.uint16
    assert store.document_starts.tolist() == [0, 4, 14]
    assert store.source_starts.tolist() == [0, 14]
    assert (store.n_tokens, store.n_bytes, store.is_lossless) == (18, 18, True)
    # sha256 of the raw bytes, by another program
    assert store.sha256 == "f344f3c61eb12fd3bebab622962777ca6d07b89fdcb5ebf3041701360b0714b9"


def test_documents_are_joined_by_the_end_of_a_document(path):
    tokenizer = SubwordTokenizer.train([b"text"], vocab_size=257)
    write_store(path, [ranges(*DOCUMENTS[:2]), ranges(DOCUMENTS[2])], tokenizer)
    store = read_store(path)
    assert np.flatnonzero(store.ids == tokenizer.end_id).tolist() == [7, 18]
    assert store.document_starts.tolist() == [0, 8, 19]
    assert store.source_starts.tolist() == [0, 19]
    assert tokenizer.token_bytes[store.ids].sum() == store.n_bytes == 21


def test_large_vocabularies_take_four_bytes_each(path):
    characters = "".join(map(chr, [*range(32, 0xD800), *range(0xE000, 0x12000)]))
    tokenizer = CharacterTokenizer(characters)
    assert tokenizer.vocab_size > 1 << 16
    write_store(path, [[DocumentRange(MemoryDocument("text", characters.encode()))]], tokenizer)
    store = read_store(path)
    assert store is not None
    assert store.ids.dtype == np.uint32
    assert tokenizer.decode(store.ids) == characters.encode()


def test_text_that_cannot_be_had_back_is_marked(path):
    tokenizer = CharacterTokenizer("abc")
    # Of what is lost, the store alone knows how long it was.
    for text, is_lossless, n_characters in (("abcab", True, None), ("ab€", False, 3)):
        write_store(path, [[DocumentRange(MemoryDocument("text", text.encode()))]], tokenizer)
        store = read_store(path)
        assert store is not None
        assert (store.is_lossless, store.n_characters) == (is_lossless, n_characters)


def test_a_chunk_border_changes_nothing(path, monkeypatch):
    text = "naïve text\n\nof several wörds, écrit pour être coupé \n".encode() * 9
    for tokenizer in (
        BYTES,
        CharacterTokenizer.train([text]),
        SubwordTokenizer.train([text], vocab_size=300),
    ):
        for n_bytes in (7, 64, 1000):
            monkeypatch.setattr("sublayer.data.text.document_range._CHUNK_BYTES", n_bytes)
            write_store(path, [[DocumentRange(MemoryDocument("text", text), 2, 400)]], tokenizer)
            store = read_store(path)
            assert store is not None
            assert store.ids.tolist() == tokenizer.encode(text[2:400]).tolist()
            assert store.n_bytes == 398


SENTENCES = MemoryDocument("four", b"One. Two\nthree.\n\nFour.")


@pytest.mark.parametrize(
    ("documents", "unit", "padding"),
    [(DOCUMENTS, "none", (42, 48)), ([SENTENCES], "prose", (38, 40))],
)
def test_a_store_cut_or_changed_anywhere_is_not_read(path, documents, unit, padding):
    assert read_store(path) is None
    write_store(path, [ranges(*documents)], BYTES, unit)
    whole = path.read_bytes()
    for place in range(0, len(whole), 1 if unit == "none" else 3):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        contents = [whole[:place]] if place in range(*padding) else [whole[:place], bytes(damaged)]
        for content in contents:
            path.write_bytes(content)
            assert read_store(path) is None, place
    path.write_bytes(whole + b"\0")
    assert read_store(path) is None


@pytest.mark.parametrize("vocab_size", [None, 300])
def test_sentences_are_encoded_one_by_one(path, vocab_size, monkeypatch):
    tokenizer = (
        BYTES
        if vocab_size is None
        else SubwordTokenizer.train([b"One. Two three."] * 9, vocab_size=vocab_size)
    )
    blank = MemoryDocument("blank", b" \n\n ")
    for batch in (1, 2, 1000):
        monkeypatch.setattr("sublayer.data.shards.encoding._BATCH_SENTENCES", batch)
        pieces = [
            [DocumentRange(SENTENCES), DocumentRange(blank), DocumentRange(DOCUMENTS[0])],
            [DocumentRange(SENTENCES, 17)],
        ]
        write_store(path, pieces, tokenizer, "prose")
        store = read_store(path)
        assert store is not None
        expected = [b"One.", b"Two three.", b"Four.", b"one two", b"Four."]
        lengths = [len(tokenizer.encode(each)) for each in expected]
        assert store.sentence_starts is not None
        assert store.sentence_starts.tolist() == np.cumsum([0, *lengths])[:-1].tolist()
        bounds = [*store.sentence_starts.tolist(), len(store.ids)]
        found = [tokenizer.decode(store.ids[start:stop]) for start, stop in pairwise(bounds)]
        assert found == expected
        assert store.document_starts.tolist() == [0, bounds[3], bounds[4]]
        assert store.source_starts.tolist() == [0, bounds[4]]
        assert tokenizer.end_id is None or tokenizer.end_id not in store.ids
        assert (store.n_bytes, store.is_lossless) == (31, True)
        assert (store.n_dropped_sentences, store.n_dropped_documents) == (0, 1)
        raw = SENTENCES.text + blank.text + DOCUMENTS[0].text + SENTENCES.text[17:]
        assert store.sha256 == hashlib.sha256(raw).hexdigest()


def test_sentences_without_tokens_are_dropped(path):
    # Without an id for what it does not know, this model gives none.
    tokenizer = SubwordTokenizer(tokenizers.Tokenizer(tokenizers.models.BPE({"a": 0, "b": 1}, [])))
    documents = [MemoryDocument("a", b"c\na\ndc\nba"), MemoryDocument("b", b"ccc")]
    write_store(path, [[DocumentRange(document) for document in documents]], tokenizer, "lines")
    store = read_store(path)
    assert store is not None
    assert store.ids.tolist() == [0, 1, 0]
    assert store.sentence_starts is not None
    assert store.sentence_starts.tolist() == [0, 1]
    assert store.document_starts.tolist() == [0]
    assert (store.n_bytes, store.n_dropped_sentences, store.n_dropped_documents) == (3, 3, 1)
    with pytest.raises(DataError, match="b has no sentence, nor has what follows it"):
        write_store(path, [[DocumentRange(documents[1])]], tokenizer, "lines")


def test_a_store_of_plain_text_has_the_bytes_it_always_had(path):
    write_store(path, [[DocumentRange(document) for document in DOCUMENTS]], BYTES)
    # Of the format's first version: what was stored then is read now.
    assert (
        hashlib.sha256(path.read_bytes()).hexdigest()
        == "d208c34cd96dd1e011fca5e00e3f1ea62cc1d4c7aa9d7c88e824eed6c5174c32"
    )


def test_keys_depend_on_every_part_and_on_nothing_else():
    assert content_key(1, {"a": 2, "b": 3}) == content_key(1, {"b": 3, "a": 2})
    assert (
        len(
            {content_key(1, "a"), content_key(1, "b"), content_key("1", "a"), content_key(1, ["a"])}
        )
        == 4
    )


def test_digests_of_large_files_are_remembered_until_they_change(tmp_path, cache, monkeypatch):
    monkeypatch.setattr("sublayer.data.cache._LARGE_BYTES", 3)
    path = tmp_path / "text"
    path.write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_digest(path, cache) == known
    remembered = next((cache / "digests").iterdir())
    remembered.write_text("0" * 64)
    assert file_digest(path, cache) == "0" * 64
    os.utime(path, ns=(1, 1))
    assert file_digest(path, cache) == known


P_LOW = 1e-6


def test_forks_are_the_published_generator():
    # The first outputs of SplitMix64 from state 0 and from state 1234567, as listed for the
    # reference implementation.
    zero, other = np.zeros(1, dtype=np.uint64), np.array([1234567], dtype=np.uint64)
    listed = ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]
    assert [hex(fork(zero, n)[0]) for n in range(3)] == listed
    listed = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert fork(other, np.arange(3)).tolist() == listed


def test_seeds_differ_by_seed_purpose_epoch_and_thing():
    seen = [seeds(*key, 100) for key in ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (-1, 0, 0))]
    assert len(np.unique(seen)) == 500
    assert np.array_equal(seeds(0, 0, 0, 100), seen[0])
    # The root of a thing does not depend on how many there are.
    assert np.array_equal(seeds(5, 3, 2, 1000)[:7], seeds(5, 3, 2, 7))


def test_integers_are_uniform_below_their_limits():
    bits = seeds(4, 2, 3, 30_000)
    assert chisquare(np.bincount(below(bits, 7), minlength=7)).pvalue > P_LOW
    limits = np.tile([0, 1, 5], 10_000)
    drawn = below(bits, limits)
    assert (drawn[limits < 2] == 0).all()
    assert chisquare(np.bincount(drawn[limits == 5], minlength=5)).pvalue > P_LOW
    assert below(np.array([2**64 - 1], dtype=np.uint64), 3 * 10**9).tolist() == [3 * 10**9 - 1]


@pytest.mark.parametrize("n_flips", [1, 64, 65, 300])
def test_counts_of_flips_are_binomial(n_flips):
    counts = np.bincount(
        binomial(seeds(n_flips, 2, 3, 4000), np.full(4000, n_flips)), minlength=n_flips + 1
    )
    assert len(counts) == n_flips + 1
    expected = binom.pmf(np.arange(n_flips + 1), n_flips, 0.5) * 4000
    # Counts that are rarely reached are taken together.
    rare = expected < 10
    expected = np.append(expected[~rare], expected[rare].sum())
    seen = np.append(counts[~rare], counts[rare].sum())
    is_possible = expected > 0
    assert seen[~is_possible].sum() == 0
    assert chisquare(seen[is_possible], expected[is_possible]).pvalue > P_LOW


def test_binomials_of_different_numbers_of_flips_are_each_ones_own():
    bits, n_flips = seeds(0, 2, 3, 6), np.array([0, 200, 0, 1, 64, 0])
    together = binomial(bits, n_flips)
    alone = [binomial(bits[i : i + 1], n_flips[i : i + 1])[0] for i in range(6)]
    assert together.tolist() == alone
    assert together[[0, 2, 5]].tolist() == [0, 0, 0]
    assert binomial(bits[:0], n_flips[:0]).tolist() == []


@pytest.mark.parametrize("most", [1, 999, 1000])
def test_an_order_is_that_of_the_seeds_whatever_is_in_memory(most, monkeypatch, tmp_path):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "_MOST", most)
    monkeypatch.setattr(module, "_BLOCK", 64)
    expected = np.argsort(seeds(3, Purpose.WINDOW_ORDER, 2, 1000), kind="stable")
    found = random_order(3, Purpose.WINDOW_ORDER, 2, 1000)
    assert found.dtype == np.int64
    assert found.tolist() == expected.tolist()
    # Mapped, where they are too many, from a file without a name.
    assert isinstance(found.base, np.memmap) == (most < 1000)
    assert not list(tmp_path.iterdir())


def asked_for(epochs: list[int]) -> list[int]:
    """Return the epochs that are computed where ``epochs`` are asked for in turn."""
    computed = []

    def compute(epoch: int) -> str:
        computed.append(epoch)
        return f"plan {epoch}"

    plans = LastEpochs[str]()
    for epoch in epochs:
        assert plans.get(epoch, compute) == f"plan {epoch}"
    return computed


def test_an_epoch_and_the_one_before_are_planned_once():
    assert asked_for([0, 0, 1, 0, 1, 2, 1, 2]) == [0, 1, 2]
    assert asked_for([0, 1, 2, 0]) == [0, 1, 2, 0]
    assert asked_for([5, 1, 5]) == [5, 1, 5], "a jump back leaves out later epochs"
    assert random_order(3, Purpose.WINDOW_ORDER, 0, 0).tolist() == []
