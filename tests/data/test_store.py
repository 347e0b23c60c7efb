"""Stored ids, their checksums, and the random numbers that orders are drawn by."""

import hashlib
import os

import numpy as np
import pytest

from sublayer.data import random_order as module
from sublayer.data.cache import file_digest
from sublayer.data.counter_rng import Purpose, fork, seeds
from sublayer.data.random_order import random_order
from sublayer.data.shards import encoding
from sublayer.data.store import read_store, write_store
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import MemoryDocument
from sublayer.data.tokenizers.characters import ByteTokenizer, CharacterTokenizer

BYTES = ByteTokenizer()
DOCUMENTS = [DocumentRange(MemoryDocument("a", text)) for text in (b"one two", b"three\nfour")]
SENTENCES = MemoryDocument("four", b"One. Two\nthree.\n\nFour.")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tokens" / "store"


def stored(path, sources, tokenizer, *rules):
    write_store(path, sources, tokenizer, *rules)
    store = read_store(path)
    assert store is not None
    return store


def test_ids_documents_and_sources_are_kept(path):
    five = DocumentRange(MemoryDocument("three", b"five"))
    cut = DocumentRange(DOCUMENTS[0].document, 2, 6)
    store = stored(path, [[cut, DOCUMENTS[1]], [five]], BYTES)
    assert bytes(store.ids.astype(np.uint8)) == b"e twthree\nfourfive"
    assert store.ids.dtype == np.uint16
    assert store.document_starts.tolist() == [0, 4, 14]
    assert store.source_starts.tolist() == [0, 14]
    assert (store.n_tokens, store.n_bytes, store.is_lossless) == (18, 18, True)
    # sha256 of the raw bytes, by another program
    assert store.sha256 == "f344f3c61eb12fd3bebab622962777ca6d07b89fdcb5ebf3041701360b0714b9"
    bpe = SubwordTokenizer.train([b"text"], vocab_size=257)
    store = stored(path, [DOCUMENTS, [five]], bpe)
    assert np.flatnonzero(store.ids == bpe.end_id).tolist() == [7, 18]
    assert store.document_starts.tolist() == [0, 8, 19]
    assert store.source_starts.tolist() == [0, 19]
    assert bpe.token_bytes[store.ids].sum() == store.n_bytes == 21
    # Of the format's first version: stores of then are read now.
    write_store(path, [[*DOCUMENTS, five]], BYTES)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == "d208c34cd96dd1e011fca5e00e3f1ea62cc1d4c7aa9d7c88e824eed6c5174c32"


def test_large_vocabularies_and_lost_text_are_marked(path):
    characters = "".join(map(chr, [*range(32, 0xD800), *range(0xE000, 0x12000)]))
    text = DocumentRange(MemoryDocument("a", characters.encode()))
    store = stored(path, [[text]], CharacterTokenizer(characters))
    assert (store.ids.dtype, store.is_lossless, store.n_characters) == (np.uint32, True, None)
    # Of what is lost, the store alone knows how long it was.
    store = stored(path, [[text]], CharacterTokenizer("abc"))
    assert (store.is_lossless, store.n_characters) == (False, len(characters))


@pytest.mark.parametrize("n_bytes", [7, 64])
def test_a_chunk_border_changes_nothing(path, monkeypatch, n_bytes):
    text = "naïve text\n\nof several wörds, écrit pour être coupé \n".encode() * 9
    monkeypatch.setattr("sublayer.data.text.document_range._CHUNK_BYTES", n_bytes)
    for kind in (CharacterTokenizer.train([text]), SubwordTokenizer.train([text], vocab_size=300)):
        store = stored(path, [[DocumentRange(MemoryDocument("text", text), 2, 400)]], kind)
        assert store.ids.tolist() == kind.encode(text[2:400]).tolist()
        assert store.n_bytes == 398


@pytest.mark.parametrize(
    ("document", "unit", "padding"),
    [(DOCUMENTS[1].document, "none", (20, 24)), (SENTENCES, "prose", (38, 40))],
)
def test_a_store_cut_or_changed_anywhere_is_not_read(path, document, unit, padding):
    assert read_store(path) is None
    write_store(path, [[DocumentRange(document)]], BYTES, unit)
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        contents = [whole[:place]] if place in range(*padding) else [whole[:place], bytes(damaged)]
        for content in contents:
            path.write_bytes(content)
            assert read_store(path) is None, place
    path.write_bytes(whole + b"\0")
    assert read_store(path) is None


@pytest.mark.parametrize(("most", "n_bytes", "sizes"), [(2, 99, [2, 2]), (9, 14, [2, 1, 1])])
def test_sentences_are_encoded_in_batches_and_long_ones_alone(
    path, monkeypatch, most, n_bytes, sizes
):
    monkeypatch.setattr("sublayer.data.shards.encoding._BATCH_SENTENCES", most)
    monkeypatch.setattr("sublayer.data.shards.encoding._BATCH_BYTES", n_bytes)
    batches = list(encoding._sentence_batches(["One.", "Two three.", "Longer than that.", "Four."]))
    assert [len(batch) for batch in batches] == sizes
    blank = DocumentRange(MemoryDocument("blank", b" \n\n "))
    pieces = [[DocumentRange(SENTENCES), blank, DOCUMENTS[0]], [DocumentRange(SENTENCES, 17)]]
    store = stored(path, pieces, BYTES, "prose")
    assert bytes(store.ids.astype(np.uint8)) == b"One.Two three.Four.one twoFour."
    assert store.sentence_starts.tolist() == [0, 4, 14, 19, 26]
    assert (store.document_starts.tolist(), store.source_starts.tolist()) == ([0, 19, 26], [0, 26])
    assert (store.n_dropped_sentences, store.n_dropped_documents) == (0, 1)
    raw = SENTENCES.text + b" \n\n one two" + SENTENCES.text[17:]
    assert store.sha256 == hashlib.sha256(raw).hexdigest()


def test_digests_of_large_files_are_remembered_until_they_change(tmp_path, cache, monkeypatch):
    monkeypatch.setattr("sublayer.data.cache._LARGE_BYTES", 3)
    path = tmp_path / "text"
    path.write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_digest(path, cache) == known
    next((cache / "digests").iterdir()).write_text("0" * 64)
    assert file_digest(path, cache) == "0" * 64
    os.utime(path, ns=(1, 1))
    assert file_digest(path, cache) == known


def test_forks_are_the_published_generator():
    # The first outputs of SplitMix64 from state 0 and from state 1234567, as listed for the
    # reference implementation.
    zero, other = np.zeros(1, dtype=np.uint64), np.array([1234567], dtype=np.uint64)
    listed = ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]
    assert [hex(fork(zero, n)[0]) for n in range(3)] == listed
    listed = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert fork(other, np.arange(3)).tolist() == listed


@pytest.mark.parametrize("most", [1, 1000])
def test_an_order_is_that_of_the_seeds_whatever_is_in_memory(most, monkeypatch, tmp_path):
    monkeypatch.setenv("SUBLAYER_CACHE", str(tmp_path))
    monkeypatch.setattr(module, "_MOST", most)
    monkeypatch.setattr(module, "_BLOCK", 64)
    expected = np.argsort(seeds(3, Purpose.WINDOW_ORDER, 2, 1000), kind="stable")
    found = random_order(3, Purpose.WINDOW_ORDER, 2, 1000)
    assert found.tolist() == expected.tolist()
    # Mapped, where they are too many, from a file without a name.
    assert isinstance(found.base, np.memmap) == (most < 1000)
    assert not list(tmp_path.iterdir())
