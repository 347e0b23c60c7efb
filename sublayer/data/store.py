"""Token ids on disk, memory-mapped: one file per split, named by the content that it was made from.

The file holds the ids, the starts of documents, of sources and of sentences, a JSON description, and a checksum of
the description; what is written last makes it valid, so a file cut short anywhere is not read but made again.
"""

import hashlib
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from sublayer.data.cache import replacing
from sublayer.data.described import aligned, read_description, write_description
from sublayer.data.piece import Piece, raw_chunks
from sublayer.data.sentences import TextUnit, sentences_of
from sublayer.data.vocabulary import NotUtf8, Tokenizer
from sublayer.errors import DataError

VERSION = 1
"""Changes whenever equal content would be stored as other bytes."""

_CHECKED_BYTES = 256 << 20
_BATCH_SENTENCES = 1024


@dataclass(frozen=True)
class TokenStore:
    """The ids of a text in order, and what they were made from.

    ``document_starts`` and ``source_starts`` are ascending positions in ``ids`` that begin with 0. ``n_bytes`` counts
    the raw bytes and ``sha256`` is their checksum. ``is_lossless``: the ids stand for exactly those bytes.

    ``sentence_starts`` are the ascending positions of the first token of each sentence, the start of every document
    among them; None where the text was not cut into sentences. With them, ``n_bytes`` counts the bytes of the
    sentences alone, nothing between them, ``is_lossless`` is about those, no end of a document is stored, and
    ``n_dropped_sentences`` and ``n_dropped_documents`` count those that gave no token.
    """

    ids: NDArray[np.integer]
    document_starts: NDArray[np.int64]
    source_starts: NDArray[np.int64]
    n_bytes: int
    sha256: str
    is_lossless: bool
    sentence_starts: NDArray[np.int64] | None = None
    n_dropped_sentences: int = 0
    n_dropped_documents: int = 0

    @property
    def n_tokens(self) -> int:
        """Number of ids, ends of documents included."""
        return len(self.ids)


def write_store(
    path: Path, sources: Sequence[Sequence[Piece]], tokenizer: Tokenizer, sentences: TextUnit = "none"
) -> None:
    """Encode the pieces of each source and write their ids; between documents stands the tokenizer's end id.

    Where ``sentences`` are cut, each is encoded on its own, and those and documents without tokens are dropped; of
    pairs, each of which is a document of two sentences, those with a side without tokens. Ids take two bytes where the
    vocabulary allows it. Raises DataError with file and line where a text cannot be encoded
    or a source has no sentence, and where the disk is full.
    """
    dtype = np.dtype("<u2" if tokenizer.vocab_size < 1 << 16 else "<u4")
    with replacing(path) as file:
        writer = _Writer(file, tokenizer, dtype, None if sentences == "none" else array("q"))
        for pieces in sources:
            first = len(writer.document_starts)
            writer.add_all(pieces, sentences)
            if len(writer.document_starts) == first:
                raise DataError(f"{pieces[0].document.name} has no sentence, nor has what follows it: give other text")
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
        documents, others, sentences = np.split(starts, np.cumsum([meta["n_documents"], meta["n_sources"]]))
        has_sentences = "n_sentences" in meta
        return TokenStore(
            ids,
            documents,
            others,
            meta["n_bytes"],
            meta["sha256"],
            meta["is_lossless"],
            sentences if has_sentences else None,
            meta["n_dropped_sentences"] if has_sentences else 0,
            meta["n_dropped_documents"] if has_sentences else 0,
        )
    except (OSError, ValueError, KeyError):
        return None


def _read_description(path: Path) -> tuple[dict[str, Any], tuple[int, int]]:
    meta, n_bytes = read_description(path)
    first = aligned(meta["n_tokens"] * np.dtype(meta["dtype"]).itemsize)
    if first + 8 * (meta["n_documents"] + meta["n_sources"] + meta.get("n_sentences", 0)) != n_bytes:
        raise ValueError("its size is not what it describes")
    return meta, (first, n_bytes)


