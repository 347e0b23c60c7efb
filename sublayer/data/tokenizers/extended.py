"""A vocabulary with ids of its own behind it, which stand for no text."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from sublayer.data.arrays import AnyInts, Bools, Ints, TokenIds
from sublayer.data.tokenizers.base import FORMAT, VERSION, Tokenizer
from sublayer.errors import DataError

KIND = "extended"


class ExtendedTokenizer(Tokenizer):
    """A ``vocabulary`` and the ``names`` of further ids, which follow its last one.

    They are never encoded from a text, have no bytes, and are decoded as nothing.
    """

    def __init__(self, vocabulary: Tokenizer, names: Sequence[str]) -> None:
        assert names, "an extended vocabulary has further ids"
        self.vocabulary = vocabulary
        self.names = tuple(names)
        first = vocabulary.vocab_size
        self.kind = vocabulary.kind
        self.vocab_size = first + len(names)
        ids = range(first, self.vocab_size)
        self.added_ids = {**vocabulary.added_ids, **dict(zip(names, ids, strict=True))}
        self.has_words = vocabulary.has_words
        self.is_lossless = vocabulary.is_lossless
        self.end_id = vocabulary.end_id
        self.unk_id = vocabulary.unk_id
        self.pad_id = vocabulary.pad_id
        self.cls_id = vocabulary.cls_id
        self.sep_id = vocabulary.sep_id
        self.mask_id = vocabulary.mask_id
        self.special_ids = (*vocabulary.special_ids, *ids)
        self.sentinel_ids = vocabulary.sentinel_ids
        self.marks = dict(vocabulary.marks)
        self.reads_marks = vocabulary.reads_marks
        none = np.zeros(len(names), dtype=np.int64)
        self.token_bytes = np.concatenate([vocabulary.token_bytes, none])
        self.token_characters = np.concatenate([vocabulary.token_characters, none])

    def encode(self, text: bytes) -> TokenIds:
        """Encode as the vocabulary does."""
        return self.vocabulary.encode(text)

    def encode_many(self, texts: Sequence[bytes]) -> list[TokenIds]:
        """Encode each of several texts as the vocabulary does."""
        return self.vocabulary.encode_many(texts)

    def encode_targets(self, texts: Sequence[bytes]) -> list[TokenIds]:
        """Encode texts of the target language as the vocabulary does."""
        return self.vocabulary.encode_targets(texts)

    def _decode(self, ids: Ints) -> bytes:
        return self.vocabulary.decode(ids[ids < self.vocabulary.vocab_size])

    def cut(self, text: bytes, near: int) -> int:
        """Cut as the vocabulary does."""
        return self.vocabulary.cut(text, near)

    def starts_word(self, ids: AnyInts) -> Bools:
        """Return which ids begin a word: those that were added do."""
        all_ids = np.asarray(ids)
        starts = np.ones(len(all_ids), dtype=np.bool_)
        is_text = all_ids < self.vocabulary.vocab_size
        starts[is_text] = self.vocabulary.starts_word(all_ids[is_text])
        return starts

    def content(self) -> dict[str, Any]:
        """Return the names and the vocabulary's content."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": KIND,
            "names": list(self.names),
            "vocabulary": self.vocabulary.content(),
        }


def with_names(vocabulary: Tokenizer, names: Sequence[str]) -> Tokenizer:
    """Return a vocabulary that has an id for each of the names: itself where it has them."""
    missing = [name for name in names if name not in vocabulary.added_ids]
    return ExtendedTokenizer(vocabulary, missing) if missing else vocabulary


def check_names(names: Any) -> list[str]:
    """Return the names of a file's content. Raises DataError where they are none."""
    if not isinstance(names, list) or not names or not all(isinstance(x, str) for x in names):
        raise DataError("it has no names of further ids: it is damaged")
    if len(set(names)) != len(names):
        raise DataError("it names a further id twice: it is damaged")
    return names
