"""A stand-in for a text with sentences: random ids, with lengths as prose has them, in memory.

Speed and memory do not depend on which tokens a text has, but on how many its sentences and
documents have.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.data.store import Split, TokenStore
from sublayer.data.tokenizers.base import Tokenizer

N_DOCUMENTS = 1000
SENTENCES = (5, 200)
"""Fewest and most sentences of a document."""
TOKENS = (5, 60)
"""Fewest and most tokens of a sentence."""
_P_CONTINUES = 0.25
"""Share of the vocabulary that continues a word."""
_N_SPECIAL = 5


class StandInTokenizer(Tokenizer):
    """A vocabulary without text, which has what masked objectives need, and sentinels last."""

    kind = "stand-in"
    has_words = True
    is_lossless = False

    def __init__(self, vocab_size: int, n_sentinels: int = 0) -> None:
        self.vocab_size = vocab_size
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = range(_N_SPECIAL)
        # Counted down from the last, as T5's.
        self.sentinel_ids = tuple(vocab_size - 1 - number for number in range(n_sentinels))
        self.special_ids = (*range(_N_SPECIAL), *reversed(self.sentinel_ids))
        self.token_bytes = self.token_characters = np.zeros(vocab_size, dtype=np.int64)
        self._starts_word = (
            np.random.Generator(np.random.Philox(0)).random(vocab_size) >= _P_CONTINUES
        )
        self._starts_word[:_N_SPECIAL] = True

    def encode(self, text: bytes) -> NDArray[np.int32]:
        raise NotImplementedError("a stand-in reads no text")

    def _decode(self, ids: NDArray[np.int64]) -> bytes:
        raise NotImplementedError("a stand-in writes no text")

    def cut(self, text: bytes, near: int) -> int:
        return near

    def content(self) -> dict[str, Any]:
        return {"kind": self.kind, "vocab_size": self.vocab_size}

    def starts_word(self, ids: NDArray[np.integer]) -> NDArray[np.bool_]:
        starts: NDArray[np.bool_] = self._starts_word[ids]
        return starts


def stand_in(vocab_size: int, n_sentinels: int = 0) -> Split:
    """Make documents of 5 to 200 sentences of 5 to 60 tokens: always the same 3.3 million.

    Where there are sentinels, the last ids of the vocabulary, the text has none of them.
    """
    generator = np.random.Generator(np.random.Philox(1))
    n_sentences = generator.integers(*SENTENCES, size=N_DOCUMENTS, endpoint=True)
    n_tokens = generator.integers(*TOKENS, size=int(n_sentences.sum()), endpoint=True)
    sentences = np.cumsum(n_tokens) - n_tokens
    documents = sentences[np.cumsum(n_sentences) - n_sentences]
    n_of_text = vocab_size - n_sentinels
    ids = generator.integers(_N_SPECIAL, n_of_text, size=int(n_tokens.sum()), dtype=np.uint16)
    starts = np.zeros(1, dtype=np.int64)
    store = TokenStore(ids, documents, starts, 0, "", is_lossless=False, sentence_starts=sentences)
    return Split("train", store, StandInTokenizer(vocab_size, n_sentinels), ("a stand-in",))
