"""Memory-mapped token ids on disk, and splits; a file is named after its content's origin.

A file, written by ``shards.write_store``, holds the ids, the starts of documents, of sources and of
sentences, a JSON description, and a checksum of the description. The part written last makes the
file valid, so that truncated files are made anew.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from sublayer.data.parallel import PairText
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import DataError
from sublayer.files.arrays import AnyInts, Floats, Ints, check_bytes, read_columns, read_description
from sublayer.numbers import count


@dataclass(frozen=True)
class TokenStore:
    """Token ids of a text in order, with its counts and checksums.

    All starts are positions in ``ids``, ascending from 0. For a text cut into sentences, no ends of
    documents are stored.
    """

    ids: AnyInts
    document_starts: Ints
    source_starts: Ints
    n_bytes: int
    """Number of raw bytes; for a text cut into sentences, without those between sentences."""
    sha256: str
    """Checksum of the raw bytes of all documents, cut into sentences or not; for pairs, of the
    words of the stored pairs, a line per side."""
    is_lossless: bool
    """Whether the ids decode to exactly the bytes that ``n_bytes`` counts."""
    sentence_starts: Ints | None = None
    """Positions of each sentence's first token, starts of documents included; None where the text
    was not cut into sentences."""
    n_dropped_sentences: int = 0
    """Number of sentences without a token."""
    n_dropped_documents: int = 0
    """Number of documents without a token, or of pairs with a side without one."""
    n_characters: int | None = None
    """Number of Unicode characters in the bytes that ``n_bytes`` counts; None if lossless, where
    the decoded ids are counted."""
    crc32s: tuple[int, ...] = ()
    """CRC-32 of the stored ids and of all starts; empty for a store in memory only."""
    marks: Mapping[str, int] = field(default_factory=dict)
    """Occurrences of special tokens' names in the text, whether read as such tokens or not."""

    @property
    def n_tokens(self) -> int:
        """Number of ids, ends of documents included."""
        return len(self.ids)


def read_store(path: Path) -> TokenStore | None:
    """Open a stored split; None if it is missing or damaged.

    Ids and starts of up to 256 MiB are checked by CRC, larger ones only by size. They are
    memory-mapped.
    """
    try:
        meta, n_bytes = read_description(path)
        dtype = np.dtype(meta["dtype"])
        n_id_bytes = meta["n_tokens"] * dtype.itemsize
        counts = [meta["n_documents"], meta["n_sources"], meta.get("n_sentences", 0)]
        check_bytes(path, 0, n_id_bytes, meta["crc32"])
        document_starts, source_starts, sentence_starts = read_columns(
            path, n_id_bytes, counts, n_bytes, meta["starts_crc32"]
        )
        return TokenStore(
            ids=np.memmap(path, dtype=dtype, mode="r", shape=(meta["n_tokens"],)),
            document_starts=document_starts,
            source_starts=source_starts,
            n_bytes=meta["n_bytes"],
            sha256=meta["sha256"],
            is_lossless=meta["is_lossless"],
            sentence_starts=sentence_starts if "n_sentences" in meta else None,
            n_dropped_sentences=meta.get("n_dropped_sentences", 0),
            n_dropped_documents=meta.get("n_dropped_documents", 0),
            n_characters=None if meta["is_lossless"] else meta["n_characters"],
            crc32s=(meta["crc32"], meta["starts_crc32"]),
            marks=meta.get("marks", {}),
        )
    except (OSError, ValueError, KeyError):
        return None


_CHUNK_TOKENS = 1 << 20


@dataclass(frozen=True)
class Split:
    """Split of a text: token ids in order, with the data that evaluation and records need."""

    name: str
    """``train``, ``valid`` or ``test``."""
    store: TokenStore
    tokenizer: Tokenizer
    sources: tuple[str, ...]
    """Names of the sources of the ids, in their order."""
    weights: tuple[float, ...] | None = None
    """Weight of each source in draws for training, above 0 and relative to the others; None: the
    sources' sizes."""
    n_empty_documents: int = 0
    """Number of documents without text, which were left out."""
    is_cut: bool = False
    """Whether the split is a part of each document, the other parts being in other splits."""
    read_pairs: Callable[[], Sequence[PairText]] | None = None
    """Function that reads the texts of pairs; None where the text is not made of pairs."""

    @property
    def ids(self) -> AnyInts:
        """Token ids, ``[N]``, memory-mapped."""
        return self.store.ids

    @property
    def document_starts(self) -> Ints:
        """Positions of the first token of each document, ``[D]``, ascending from 0."""
        return self.store.document_starts

    @property
    def sentence_starts(self) -> Ints | None:
        """Positions of each sentence's first token, ``[S]``, ascending; None without sentences."""
        return self.store.sentence_starts

    def documents_at(self, positions: Ints) -> Ints:
        """Return the number of the document at each position of the ids."""
        numbers: Ints = np.searchsorted(self.document_starts, positions, side="right") - 1
        return numbers

    @property
    def drawn(self) -> tuple[Ints, Floats]:
        """Bounds ``[W + 1]`` and weights ``[W]`` of the parts from which training draws.

        Each source is a part; without weights all sources are one.
        """
        if self.weights is None:
            return np.array([0, len(self.ids)]), np.ones(1)
        return np.append(self.store.source_starts, len(self.ids)), np.array(self.weights)

    @cached_property
    def n_kept_bytes(self) -> int:
        """Count the bytes of the decoded ids; for a lossy tokenizer, not those of the text."""
        token_bytes = self.tokenizer.token_bytes
        chunks = (
            self.ids[start : start + _CHUNK_TOKENS]
            for start in range(0, len(self.ids), _CHUNK_TOKENS)
        )
        return sum(int(token_bytes[ids].sum()) for ids in chunks)

    @cached_property
    def pairs(self) -> Sequence[PairText]:
        """Return every pair of texts in order, read at the first access and then cached.

        Pairs with an empty side, which are not stored as ids, are included.
        """
        assert self.read_pairs is not None, "the text is pairs"
        return self.read_pairs()

    def sizes(self) -> dict[str, int]:
        """Count the bytes, tokens and documents, for a record.

        Sentences, and empty documents and sentences that were left out, are counted where any.
        """
        sizes = {
            "bytes": self.store.n_bytes,
            "tokens": len(self.ids),
            "documents": len(self.document_starts),
        }
        if self.sentence_starts is not None:
            sizes["sentences"] = len(self.sentence_starts)
        n_empty_documents = self.n_empty_documents + self.store.n_dropped_documents
        if n_empty_documents:
            sizes["empty_documents"] = n_empty_documents
        if self.store.n_dropped_sentences:
            sizes["empty_sentences"] = self.store.n_dropped_sentences
        return sizes

    def check_windows(self, context: int, n_ahead: int) -> None:
        """Raise DataError unless every source has a window of ``context`` and ``n_ahead`` tokens.

        Sources are those of ``check_length``.
        """
        self.check_length(context + n_ahead, f"data.context + {n_ahead}")

    def check_length(self, needed: int, why: str) -> None:
        """Raise DataError unless every source that is drawn from has ``needed`` tokens.

        Without weights the sources are one text. ``why`` names the settings that require them.
        """
        names = [" and ".join(self.sources)] if self.weights is None else self.sources
        bounds, _ = self.drawn
        for name, n_tokens in zip(names, np.diff(bounds).tolist(), strict=True):
            if n_tokens < needed:
                raise DataError(
                    f"the {self.name} split of {name} has {count(n_tokens, 'token')}, fewer than "
                    f"{why} = {needed:,}: give a longer text or a smaller data.context"
                )
