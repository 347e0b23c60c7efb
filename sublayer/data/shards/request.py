"""What a process is asked to encode: a shard's pieces by where their text lies, as a line."""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from sublayer.data.shards.cutting import Piece, Shard
from sublayer.data.text.document_range import DocumentRange
from sublayer.data.text.files import FileDocument, MemoryDocument, Text
from sublayer.files.file_text import FileText
from sublayer.files.lines import unpacked

_SMALL_BYTES = 1 << 20


@dataclass(frozen=True)
class _PlacedDocument:
    """A document by its name and by where its text lies in a file."""

    name: str
    path: Path
    start: int
    stop: int

    def read(self) -> Text:
        if self.stop - self.start > _SMALL_BYTES:
            return FileText(self.path, self.start, self.stop)
        return _opened(self.path)[self.start : self.stop]

    def digest(self) -> str:
        raise AssertionError("the process that asks knows the text's digest")

    def place(self) -> tuple[Path, int, int] | None:
        return self.path, self.start, self.stop


@dataclass(frozen=True)
class _PackedDocument:
    """A compressed file that is unpacked where it is encoded."""

    name: str
    path: Path

    def read(self) -> Text:
        return unpacked(self.path)

    def digest(self) -> str:
        raise AssertionError("the process that asks knows the text's digest")

    def place(self) -> None:
        return None


@lru_cache(maxsize=8)
def _opened(path: Path) -> FileText:
    # Of a file with many documents, opened for all of them.
    return FileText(path)


def write_request(shard: Shard, part: Path) -> bytes:
    """Return the line that asks for a shard to be encoded into the file ``part``."""
    pieces = [_described(piece) for piece in shard.pieces]
    return (
        json.dumps({"number": shard.number, "part": str(part), "pieces": pieces}).encode() + b"\n"
    )


def read_request(line: bytes) -> tuple[int, Path, Iterator[Piece]]:
    """Return the number of a shard, the file to write, and the pieces."""
    request = json.loads(line)
    return request["number"], Path(request["part"]), map(_piece, request["pieces"])


def _described(piece: Piece) -> list[Any]:
    document = piece.part.document
    flags = [piece.source, piece.begins, piece.ends]
    where: dict[str, Any]
    if place := document.place():
        path, start, stop = place
        where = {"file": [str(path), start, stop]}
    elif isinstance(document, FileDocument):
        where = {"packed": str(document.path)}
    else:
        # What is in no file goes along.
        text = document.read()[:]
        where = {"text": base64.b64encode(text).decode()}
    return [document.name, piece.part.start, piece.part.stop, flags, where]


def _piece(described: list[Any]) -> Piece:
    name, start, stop, (source, begins, ends), where = described
    document: _PlacedDocument | _PackedDocument | MemoryDocument
    if "text" in where:
        document = MemoryDocument(name, base64.b64decode(where["text"]))
    elif "packed" in where:
        document = _PackedDocument(name, Path(where["packed"]))
    else:
        path, first, last = where["file"]
        document = _PlacedDocument(name, Path(path), first, last)
    return Piece(DocumentRange(document, start, stop), source, begins, ends)
