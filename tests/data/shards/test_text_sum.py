"""What is encoded of a shard is counted to the byte as it was cut, dropped or not."""

import io

import pytest

from sublayer.data.shards.cutting import cut_shards
from sublayer.data.shards.encoding import ShardEncoder
from sublayer.data.shards.text_sum import TextSum
from sublayer.data.text import document_range
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import MemoryDocument
from sublayer.data.text.gutenberg import body_range
from sublayer.data.tokenizers.characters import ByteTokenizer
from tests.data.shards.paragraphs import BPE

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
@pytest.mark.parametrize("shard_bytes", [1, 200, 1 << 30])
@pytest.mark.parametrize("tokenizer", [ByteTokenizer(), BPE])
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