@dataclass
class _Writer:
    file: BinaryIO
    tokenizer: Tokenizer
    dtype: np.dtype[Any]
    sentence_starts: "array[int] | None" = None
    n_tokens: int = 0
    n_bytes: int = 0
    n_dropped_sentences: int = 0
    n_dropped_documents: int = 0
    document_starts: "array[int]" = field(default_factory=lambda: array("q"))
    source_starts: list[int] = field(default_factory=list)
    is_lossless: bool = True
    crc: int = 0

    def __post_init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def add_all(self, pieces: Sequence[Piece], unit: TextUnit) -> None:
        if unit == "pair":
            self.add_pairs(pieces)
            return
        for piece in pieces:
            if unit == "none":
                self.add(piece)
            else:
                self.add_sentences(piece, unit)

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

    def add_sentences(self, piece: Piece, rule: TextUnit) -> None:
        first = self.n_tokens
        for chunk in raw_chunks(piece):
            self.sha256.update(chunk)
        for sentences in sentences_of(piece, rule):
            for begin in range(0, len(sentences), _BATCH_SENTENCES):
                self._add_batch([each.encode() for each in sentences[begin : begin + _BATCH_SENTENCES]])
        if self.n_tokens == first:
            self.n_dropped_documents += 1
        else:
            self.document_starts.append(first)

    def add_pairs(self, pieces: Sequence[Piece]) -> None:
        assert self.sentence_starts is not None, "only a store of sentences takes pairs"
        for batch in _batched(pieces):
            texts = [text for piece in batch for text in piece.document.read()[:].split(b"\n")[:2]]
            encoded = zip(
                self.tokenizer.encode_many(texts[::2]), self.tokenizer.encode_targets(texts[1::2]), strict=True
            )
            for place, (source, target) in zip(range(0, len(texts), 2), encoded, strict=True):
                if not (len(source) and len(target)):
                    self.n_dropped_documents += 1
                    continue
                self.document_starts.append(self.n_tokens)
                self.sentence_starts.extend((self.n_tokens, self.n_tokens + len(source)))
                for text, ids in zip(texts[place : place + 2], (source, target), strict=True):
                    self.sha256.update(text + b"\n")
                    self.n_bytes += len(text)
                    self.is_lossless = self.is_lossless and _is_exact(self.tokenizer, text, ids)
                self._append(np.concatenate([source, target]))

    def _add_batch(self, sentences: list[bytes]) -> None:
        assert self.sentence_starts is not None, "only a store of sentences takes sentences"
        encoded = self.tokenizer.encode_many(sentences)
        kept = [ids for ids in encoded if len(ids)]
        self.n_dropped_sentences += len(encoded) - len(kept)
        self.sentence_starts.extend((self.n_tokens + np.cumsum([0, *map(len, kept)])[:-1]).tolist())
        for text, ids in zip(sentences, encoded, strict=True):
            if len(ids):
                self.n_bytes += len(text)
                self.is_lossless = self.is_lossless and _is_exact(self.tokenizer, text, ids)
        if kept:
            self._append(np.concatenate(kept))

    def close(self) -> None:
        self.file.write(b"\0" * (aligned(self.n_tokens * self.dtype.itemsize) - self.n_tokens * self.dtype.itemsize))
        arrays = [self.document_starts, self.source_starts, self.sentence_starts or ()]
        starts = b"".join(np.array(each, dtype="<i8").tobytes() for each in arrays)
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
        if self.sentence_starts is not None:
            meta["n_sentences"] = len(self.sentence_starts)
            meta["n_dropped_sentences"] = self.n_dropped_sentences
            meta["n_dropped_documents"] = self.n_dropped_documents
        write_description(self.file, meta)

    def _append(self, ids: NDArray[np.integer]) -> None:
        data = ids.astype(self.dtype).tobytes()
        self.file.write(data)
        self.crc = zlib.crc32(data, self.crc)
        self.n_tokens += len(ids)


def _is_exact(tokenizer: Tokenizer, text: bytes, ids: NDArray[np.int32]) -> bool:
    if tokenizer.is_lossless:
        return True
    return int(tokenizer.token_bytes[ids].sum()) == len(text) and tokenizer.decode(ids) == text


def _batched(pieces: Sequence[Piece]) -> Iterator[list[Piece]]:
    rest = iter(pieces)
    while batch := list(islice(rest, _BATCH_SENTENCES)):
        yield batch
