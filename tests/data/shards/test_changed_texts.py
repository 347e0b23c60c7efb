"""Ids are of the text that was read, whatever happens to its files meanwhile."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from sublayer.data.shards import joining
from sublayer.data.shards.encoding import ShardEncoder
from sublayer.data.store import write_store
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import FileDocument, MemoryDocument
from sublayer.data.tokenizers.characters import ByteTokenizer
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
