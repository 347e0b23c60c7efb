"""Ids: stored with checksums, from shards as of the whole, and in orders drawn by seeds."""

import gzip
import hashlib
import io
import os
import pickle
import sys
from unittest.mock import Mock

import numpy as np
import pytest

from sublayer.data import shards
from sublayer.data.counter_rng import fork
from sublayer.data.store import read_store
from sublayer.data.text import files
from sublayer.data.text import ranges as text_ranges
from sublayer.data.text.documents import open_pack
from sublayer.data.text.files import FileDocument, MemoryDocument, body_range
from sublayer.data.text.ranges import DocumentRange, WholeDocuments
from sublayer.data.tokenizers.base import ByteTokenizer, CharacterTokenizer
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.data.tokenizers.subword import SubwordTokenizer
from sublayer.errors import DataError
from sublayer.files.arrays import FooterFile
from sublayer.files.cache_folder import file_digest
from sublayer.system.terminal import HeardStages, shown_by
from tests.data.releases import write_release

BYTES = ByteTokenizer()
DOCUMENTS = [DocumentRange(MemoryDocument("a", text)) for text in (b"one two", b"three\nfour")]
SENTENCES = MemoryDocument("four", b"One. Two\nthree.\n\nFour.")
PARAGRAPHS = [f"Title {n}\n\nOne {n}. Two.\nThree!\n\n".encode() * 3 for n in range(60)]
BPE = train_tokenizer("bpe", PARAGRAPHS, vocab_size=300)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tokens" / "store"


def stored(path, *arguments, **options):
    path.unlink(missing_ok=True)
    shards.write_store(path, *arguments, **options)
    assert not list(path.parent.glob(f"{path.name}.*.unfinished"))
    return read_store(path)


def test_ids_documents_and_sources_are_kept(path):
    five = DocumentRange(MemoryDocument("three", b"five"))
    cut = DocumentRange(DOCUMENTS[0].document, 2, 6)
    store = stored(path, [[cut, DOCUMENTS[1]], [five]], BYTES)
    assert bytes(store.ids.astype(np.uint8)) == b"e twthree\nfourfive"
    starts = (store.document_starts.tolist(), store.source_starts.tolist())
    assert (store.ids.dtype, *starts) == (np.uint16, [0, 4, 14], [0, 14])
    assert (store.n_tokens, store.n_bytes, store.is_lossless) == (18, 18, True)
    # sha256 of the raw bytes, by another program
    assert store.sha256 == "f344f3c61eb12fd3bebab622962777ca6d07b89fdcb5ebf3041701360b0714b9"
    bpe = SubwordTokenizer.train([b"text"], vocab_size=257)
    store = stored(path, [DOCUMENTS, [five]], bpe)
    assert np.flatnonzero(store.ids == bpe.end_id).tolist() == [7, 18]
    assert (store.document_starts.tolist(), store.source_starts.tolist()) == ([0, 8, 19], [0, 19])
    assert bpe.token_bytes[store.ids].sum() == store.n_bytes == 21
    # Of the format's first version: stores of then are read now.
    path.unlink()
    shards.write_store(path, [[*DOCUMENTS, five]], BYTES)
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert digest == "d208c34cd96dd1e011fca5e00e3f1ea62cc1d4c7aa9d7c88e824eed6c5174c32"
    # Large vocabularies and lost text are marked.
    characters = "".join(map(chr, [*range(32, 0xD800), *range(0xE000, 0x12000)]))
    text = DocumentRange(MemoryDocument("a", characters.encode()))
    store = stored(path, [[text]], CharacterTokenizer(characters))
    assert (store.ids.dtype, store.is_lossless, store.n_characters) == (np.uint32, True, None)
    # Of what is lost, the store alone knows how long it was.
    store = stored(path, [[text]], CharacterTokenizer("abc"))
    assert (store.is_lossless, store.n_characters) == (False, len(characters))


def test_small_documents_are_encoded_together_as_each_is_alone(path, monkeypatch):
    texts = [*PARAGRAPHS, b"One \xff two", b"", "É.".encode()]
    expected = [id_ for text in texts for id_ in (BPE.end_id, *BPE.encode(text).tolist())][1:]
    together = Mock(wraps=BPE.encode_many)
    monkeypatch.setattr(BPE, "encode_many", together)
    store = stored(path, [ranges(*texts)], BPE)
    assert store.ids.tolist() == expected and together.call_count == 1
    ends = np.flatnonzero(store.ids == BPE.end_id)
    assert store.document_starts.tolist() == [0, *(ends + 1)]


