import hashlib
from itertools import pairwise

import numpy as np
import pytest
import tokenizers

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


def test_ids_documents_and_sources_are_kept(path):
    write_store(
        path,
        [
            [DocumentRange(DOCUMENTS[0], 2, 6), DocumentRange(DOCUMENTS[1])],
            [DocumentRange(DOCUMENTS[2])],
        ],
        BYTES,
    )
    store = read_store(path)
    assert store is not None
    assert bytes(store.ids.astype(np.uint8)) == b"e twthree\nfourfive"
    assert store.ids.dtype == np.uint16
    assert store.document_starts.tolist() == [0, 4, 14]
    assert store.source_starts.tolist() == [0, 14]
    assert (store.n_tokens, store.n_bytes, store.is_lossless) == (18, 18, True)
    # sha256 of the raw bytes, by another program
    assert store.sha256 == "f344f3c61eb12fd3bebab622962777ca6d07b89fdcb5ebf3041701360b0714b9"


def test_documents_are_joined_by_the_end_of_a_document(path):
    tokenizer = SubwordTokenizer.train([b"text"], vocab_size=257)
    write_store(
        path,
        [[DocumentRange(document) for document in DOCUMENTS[:2]], [DocumentRange(DOCUMENTS[2])]],
        tokenizer,
    )
    store = read_store(path)
    assert store is not None
    ends = np.flatnonzero(store.ids == tokenizer.end_id)
    assert ends.tolist() == [7, 18]
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


def test_what_is_missing_is_not_read(path):
    assert read_store(path) is None


def test_a_store_cut_short_anywhere_is_not_read(path):
    write_store(path, [[DocumentRange(document) for document in DOCUMENTS]], BYTES)
    whole = path.read_bytes()
    for n_bytes in (*range(0, len(whole), 5), len(whole) - 1):
        path.write_bytes(whole[:n_bytes])
        assert read_store(path) is None
    path.write_bytes(whole + b"\0")
    assert read_store(path) is None


def test_a_store_changed_anywhere_that_counts_is_not_read(path):
    write_store(path, [[DocumentRange(document) for document in DOCUMENTS]], BYTES)
    whole = path.read_bytes()
    padding = range(2 * 21, 48)
    for place in (place for place in range(len(whole)) if place not in padding):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        assert read_store(path) is None, place


def test_the_file_and_the_line_of_a_bad_byte_are_named(path, monkeypatch):
    monkeypatch.setattr("sublayer.data.text.document_range._CHUNK_BYTES", 8)
    document = MemoryDocument("books/a.txt", b"a line\n" * 20 + b"ab\xffcd\n")
    with pytest.raises(
        DataError, match=r"books/a.txt, line 21: byte 0xff is not UTF-8.*data.tokenizer = bytes"
    ):
        write_store(path, [[DocumentRange(document, 3)]], CharacterTokenizer("a line\ncd"))
    assert not path.exists()


SENTENCES = MemoryDocument("four", b"One. Two\nthree.\n\nFour.")


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


def test_a_store_of_sentences_that_is_cut_or_changed_is_not_read(path):
    write_store(path, [[DocumentRange(SENTENCES)]], BYTES, "prose")
    whole = path.read_bytes()
    padding = range(2 * 19, 40)
    for place in (place for place in range(0, len(whole), 3) if place not in padding):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        for content in (bytes(damaged), whole[:place]):
            path.write_bytes(content)
            assert read_store(path) is None, place


def test_a_store_of_plain_text_has_the_bytes_it_always_had(path):
    write_store(path, [[DocumentRange(document) for document in DOCUMENTS]], BYTES)
    # Of the format's first version: what was stored then is read now.
    assert (
        hashlib.sha256(path.read_bytes()).hexdigest()
        == "d208c34cd96dd1e011fca5e00e3f1ea62cc1d4c7aa9d7c88e824eed6c5174c32"
    )
