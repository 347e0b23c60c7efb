"""Token ids on disk, memory-mapped: one file per split, named by the content that it was made from.

The file holds the ids, the starts of documents, of sources and of sentences, a JSON description,
and a checksum of the description; what is written last makes it valid, so a file cut short anywhere
is not read but made again.
"""

import hashlib
import zlib
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from sublayer.data.arrays import AnyInts, Ints, TokenIds
from sublayer.data.text.document_range import DocumentRange, raw_chunks
from sublayer.data.text.sentences import TextUnit, sentences_of
from sublayer.data.tokenizers.base import NotUtf8, Tokenizer, count_characters
from sublayer.errors import DataError
from sublayer.files.cache_folder import replacing
from sublayer.files.json_footer import aligned, read_description, write_description

VERSION = 1
"""Changes whenever equal content would be stored as other bytes."""

_CHECKED_BYTES = 256 << 20
_BATCH_SENTENCES = 1024
"""Sentences or pairs that are encoded at a time."""


@dataclass(frozen=True)
class TokenStore:
    """The ids of a text in order, and what they were made from.

    All starts are ascending positions in ``ids`` that begin with 0. Of a text that was cut into
    sentences, no end of a document is stored.
    """

    ids: AnyInts
    document_starts: Ints
    source_starts: Ints
    n_bytes: int
    """Raw bytes; of a text that was cut, those of the sentences alone, nothing between them."""
    sha256: str
    """Of the raw bytes of all documents, sentences or not; of pairs, of the words of both sides
    of those that were kept, a side a line."""
    is_lossless: bool
    """Whether the ids stand for exactly the bytes that ``n_bytes`` counts."""
    sentence_starts: Ints | None = None
    """Positions of the first token of each sentence, the start of every document among them; None
    where the text was not cut."""
    n_dropped_sentences: int = 0
    """Sentences that gave no token."""
    n_dropped_documents: int = 0
    """Documents whose sentences all gave none, or pairs of which a side did."""
    n_characters: int | None = None
    """Unicode's in the bytes that ``n_bytes`` counts; None where the ids, which stand for them,
    tell."""

    @property
    def n_tokens(self) -> int:
        """Number of ids, ends of documents included."""
        return len(self.ids)


def write_store(
    path: Path,
    sources: Sequence[Sequence[DocumentRange]],
    tokenizer: Tokenizer,
    sentences: TextUnit = "none",
) -> None:
    """Encode the documents of each source and write their ids, an end id between documents.

    Where ``sentences`` are cut, each is encoded on its own, and those and documents without tokens
    are dropped; of pairs, each of which is a document of two sentences, those with a side without
    tokens. Ids take two bytes where the vocabulary has less than 65,536 of them, else four.

    Raises DataError, with file and line where a text cannot be encoded, with the file where a
    source has no sentence, and where the disk is full.
    """
    fits_two_bytes = tokenizer.vocab_size < 1 << 16
    dtype = np.dtype("<u2" if fits_two_bytes else "<u4")
    with replacing(path) as file:
        sentence_starts = None if sentences == "none" else array("q")
        writer = _Writer(file, tokenizer, dtype, sentence_starts)
        for ranges in sources:
            first = len(writer.document_starts)
            writer.add_all(ranges, sentences)
            if len(writer.document_starts) == first:
                raise DataError(
                    f"{ranges[0].document.name} has no sentence, nor has what follows it: "
                    "give other text"
                )
            writer.source_starts.append(writer.document_starts[first])
        writer.close()


def read_store(path: Path) -> TokenStore | None:
    """Open a stored split; None where there is none or it is damaged.

    Ids of up to 256 MiB are checked byte by byte, larger ones by their size alone. They are
    mapped, not read: memory holds what is used of them.
    """
    try:
        meta, offsets = _read_description(path)
        ids = np.memmap(path, dtype=meta["dtype"], mode="r", shape=(meta["n_tokens"],))
        if ids.nbytes <= _CHECKED_BYTES and zlib.crc32(ids.data) != meta["crc32"]:
            return None
        begin, end = offsets
        with path.open("rb") as file:
            file.seek(begin)
            data = file.read(end - begin)
        if zlib.crc32(data) != meta["starts_crc32"]:
            return None
        starts = np.frombuffer(data, dtype="<i8").astype(np.int64)
        bounds = np.cumsum([meta["n_documents"], meta["n_sources"]])
        document_starts, source_starts, sentence_starts = np.split(starts, bounds)
        store = TokenStore(
            ids=ids,
            document_starts=document_starts,
            source_starts=source_starts,
            n_bytes=meta["n_bytes"],
            sha256=meta["sha256"],
            is_lossless=meta["is_lossless"],
            n_characters=None if meta["is_lossless"] else meta["n_characters"],
        )
        if "n_sentences" not in meta:
            return store
        return replace(
            store,
            sentence_starts=sentence_starts,
            n_dropped_sentences=meta["n_dropped_sentences"],
            n_dropped_documents=meta["n_dropped_documents"],
        )
    except (OSError, ValueError, KeyError):
        return None


