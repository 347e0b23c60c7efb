"""Texts that are cut into shards, and stores that are written of them, whole or stopped midway."""

import gzip
from pathlib import Path

import pytest

from sublayer.data.shards.progress import Progress
from sublayer.data.store import read_store, write_store
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.document_store import open_pack
from sublayer.data.text.files import FileDocument, MemoryDocument
from sublayer.data.text.whole_documents import WholeDocuments
from sublayer.data.tokenizers.named import train_tokenizer

PARAGRAPHS = [f"Title {number}\n\nOne {number}. Two.\nThree!\n\n" * 3 for number in range(60)]
WHOLE = 1 << 40
BPE = train_tokenizer("bpe", [text.encode() for text in PARAGRAPHS], vocab_size=300)


def documents(folder: Path):
    """Sources of several kinds: in memory, in files, blank ones, and records of a pack."""
    in_memory = [MemoryDocument(str(n), text.encode()) for n, text in enumerate(PARAGRAPHS[:20])]
    blank = MemoryDocument("blank", b" \n\n ")
    files = []
    for number, text in enumerate(PARAGRAPHS[20:30]):
        path = folder / f"{number}.txt"
        path.write_bytes(text.encode())
        files.append(FileDocument(path, folder / "cache"))
    path = folder / "packed.txt.gz"
    path.write_bytes(gzip.compress(b"Packed. " * 100, mtime=0))
    files.append(FileDocument(path, folder / "cache"))
    texts = [(n, text.encode()) for n, text in enumerate(PARAGRAPHS[30:], 1)]
    records = open_pack(folder / "pack", [("records", lambda: iter(texts))])
    return [
        [DocumentRange(document) for document in (*in_memory, blank)],
        [DocumentRange(files[0], 7, 30), *map(DocumentRange, files[1:])],
        WholeDocuments(records),
    ]


def written(path: Path, *arguments, **options) -> bytes:
    path.unlink(missing_ok=True)
    write_store(path, *arguments, **options)
    assert read_store(path) is not None
    assert not list(path.parent.glob(f"{path.name}.*.unfinished"))
    return path.read_bytes()


def stopped(monkeypatch, after: int, *arguments, **options) -> None:
    """Write a store, and stop when so many shards were joined."""
    n_done = 0

    def add(progress: Progress, n_bytes: int) -> None:
        nonlocal n_done
        n_done += 1
        if n_done == after:
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Progress, "add", add)
        with pytest.raises(KeyboardInterrupt):
            write_store(*arguments, **options)
