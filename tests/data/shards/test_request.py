"""What a process is asked to encode is said by where it lies, compressed files too."""

import gzip

import pytest

from sublayer.data.shards.cutting import cut_shards
from sublayer.data.shards.request import read_request, write_request
from sublayer.data.text import files
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import FileDocument
from sublayer.data.tokenizers.characters import ByteTokenizer

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
