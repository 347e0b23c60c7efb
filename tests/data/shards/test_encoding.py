"""Encoded text is the text that was cut, to the byte, in bounded memory, whatever changes."""

import gzip
import io
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from sublayer.data.shards import joining
from sublayer.data.shards.cutting import cut_shards
from sublayer.data.shards.encoding import ShardEncoder
from sublayer.data.shards.request import read_request, write_request
from sublayer.data.shards.text_sum import TextSum
from sublayer.data.store import read_store, write_store
from sublayer.data.text import document_range, files
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import FileDocument, MemoryDocument
from sublayer.data.text.gutenberg import body_range
from sublayer.data.tokenizers.characters import ByteTokenizer
from sublayer.data.tokenizers.named import train_tokenizer
from sublayer.errors import DataError
from tests.data.shards.paragraphs import BPE, PARAGRAPHS, WHOLE, documents, stopped, written


@dataclass
class Changed:
    """A document that is one text where it is cut, and another where it is encoded."""

    name: str
    cut: bytes
    encoded: Path
    start: int

    def read(self) -> bytes:
        return self.cut

    def digest(self) -> str:
        return "its digest"

    def place(self) -> tuple[Path, int, int]:
        return self.encoded, self.start, self.start + len(self.cut)


@pytest.mark.parametrize("unit", ["none", "prose"])
def test_shards_of_another_text_are_not_taken_over(tmp_path, unit):
    path = tmp_path / "a.txt"
    text = "".join(PARAGRAPHS).encode()
    ranges = []
    start = 0
    for paragraph in PARAGRAPHS:
        ranges.append(DocumentRange(Changed("a.txt", paragraph.encode(), path, start)))
        start += len(paragraph)
    sources = [ranges]
    settings = {"shard_bytes": 300, "n_processes": 1}
    path.write_bytes(text.replace(b"Two.", b"Ten."))
    with pytest.raises(DataError, match=r"^a.txt, or what follows it, changed while it was read"):
        write_store(tmp_path / "a", sources, BPE, unit, **settings)
    [folder] = tmp_path.glob("a.*.unfinished")
    assert list(folder.glob("*.shard"))
    path.write_bytes(text)
    expected = written(tmp_path / "b", sources, BPE, unit, shard_bytes=WHOLE)
    assert written(tmp_path / "a", sources, BPE, unit, **settings) == expected


@pytest.mark.parametrize("unit", ["none", "prose"])
def test_a_small_text_that_changes_and_looks_the_same_is_noticed(tmp_path, monkeypatch, unit):
    path = tmp_path / "a.txt"
    path.write_bytes(b"One. Two.\n")
    times = path.stat().st_atime_ns, path.stat().st_mtime_ns
    document = FileDocument(path, tmp_path / "cache")
    document.digest()
    sources = [[DocumentRange(document)]]
    add_all = ShardEncoder.add_all

    def change_and_add(self, pieces):
        path.write_bytes(b"One. Ten.\n")
        os.utime(path, ns=times)
        add_all(self, pieces)

    monkeypatch.setattr(ShardEncoder, "add_all", change_and_add)
    with pytest.raises(DataError, match=f"^{path}, or what follows it, changed while it was"):
        write_store(tmp_path / "a", sources, ByteTokenizer(), unit)
    assert not (tmp_path / "a").exists()


def test_a_text_that_changed_since_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(joining, "_KEPT_BYTES", 1)
    texts = [text.encode() for text in PARAGRAPHS]
    settings = {"shard_bytes": 100, "n_processes": 1}

    def sources():
        return [[DocumentRange(MemoryDocument("a", text)) for text in texts]]

    stopped(monkeypatch, 9, tmp_path / "a", sources(), BPE, **settings)
    texts[1] += b"more"
    with pytest.raises(DataError, match=r"the text is another one than that of .*unfinished"):
        write_store(tmp_path / "a", sources(), BPE, **settings)


@pytest.mark.parametrize("shard_bytes", [WHOLE, 100])
def test_a_text_that_changes_meanwhile_is_noticed(tmp_path, shard_bytes):
    sources = documents(tmp_path)
    document = sources[1][3].document
    document.digest()
    with document.path.open("ab") as file:
        file.write(b"more")
    with pytest.raises(DataError, match=f"{document.path} changed while it was read: leave it"):
        write_store(tmp_path / "a", sources, BPE, shard_bytes=shard_bytes, n_processes=1)
    assert not (tmp_path / "a").exists()


SENTENCES = [*[b"a word and another\n"] * 40_000, b"a word, another, " * 20_000 + b"\n", b"end\n"]