@pytest.mark.parametrize("n_bytes", [7, 64])
def test_a_chunk_border_changes_nothing(path, monkeypatch, n_bytes):
    text = "naïve text\n\nof several wörds, écrit pour être coupé \n".encode() * 9
    monkeypatch.setattr("sublayer.data.text.ranges._CHUNK_BYTES", n_bytes)
    for kind in (CharacterTokenizer.train([text]), SubwordTokenizer.train([text], vocab_size=300)):
        store = stored(path, [[DocumentRange(MemoryDocument("text", text), 2, 400)]], kind)
        assert (store.ids.tolist(), store.n_bytes) == (kind.encode(text[2:400]).tolist(), 398)


@pytest.mark.parametrize("document, unit, padding", [
    (DOCUMENTS[1].document, "none", (20, 24)), (SENTENCES, "prose", (38, 40)),
])  # fmt: skip
def test_a_store_cut_or_changed_anywhere_is_not_read(path, document, unit, padding):
    assert read_store(path) is None
    shards.write_store(path, [[DocumentRange(document)]], BYTES, unit)
    whole = path.read_bytes()
    for place in range(0, len(whole), 3):
        changed = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
        for content in [whole[:place], changed][: 1 + (place not in range(*padding))]:
            path.write_bytes(content)
            assert read_store(path) is None, place
    path.write_bytes(whole + b"\0")
    assert read_store(path) is None


@pytest.mark.parametrize("bounds, sizes", [((2, 99), [2, 2]), ((9, 14), [2, 1, 1])])
def test_sentences_are_encoded_in_batches_and_long_ones_alone(path, monkeypatch, bounds, sizes):
    for name, most in zip(("TEXTS", "BYTES"), bounds, strict=True):
        monkeypatch.setattr(shards, f"_BATCH_{name}", most)
    texts = (b"One.", b"Two three.", b"Longer than that.", b"Four.")
    batches = list(shards._batches(shards.Segment(text, 0, DOCUMENTS[0]) for text in texts))
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
    monkeypatch.setattr("sublayer.files.cache_folder._LARGE_BYTES", 3)
    path = tmp_path / "text"
    path.write_bytes(b"abc")
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert file_digest(path, cache) == known
    next((cache / "sha256").iterdir()).write_text('"known"')
    assert file_digest(path, cache) == "known"
    os.utime(path, ns=(1, 1))
    assert file_digest(path, cache) == known


def test_forks_are_the_published_generator():
    # The first outputs of SplitMix64 from two states, as listed for the reference implementation.
    listed = {0: [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x6C45D188009454F]}
    listed[1234567] = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    for state, outputs in listed.items():
        assert fork(np.array([state], dtype=np.uint64), np.arange(3)).tolist() == outputs


def ranges(*texts):
    return [DocumentRange(MemoryDocument("a", text)) for text in texts]


def documents(folder):
    contents = {f"{number}.txt": text for number, text in enumerate(PARAGRAPHS[20:30])}
    contents["packed.txt.gz"] = gzip.compress(b"Packed. " * 100, mtime=0)
    write_release(folder, contents)
    found = [DocumentRange(FileDocument(folder / name, folder / "cache")) for name in contents]
    found[0] = DocumentRange(found[0].document, 7, 30)
    records = open_pack(folder / "pack", [("records", lambda: enumerate(PARAGRAPHS[30:], 1))])
    return [ranges(*PARAGRAPHS[:20], b" \n\n "), found, WholeDocuments(records)]


def written(path, *arguments, **options):
    assert stored(path, *arguments, **options) is not None
    return path.read_bytes()


def stopped(monkeypatch, after, *arguments, **options):
    add = Mock(side_effect=[None] * (after - 1) + [KeyboardInterrupt])
    with monkeypatch.context() as patched:
        patched.setattr(shards.EncodingProgress, "add", add)
        with pytest.raises(KeyboardInterrupt):
            shards.write_store(*arguments, **options)


