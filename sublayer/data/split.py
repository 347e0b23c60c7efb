"""A split as training and evaluation see it: stored ids, the tokenizer that made them, and how to sample them."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sublayer.data.store import TokenStore
from sublayer.data.vocabulary import Tokenizer
from sublayer.errors import DataError


@dataclass(frozen=True)
class Split:
    """Token ids in order, with what their evaluation and their record need.

    ``sources`` names what the ids came from, in order. ``weights`` are the probabilities with which training draws
    from each source; None: in proportion to their sizes. ``n_empty_documents`` were left out for having no text.
    """

    name: str
    store: TokenStore
    tokenizer: Tokenizer
    sources: tuple[str, ...]
    weights: tuple[float, ...] | None = None
    n_empty_documents: int = 0

    @property
    def ids(self) -> NDArray[np.integer]:
        """Token ids, ``[N]``, memory-mapped."""
        return self.store.ids

    @property
    def document_starts(self) -> NDArray[np.int64]:
        """Positions of the first token of each document, ascending."""
        return self.store.document_starts

    @property
    def sentence_starts(self) -> NDArray[np.int64] | None:
        """Positions of the first token of each sentence, ascending; None where the text has no sentences."""
        return self.store.sentence_starts

    def sizes(self) -> dict[str, int]:
        """Give the bytes, tokens and documents, for a record; the sentences, and what was left out, where some were."""
        sizes = {"bytes": self.store.n_bytes, "tokens": len(self.ids), "documents": len(self.document_starts)}
        if self.sentence_starts is not None:
            sizes["sentences"] = len(self.sentence_starts)
        dropped = {
            "empty_documents": self.n_empty_documents + self.store.n_dropped_documents,
            "empty_sentences": self.store.n_dropped_sentences,
        }
        return sizes | {name: count for name, count in dropped.items() if count}

    def check_context(self, context: int, n_ahead: int = 1) -> None:
        """Raise DataError unless every source that is drawn from on its own has a window and what is ahead of it."""
        bounds = [0, len(self.ids)] if self.weights is None else [*self.store.source_starts.tolist(), len(self.ids)]
        names = [" and ".join(self.sources)] if self.weights is None else self.sources
        for name, start, stop in zip(names, bounds[:-1], bounds[1:], strict=True):
            if stop - start < context + n_ahead:
                raise DataError(
                    f"the {self.name} split of {name} has {stop - start:,} tokens, fewer than "
                    f"data.context + {n_ahead} = {context + n_ahead:,}: give a longer text or a smaller data.context"
                )
