"""What a tokenizer does to a text: how it cuts it, and how much a token stands for."""

from dataclasses import dataclass

import numpy as np

from sublayer.data.split import Split
from sublayer.data.vocabulary import Tokenizer


@dataclass(frozen=True)
class TokenizerReport:
    """How a tokenizer fits a text.

    Ends of documents do not count. ``n_used`` counts different ids, ``n_unknown`` tokens that the vocabulary lacks.
    ``is_lossless`` says whether exactly this text can be had back from its tokens.
    """

    kind: str
    vocab_size: int
    n_bytes: int
    n_tokens: int
    n_used: int
    n_unknown: int
    is_lossless: bool

    @property
    def bytes_per_token(self) -> float:
        """Raw bytes that a token stands for, on average."""
        return self.n_bytes / self.n_tokens


def measure_tokenizer(split: Split) -> TokenizerReport:
    """Measure the tokenizer of a split on the split."""
    tokenizer = split.tokenizer
    counts = np.bincount(split.ids, minlength=tokenizer.vocab_size)
    if tokenizer.end_id is not None:
        counts[tokenizer.end_id] = 0
    return TokenizerReport(
        kind=tokenizer.kind,
        vocab_size=tokenizer.vocab_size,
        n_bytes=split.store.n_bytes,
        n_tokens=int(counts.sum()),
        n_used=int(np.count_nonzero(counts)),
        n_unknown=0 if tokenizer.unk_id is None else int(counts[tokenizer.unk_id]),
        is_lossless=split.store.is_lossless,
    )


def cut_text(tokenizer: Tokenizer, text: bytes) -> list[bytes]:
    """Show how a text splits: the bytes that each of its tokens stands for."""
    return [tokenizer.decode([id_]) for id_ in tokenizer.encode(text).tolist()]
