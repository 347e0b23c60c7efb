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
from sublayer.data.text.files import MemoryDocument, Text
from sublayer.files.file_text import FileText

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
    place = document.place()
    flags = [piece.source, piece.begins, piece.ends]
    if place is None:
        # What is in no file goes along.
        text = document.read()[:]
        where: list[Any] = [base64.b64encode(text).decode()]
    else:
        path, start, stop = place
        where = [str(path), start, stop]
    return [document.name, piece.part.start, piece.part.stop, flags, where]


def _piece(described: list[Any]) -> Piece:
    name, start, stop, (source, begins, ends), where = described
    document: _PlacedDocument | MemoryDocument
    if len(where) == 1:
        document = MemoryDocument(name, base64.b64decode(where[0]))
    else:
        document = _PlacedDocument(name, Path(where[0]), where[1], where[2])
    return Piece(DocumentRange(document, start, stop), source, begins, ends)
