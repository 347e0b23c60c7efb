"""A split for training and evaluation: stored ids, their tokenizer, and how to sample them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from sublayer.counts import count
from sublayer.data.arrays import AnyInts, Ints
from sublayer.data.parallel.sources import PairText
from sublayer.data.store import TokenStore
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import DataError

_CHUNK_TOKENS = 1 << 20


@dataclass(frozen=True)
class Split:
    """Token ids in order, with what their evaluation and their record need."""

    name: str
    """``train``, ``valid`` or ``test``."""
    store: TokenStore
    tokenizer: Tokenizer
    sources: tuple[str, ...]
    """What the ids came from, in their order."""
    weights: tuple[float, ...] | None = None
    """How often training draws from each source, in proportion to each other, above 0; None: in
    proportion to their sizes."""
    n_empty_documents: int = 0
    """Documents that were left out for having no text."""
    is_cut: bool = False
    """Whether it is a part of each document, whose other parts are in other splits."""
    read_pairs: Callable[[], Sequence[PairText]] | None = None
    """Reads the texts of pairs; None where the text is none."""

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

    @cached_property
    def n_kept_bytes(self) -> int:
        """Count the bytes that the ids stand for, of which a lossy tokenizer keeps not all."""
        token_bytes = self.tokenizer.token_bytes
        chunks = (
            self.ids[start : start + _CHUNK_TOKENS]
            for start in range(0, len(self.ids), _CHUNK_TOKENS)
        )
        return sum(int(token_bytes[ids].sum()) for ids in chunks)

    @cached_property
    def pairs(self) -> Sequence[PairText]:
        """Return every pair of texts, in order; read at the first access, then cached.

        Those with an empty side are among them, which are not stored as ids.
        """
        assert self.read_pairs is not None, "the text is pairs"
        return self.read_pairs()

    def sizes(self) -> dict[str, int]:
        """Return the bytes, tokens and documents, for a record.

        With them the sentences, and what was left out, where there are some.
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
        """Raise DataError unless every source has a window and what is ahead, as ``check_length``.

        Both are in tokens.
        """
        self.check_length(context + n_ahead, f"data.context + {n_ahead}")

    def check_length(self, needed: int, why: str) -> None:
        """Raise DataError unless every source that is drawn from has ``needed`` tokens.

        Without weights the sources are drawn from as one text. ``why`` names the settings that ask
        for so many.
        """
        names: Sequence[str] = [" and ".join(self.sources)]
        starts = [0]
        if self.weights is not None:
            # Each source is drawn from on its own.
            names = self.sources
            starts = self.store.source_starts.tolist()
        bounds = pairwise([*starts, len(self.ids)])
        for name, (start, stop) in zip(names, bounds, strict=True):
            n_tokens = stop - start
            if n_tokens < needed:
                raise DataError(
                    f"the {self.name} split of {name} has {count(n_tokens, 'token')}, fewer than "
                    f"{why} = {needed:,}: give a longer text or a smaller data.context"
                )