def _read_description(path: Path) -> tuple[dict[str, Any], tuple[int, int]]:
    meta, n_bytes = read_description(path)
    dtype = np.dtype(meta["dtype"])
    first = aligned(meta["n_tokens"] * dtype.itemsize)
    n_starts = meta["n_documents"] + meta["n_sources"] + meta.get("n_sentences", 0)
    if first + 8 * n_starts != n_bytes:
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
    n_characters: int = 0
    n_dropped_sentences: int = 0
    n_dropped_documents: int = 0
    document_starts: "array[int]" = field(default_factory=lambda: array("q"))
    source_starts: list[int] = field(default_factory=list)
    is_lossless: bool = True
    crc: int = 0

    def __post_init__(self) -> None:
        self.sha256 = hashlib.sha256()

    def add_all(self, ranges: Sequence[DocumentRange], unit: TextUnit) -> None:
        if unit == "pair":
            self.add_pairs(ranges)
            return
        for part in ranges:
            if unit == "none":
                self.add(part)
            else:
                self.add_sentences(part, unit)

    def add(self, part: DocumentRange) -> None:
        end_id = self.tokenizer.end_id
        if self.document_starts and end_id is not None:
            self._append(np.array([end_id]))
        self.document_starts.append(self.n_tokens)
        # Cut only where a cut changes no id, so that chunks give the ids of the whole.
        for start, chunk in part.chunks(self.tokenizer.cut):
            try:
                ids = self.tokenizer.encode(chunk)
            except NotUtf8 as error:
                raise part.not_utf8(start + error.position) from error
            self.sha256.update(chunk)
            self._count(chunk, ids)
            self._append(ids)

    def add_sentences(self, part: DocumentRange, rule: TextUnit) -> None:
        first = self.n_tokens
        for chunk in raw_chunks(part):
            self.sha256.update(chunk)
        for sentences in sentences_of(part, rule):
            for begin in range(0, len(sentences), _BATCH_SENTENCES):
                batch = sentences[begin : begin + _BATCH_SENTENCES]
                self._add_batch([sentence.encode() for sentence in batch])
        if self.n_tokens == first:
            self.n_dropped_documents += 1
        else:
            self.document_starts.append(first)

    def add_pairs(self, ranges: Sequence[DocumentRange]) -> None:
        assert self.sentence_starts is not None, "only a store of sentences takes pairs"
        for batch in _batched(ranges):
            # The words of both sides; the texts as they were read follow, and are not encoded.
            documents = [part.document.read()[:].split(b"\n") for part in batch]
            source_texts = [lines[0] for lines in documents]
            target_texts = [lines[1] for lines in documents]
            sources = self.tokenizer.encode_many(source_texts)
            targets = self.tokenizer.encode_targets(target_texts)
            rows = zip(source_texts, target_texts, sources, targets, strict=True)
            for source_text, target_text, source, target in rows:
                if not (len(source) and len(target)):
                    self.n_dropped_documents += 1
                    continue
                target_start = self.n_tokens + len(source)
                self.document_starts.append(self.n_tokens)
                self.sentence_starts.append(self.n_tokens)
                self.sentence_starts.append(target_start)
                for text, ids in ((source_text, source), (target_text, target)):
                    self.sha256.update(text + b"\n")
                    self._count(text, ids)
                self._append(np.concatenate([source, target]))

    def _count(self, text: bytes, ids: TokenIds) -> None:
        self.n_bytes += len(text)
        if self.tokenizer.is_lossless:
            return
        self.n_characters += int(count_characters([text])[0])
        if self.is_lossless:
            self.is_lossless = _is_exact(self.tokenizer, text, ids)

    def _add_batch(self, sentences: list[bytes]) -> None:
        assert self.sentence_starts is not None, "only a store of sentences takes sentences"
        encoded = self.tokenizer.encode_many(sentences)
        stored = []
        start = self.n_tokens
        for text, ids in zip(sentences, encoded, strict=True):
            if not len(ids):
                self.n_dropped_sentences += 1
                continue
            self.sentence_starts.append(start)
            self._count(text, ids)
            stored.append(ids)
            start += len(ids)
        if stored:
            self._append(np.concatenate(stored))

    def close(self) -> None:
        n_bytes = self.n_tokens * self.dtype.itemsize
        padding = aligned(n_bytes) - n_bytes
        self.file.write(b"\0" * padding)
        arrays = [self.document_starts, self.source_starts, self.sentence_starts or ()]
        parts = [np.array(each, dtype="<i8").tobytes() for each in arrays]
        starts = b"".join(parts)
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
        if not self.is_lossless:
            meta["n_characters"] = self.n_characters
        if self.sentence_starts is not None:
            meta["n_sentences"] = len(self.sentence_starts)
            meta["n_dropped_sentences"] = self.n_dropped_sentences
            meta["n_dropped_documents"] = self.n_dropped_documents
        write_description(self.file, meta)

    def _append(self, ids: AnyInts) -> None:
        data = ids.astype(self.dtype).tobytes()
        self.file.write(data)
        self.crc = zlib.crc32(data, self.crc)
        self.n_tokens += len(ids)


def _is_exact(tokenizer: Tokenizer, text: bytes, ids: TokenIds) -> bool:
    # Lengths are compared first: decoding takes longer.
    n_bytes = int(tokenizer.token_bytes[ids].sum())
    return n_bytes == len(text) and tokenizer.decode(ids) == text


def _batched(ranges: Sequence[DocumentRange]) -> Iterator[list[DocumentRange]]:
    rest = iter(ranges)
    while batch := list(islice(rest, _BATCH_SENTENCES)):
        yield batch
