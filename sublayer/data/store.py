"""Token ids on disk, memory-mapped: one file per split, named by the content that it was made from.

The file holds the ids, the starts of documents and of sources, a JSON description, and a checksum of the description;
what is written last makes it valid, so a file cut short anywhere is not read but made again.
"""

import hashlib
import json
import struct
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from sublayer.data.cache import replacing
from sublayer.data.piece import Piece
from sublayer.data.vocabulary import NotUtf8, Tokenizer

VERSION = 1
"""Changes whenever equal content would be stored as other bytes."""

_MAGIC = b"SUBLAYER"
_TAIL = struct.Struct("<Q32s8s")
_CHECKED_BYTES = 256 << 20


@dataclass(frozen=True)
class TokenStore:
    """The ids of a text in order, and what they were made from.

    ``document_starts`` and ``source_starts`` are ascending positions in ``ids`` that begin with 0. ``n_bytes`` counts
    the raw bytes and ``sha256`` is their checksum. ``is_lossless``: the ids stand for exactly those bytes.
    """

    ids: NDArray[np.integer]
    document_starts: NDArray[np.int64]
    source_starts: NDArray[np.int64]
    n_bytes: int
    sha256: str
    is_lossless: bool

    @property
    def n_tokens(self) -> int:
        """Number of ids, ends of documents included."""
        return len(self.ids)


def write_store(path: Path, sources: Sequence[Sequence[Piece]], tokenizer: Tokenizer) -> None:
    """Encode the pieces of each source and write their ids; between documents stands the tokenizer's end id.

    Ids take two bytes where the vocabulary allows it. Raises DataError with file and line where a text cannot be
    encoded, and where the disk is full.
    """
    dtype = np.dtype("<u2" if tokenizer.vocab_size < 1 << 16 else "<u4")
    with replacing(path) as file:
        writer = _Writer(file, tokenizer, dtype)
        for pieces in sources:
            first = len(writer.document_starts)
            for piece in pieces:
                writer.add(piece)
            writer.source_starts.append(writer.document_starts[first])
        writer.close()


def read_store(path: Path) -> TokenStore | None:
    """Open a stored split; None where there is none or it is damaged.

    Ids of up to 256 MiB are checked byte by byte, larger ones by their size alone.
    """
    try:
        meta, offsets = _read_description(path)
        ids = np.memmap(path, dtype=meta["dtype"], mode="r", shape=(meta["n_tokens"],))
        if ids.nbytes <= _CHECKED_BYTES and zlib.crc32(ids.data) != meta["crc32"]:
            return None
        with path.open("rb") as file:
            file.seek(offsets[0])
            data = file.read(offsets[1] - offsets[0])
        if zlib.crc32(data) != meta["starts_crc32"]:
            return None
        starts = np.frombuffer(data, dtype="<i8").astype(np.int64)
        n_documents = meta["n_documents"]
        return TokenStore(
            ids, starts[:n_documents], starts[n_documents:], meta["n_bytes"], meta["sha256"], meta["is_lossless"]
        )
    except (OSError, ValueError, KeyError):
        return None


def _read_description(path: Path) -> tuple[dict[str, Any], tuple[int, int]]:
    size = path.stat().st_size
    with path.open("rb") as file:
        file.seek(max(0, size - _TAIL.size))
        tail = file.read()
        if len(tail) != _TAIL.size:
            raise ValueError("shorter than its tail")
        length, digest, magic = _TAIL.unpack(tail)
        if magic != _MAGIC or length + _TAIL.size > size:
            raise ValueError("not a token store")
        file.seek(size - _TAIL.size - length)
        text = file.read(length)
    if hashlib.sha256(text).digest() != digest:
        raise ValueError("its description is damaged")
    meta: dict[str, Any] = json.loads(text)
    first = _aligned(meta["n_tokens"] * np.dtype(meta["dtype"]).itemsize)
    last = first + 8 * (meta["n_documents"] + meta["n_sources"])
    if last + length + _TAIL.size != size:
        raise ValueError("its size is not what it describes")
    return meta, (first, last)


@dataclass
class _Writer:
    file: BinaryIO
    tokenizer: Tokenizer
    dtype: np.dtype[Any]
    n_tokens: int = 0
    n_bytes: int = 0
    document_starts: list[int] = field(default_factory=list)
    source_starts: list[int] = field(default_factory=list)
    is_lossless: bool = True
    crc: int = 0

    def __post_init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def add(self, piece: Piece) -> None:
        if self.document_starts and self.tokenizer.end_id is not None:
            self._append(np.array([self.tokenizer.end_id]))
        self.document_starts.append(self.n_tokens)
        for start, chunk in piece.chunks(self.tokenizer.cut):
            try:
                ids = self.tokenizer.encode(chunk)
            except NotUtf8 as error:
                raise piece.not_utf8(start + error.position) from error
            self.sha256.update(chunk)
            self.n_bytes += len(chunk)
            self.is_lossless = self.is_lossless and _is_exact(self.tokenizer, chunk, ids)
            self._append(ids)

    def close(self) -> None:
        self.file.write(b"\0" * (_aligned(self.n_tokens * self.dtype.itemsize) - self.n_tokens * self.dtype.itemsize))
        starts = np.array([*self.document_starts, *self.source_starts], dtype="<i8").tobytes()
        self.file.write(starts)
        meta = {
            "version": VERSION,
            "dtype": self.dtype.str,
            "n_tokens": self.n_tokens,
            "n_documents": len(self.document_starts),
            "n_sources": len(self.source_starts),
            "n_bytes": self.n_bytes,
            "sha256": self.sha256.hexdigest(),
            "is_lossless": self.is_lossless,
            "crc32": self.crc,
            "starts_crc32": zlib.crc32(starts),
        }
        text = json.dumps(meta).encode()
        self.file.write(text + _TAIL.pack(len(text), hashlib.sha256(text).digest(), _MAGIC))

    def _append(self, ids: NDArray[np.integer]) -> None:
        data = ids.astype(self.dtype).tobytes()
        self.file.write(data)
        self.crc = zlib.crc32(data, self.crc)
        self.n_tokens += len(ids)


def _is_exact(tokenizer: Tokenizer, text: bytes, ids: NDArray[np.int32]) -> bool:
    if tokenizer.is_lossless:
        return True
    return int(tokenizer.token_bytes[ids].sum()) == len(text) and tokenizer.decode(ids) == text


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // 8) * 8
