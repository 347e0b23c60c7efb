"""Words as tokens, to show rows of tasks without any vocabulary."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from sublayer.data.arrays import Ints, TokenIds
from sublayer.data.tasks.marks import TRAVERSAL_NAMES
from sublayer.data.tokenizers.base import FORMAT, VERSION, Tokenizer, after_newline, decode_utf8


class WordTokens(Tokenizer):
    """An id for each word of some texts, as spaces divide them, behind those of formats' marks."""

    kind = "words"
    is_lossless = False

    def __init__(self, texts: Iterable[str], *, first: str = "[CLS]", last: str = "[SEP]") -> None:
        words = (word for text in texts for word in text.split())
        marks = (first, last, *TRAVERSAL_NAMES)
        self.names = [*marks, *dict.fromkeys(words)]
        self.vocab_size = len(self.names)
        self.special_ids = tuple(range(len(marks)))
        self.cls_id, self.sep_id, *added = self.special_ids
        self.added_ids = dict(zip(TRAVERSAL_NAMES, added, strict=True))
        # A word that is written like a mark is none.
        self._ids = {name: id_ for id_, name in enumerate(self.names) if id_ >= len(marks)}
        n_bytes = [len(name.encode()) for name in self.names]
        self.token_bytes = np.array(n_bytes, dtype=np.int64)
        self.token_characters = np.array(list(map(len, self.names)), dtype=np.int64)

    def encode(self, text: bytes) -> TokenIds:
        """Encode words, all of which are known."""
        words = decode_utf8(text).split()
        return np.array([self._ids[word] for word in words], dtype=np.int32)

    def _decode(self, ids: Ints) -> bytes:
        return " ".join(self.names[id_] for id_ in ids.tolist()).encode()

    def cut(self, text: bytes, near: int) -> int:
        """Cut after a newline."""
        return after_newline(text, near)

    def content(self) -> dict[str, Any]:
        """Return the names."""
        return {"format": FORMAT, "version": VERSION, "kind": self.kind, "names": self.names}