@pytest.mark.parametrize("unit", ["none", "prose"])
def test_shards_give_the_file_of_the_whole(tmp_path, unit):
    sources, several = documents(tmp_path), CharacterTokenizer("One Tw.\n")
    for tokenizer, shard_bytes, n_processes in ((BYTES, 1, 1), (BPE, 700, 1), (several, 3000, 2)):
        expected = written(tmp_path / "whole", sources, tokenizer, unit, shard_bytes=1 << 40)
        settings = {"shard_bytes": shard_bytes, "n_processes": n_processes}
        assert written(tmp_path / "a", sources, tokenizer, unit, **settings) == expected


@pytest.mark.parametrize("damage", ["nothing", "version", "ids", "end"])
def test_a_stopped_preparation_goes_on_to_the_same_file(tmp_path, monkeypatch, damage):
    sources = documents(tmp_path)
    expected = written(tmp_path / "a", sources, BPE, "prose", shard_bytes=1 << 40)
    (tmp_path / "a").unlink()
    settings = {"shard_bytes": 150, "n_processes": 2 if damage == "nothing" else 1}
    stopped(monkeypatch, 9, tmp_path / "a", sources, BPE, "prose", **settings)
    assert not (tmp_path / "a").exists()
    [folder] = tmp_path.glob("a.*.unfinished")
    part = min(folder.glob("*.shard"))
    assert part.name == "000000.shard"
    if damage == "version":  # of which no figures were kept
        with part.open("wb") as file:
            FooterFile(file).close({"text": {"n_bytes": 0, "crc32": 0}})
    elif damage != "nothing":
        content = bytearray(part.read_bytes())
        content[3 if damage == "ids" else -1] ^= 1
        part.write_bytes(content)
    assert written(tmp_path / "a", sources, BPE, "prose", **settings) == expected


def test_encoded_shards_are_not_encoded_again_nor_kept_of_another_text(tmp_path, monkeypatch):
    settings = {"shard_bytes": 100, "n_processes": 1}
    stopped(monkeypatch, 20, tmp_path / "a", [ranges(*PARAGRAPHS)], BPE, **settings)
    # Nothing can be encoded now but what was before: the rest is asked for, and fails.
    skipped = Mock()
    with monkeypatch.context() as patched:
        patched.setattr(shards, "python_command", lambda module: [sys.executable, "-c", ""])
        patched.setattr(shards.EncodingProgress, "skip", skipped)
        with pytest.raises(
            DataError, match="encoding process .* ended with code 0: run the same command"
        ):
            shards.write_store(tmp_path / "a", [ranges(*PARAGRAPHS)], BPE, **settings)
    assert skipped.call_count >= 19
    changed = [ranges(PARAGRAPHS[0], PARAGRAPHS[1] + b"more", *PARAGRAPHS[2:])]
    shards.write_store(tmp_path / "a", changed, BPE, **settings)
    assert written(tmp_path / "b", changed, BPE) == (tmp_path / "a").read_bytes()


def test_a_text_without_a_place_to_cut_is_refused_with_its_line(monkeypatch):
    monkeypatch.setattr(text_ranges, "_CHUNK_BYTES", 8)
    monkeypatch.setattr(text_ranges, "_LONGEST_BYTES", 32)
    source = ranges(b"one\ntwo\nthree\n" + b"x" * 99)
    # BPE cuts before the end of a line, sentences are cut behind it.
    for unit, line in (("none", 3), ("lines", 4)):
        with pytest.raises(DataError, match=f", line {line}: 0 MiB of text without a place to cut"):
            list(shards.cut_shards([source], BPE.cut, unit))
    [shard] = shards.cut_shards([source], BYTES.cut, "none")
    assert shard.text.n_bytes == 113


def test_a_bad_byte_and_a_full_disk_are_refused(tmp_path, monkeypatch):
    (tmp_path / "bad.txt").write_bytes(b"one\ntwo\n\xff\n")
    bad = DocumentRange(FileDocument(tmp_path / "bad.txt", tmp_path / "cache"))
    sources, settings = [[*ranges(*PARAGRAPHS), bad]], {"shard_bytes": 1000, "n_processes": 1}
    with pytest.raises(DataError, match=r"bad.txt, line 3: byte 0xff is not UTF-8"):
        shards.write_store(tmp_path / "a", sources, CharacterTokenizer("abc"), **settings)

    full = Mock(side_effect=OSError(28, "No space left on device"))
    monkeypatch.setattr(FooterFile, "close", full)
    with pytest.raises(DataError, match="cannot write .*: No space left on device: set SU"):
        shards.write_store(tmp_path / "a", documents(tmp_path), BPE, **settings)


