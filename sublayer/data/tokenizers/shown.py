"""Tokens as people read them: the text of each, with its blanks and its special names."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from sublayer.data.arrays import AnyInts, Ints, TokenIds
from sublayer.data.sentencepiece.unigram import UnigramTokenizer
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tasks.encoded import TRAVERSAL_NAMES
from sublayer.data.tokenizers.base import (
    SPECIAL_NAMES,
    Tokenizer,
    WrappedTokenizer,
    after_newline,
    decode_utf8,
)
from sublayer.data.tokenizers.words import SPACE

END = "</s>"
"""The usual name of what ends a document."""


class WordTokens(Tokenizer):
    """An id for each space-separated word of some texts, after the formats' special tokens."""

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
        self._set_pieces([name.encode() for name in self.names])

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
        return self._described(names=self.names)


def show_tokens(ids: AnyInts, tokenizer: Tokenizer) -> list[str]:
    """Return a text for each id: a blank is ``▁``, and characters without a shape are escaped.

    Ids without text are shown by name, such as ``[SEP]``.
    """
    names = special_names(tokenizer)
    return [names[id_] if id_ in names else _piece(tokenizer, id_) for id_ in ids.tolist()]


def special_names(tokenizer: Tokenizer) -> dict[int, str]:
    """Return the names of ids without text: the vocabulary's, else the usual ones."""
    names = {id_: name for name, id_ in tokenizer.added_ids.items()}
    ids = {key: usual[0] for key, usual in SPECIAL_NAMES.items()} | {"end_id": END}
    for key, usual in ids.items():
        id_ = getattr(tokenizer, key)
        if id_ is not None:
            names.setdefault(id_, _named(tokenizer, id_) or usual)
    return names


def _named(tokenizer: Tokenizer, id_: int) -> str:
    if isinstance(tokenizer, WrappedTokenizer):
        return _named(tokenizer.vocabulary, id_)
    if isinstance(tokenizer, SubwordTokenizer | UnigramTokenizer | WordTokens):
        return tokenizer.names[id_]
    return ""


def _piece(tokenizer: Tokenizer, id_: int) -> str:
    name = "" if tokenizer.is_lossless else _named(tokenizer, id_)
    piece = name or tokenizer.decode([id_]).decode("utf-8", "backslashreplace")
    spaced = piece.replace(" ", SPACE)
    return "".join(
        character if character.isprintable() else repr(character)[1:-1] for character in spaced
    )