class Recorded(ByteTokenizer):
    """Bytes, and how many are given to be encoded at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.together: list[int] = []
        self.alone: list[int] = []

    def encode(self, text):
        self.alone.append(len(text))
        return super().encode(text)

    def encode_many(self, texts):
        self.together.append(sum(map(len, texts)))
        return [ByteTokenizer.encode(self, text) for text in texts]


def test_sentences_are_encoded_in_small_batches_and_long_ones_alone(tmp_path):
    tokenizer = Recorded()
    source = [DocumentRange(MemoryDocument("a", b"".join(SENTENCES)))]
    write_store(tmp_path / "a", [source], tokenizer, "lines")
    assert max(tokenizer.together) <= 256 << 10
    assert tokenizer.alone == [len(SENTENCES[-2].strip()), len(SENTENCES[-1].strip())]
    assert len(read_store(tmp_path / "a").sentence_starts) == len(SENTENCES)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram", "bpe"])
def test_a_long_sentence_alone_has_the_ids_that_it_has_among_others(kind):
    long = b" ".join(b"word %d, and Another." % number for number in range(9000))
    tokenizer = train_tokenizer(kind, [long[:20000]], vocab_size=300)
    assert tokenizer.encode(long).tolist() == tokenizer.encode_many([b"a", long])[1].tolist()


def test_a_text_without_a_place_to_cut_is_refused_with_its_line(monkeypatch):
    monkeypatch.setattr(document_range, "_CHUNK_BYTES", 8)
    monkeypatch.setattr(document_range, "_LONGEST_BYTES", 32)
    source = [DocumentRange(MemoryDocument("a.txt", b"one\ntwo\nthree\n" + b"x" * 99))]
    tokenizer = train_tokenizer("bpe", [b"one two"], vocab_size=257)
    # BPE cuts before the end of a line, sentences are cut behind it.
    for unit, line in (("none", 3), ("lines", 4)):
        message = f"^a.txt, line {line}: 0 MiB without a place where the text may be cut: divide"
        with pytest.raises(DataError, match=message):
            list(cut_shards([source], tokenizer.cut, unit))
    [shard] = cut_shards([source], ByteTokenizer().cut, "none")
    assert shard.text.n_bytes == 113


TEXT = "".join(f"line {number}\n" for number in range(20_000)).encode()


@pytest.mark.parametrize("small_bytes", [1000, 1 << 20])
def test_a_request_holds_no_text_of_a_compressed_file(tmp_path, monkeypatch, small_bytes):
    monkeypatch.setattr(files, "_SMALL_BYTES", small_bytes)
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(TEXT, mtime=0))
    source = [DocumentRange(FileDocument(path, tmp_path / "cache"))]
    [shard] = cut_shards([source], ByteTokenizer().cut, "none")
    request = write_request(shard, tmp_path / "part")
    assert len(request) < 1000
    number, part, pieces = read_request(request)
    assert (number, part) == (0, tmp_path / "part")
    [piece] = pieces
    assert piece.part.document.read()[:] == TEXT
    is_unpacked = (tmp_path / "cache" / "unpacked").exists()
    assert is_unpacked == (small_bytes < len(TEXT))


BODY = b"".join(b"Chapter %d\n\nOne thing. Two things,\r\nand \xc3\xa9.\n\n" % n for n in range(30))

BOOK = (
    b"\xef\xbb\xbfA header that is dropped.\n\n*** START OF THE PROJECT GUTENBERG EBOOK A ***\n\n"
    + BODY
    + b"\n*** END OF THE PROJECT GUTENBERG EBOOK A ***\n\nA licence that is dropped, too.\n" * 2
)


def test_a_sum_is_of_bytes_in_their_order():
    one, other = TextSum(), TextSum()
    one.add(b"123456789")
    for part in (b"1234", b"", b"56789"):
        other.add(part)
    assert one == other == TextSum(9, 0xCBF43926), "the check value of CRC-32"
    other.add(b"\0")
    assert one != other


@pytest.mark.parametrize("unit", ["none", "lines", "prose"])
@pytest.mark.parametrize(("shard_bytes", "tokenizer"), [(1, BPE), (200, ByteTokenizer())])
def test_what_is_encoded_is_counted_as_it_was_cut(monkeypatch, unit, shard_bytes, tokenizer):
    monkeypatch.setattr(document_range, "_CHUNK_BYTES", 64)
    first, last = body_range(BOOK)
    assert 0 < first < last < len(BOOK)
    document = MemoryDocument("a", BOOK)
    source = [
        DocumentRange(document),
        DocumentRange(document, 5, first + 40),
        DocumentRange(document, first + 40, last + 10),
        DocumentRange(document, last + 10),
        DocumentRange(document, 3, 9),
        DocumentRange(MemoryDocument("b", b" \n\n ")),
    ]
    n_bytes = 0
    for shard in cut_shards([source], tokenizer.cut, unit, shard_bytes):
        encoder = ShardEncoder(io.BytesIO(), tokenizer, unit, is_first=shard.number == 0)
        encoder.add_all(shard.pieces)
        assert encoder.text == shard.text
        n_bytes += shard.text.n_bytes
    expected = sum((part.stop or len(part.document.text)) - part.start for part in source)
    assert n_bytes == expected