@pytest.mark.parametrize("unit", ["none", "prose"])
def test_a_text_that_changes_meanwhile_is_noticed(tmp_path, monkeypatch, unit):
    path = tmp_path / "a.txt"
    path.write_bytes(b"One. Two.\n")
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    document = FileDocument(path, tmp_path / "cache")
    document.digest()
    add_all = shards.ShardEncoder.add_all

    def change_and_add(self, pieces):
        path.write_bytes(b"One. Ten.\n")
        os.utime(path, ns=times)  # it looks the same
        add_all(self, pieces)

    monkeypatch.setattr(shards.ShardEncoder, "add_all", change_and_add)
    with pytest.raises(DataError, match=f"^{path}, or the text after it, changed while it was"):
        shards.write_store(tmp_path / "a", [[DocumentRange(document)]], BYTES, unit)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("small_bytes", [1000, 1 << 20])
def test_a_request_holds_no_text_of_a_compressed_file(tmp_path, monkeypatch, small_bytes):
    monkeypatch.setattr(files, "_SMALL_BYTES", small_bytes)
    text = b"".join(b"line %d\n" % number for number in range(20_000))
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress(text, mtime=0))
    source = [DocumentRange(FileDocument(tmp_path / "a.txt.gz", tmp_path / "cache"))]
    [shard] = shards.cut_shards([source], ByteTokenizer().cut, "none")
    request = pickle.dumps(shard.pieces)
    assert len(request) < 1000
    [piece] = pickle.loads(request)  # noqa: S301
    assert piece.part.document.read()[:] == text
    assert (tmp_path / "cache" / "unpacked").exists() == (small_bytes < len(text))


@pytest.mark.parametrize(("unit", "shard_bytes"), [("none", 1), ("lines", 200), ("prose", 1)])
def test_encoded_text_is_summed_as_it_was_cut(monkeypatch, unit, shard_bytes):
    monkeypatch.setattr(text_ranges, "_CHUNK_BYTES", 64)
    mark = b"\n*** %s OF THE PROJECT GUTENBERG EBOOK A ***\n\n"
    body = b"".join(b"Chapter %d\n\nOne. Two,\r\nand \xc3\xa9.\n\n" % n for n in range(30))
    book = b"\xef\xbb\xbfHeader." + mark % b"START" + body + mark % b"END" + b"Licence."
    first, last = body_range(book)
    bounds = [(0, None), (5, first + 40), (first + 40, last + 10), (last + 10, None), (3, 9)]
    document = MemoryDocument("a", book)
    source = [DocumentRange(document, *places) for places in bounds] + ranges(b" \n\n ")
    found = list(shards.cut_shards([source], BPE.cut, unit, shard_bytes))
    for shard in found:
        encoder = shards.ShardEncoder(io.BytesIO(), BPE, unit)
        encoder.add_all(shard.pieces)
        assert encoder.text == shard.text
    assert sum(shard.text.n_bytes for shard in found) == 2 * len(book) - 5 + 6 + 4


def test_a_refused_text_of_one_shard_leaves_nothing(tmp_path):
    with pytest.raises(DataError, match="have no sentences"):
        shards.write_store(tmp_path / "a", [ranges(b" \n\n ")], BYTES, "lines")
    assert not list(tmp_path.glob("a.*.unfinished"))


def test_processes_that_encode_have_ended_when_shards_are_joined(tmp_path, monkeypatch):
    started, join = [], shards._join

    def start():
        started.append(start_encoder())
        return started[-1]

    def join_after(*arguments):
        assert started and all(process.returncode is not None for process in started)
        join(*arguments)

    start_encoder = shards._start_encoder
    monkeypatch.setattr(shards, "_start_encoder", start)
    monkeypatch.setattr(shards, "_join", join_after)
    texts = [ranges(*PARAGRAPHS[:4])]
    written(tmp_path / "a", texts, BYTES, shard_bytes=100, n_processes=1)


def test_stopped_preparations_of_other_texts_are_named(tmp_path, capsys):
    names = ("a.9.unfinished", *(f"b{n}.9.unfinished" for n in range(7)))
    write_release(tmp_path, {f"{name}/shard": b"ids" for name in names})
    with shown_by(HeardStages(print, print)):
        shards.note_unfinished(tmp_path / "a")
    note = capsys.readouterr().out
    assert "b0.9.unfinished, b1" in note and "a.9" not in note
    assert "and 2 others" in note
