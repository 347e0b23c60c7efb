"""A vocabulary of two languages, with what is done to each language's text before and after."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sublayer.data.sides import Side
from sublayer.data.vocabulary import FORMAT, VERSION, Ids, Tokenizer
from sublayer.errors import ConfigError

KIND = "bilingual"


class BilingualTokenizer(Tokenizer):
    """Lines of either language to ids by one joint ``vocabulary``, and ids of the second to text.

    ``encode`` and ``decode`` are of text whose words are divided by spaces; ``encode_source``, ``encode_target`` and
    ``write`` are of text as people write it. Where the vocabulary has no padding, its ``<s>`` pads, which stands in no
    text: what pads is masked wherever it is read, and is never written.
    """

    kind = KIND
    is_lossless = False

    def __init__(self, vocabulary: Tokenizer, source: Side, target: Side) -> None:
        pad_id = vocabulary.cls_id if vocabulary.pad_id is None else vocabulary.pad_id
        if vocabulary.sep_id is None or pad_id is None:
            raise ConfigError(
                f"the tokenizer, of kind {vocabulary.kind}, has no end of a text or no padding, which translation "
                "needs: give data.tokenizer = word-bpe or unigram, or a file whose vocabulary has </s> and <pad> or <s>"
            )
        self.vocabulary, self.source, self.target = vocabulary, source, target
        self.vocab_size, self.has_words = vocabulary.vocab_size, vocabulary.has_words
        self.end_id, self.unk_id, self.special_ids = vocabulary.end_id, vocabulary.unk_id, vocabulary.special_ids
        self.pad_id, self.cls_id = pad_id, vocabulary.cls_id
        self.sep_id, self.mask_id = vocabulary.sep_id, vocabulary.mask_id
        self.token_bytes, self.token_characters = vocabulary.token_bytes, vocabulary.token_characters

    def encode(self, text: bytes) -> NDArray[np.int32]:
        """Turn words that spaces divide into ids."""
        return self.vocabulary.encode(text)

    def encode_many(self, texts: Sequence[bytes]) -> list[NDArray[np.int32]]:
        """Turn each of several texts of words into ids."""
        return self.vocabulary.encode_many(texts)

    def encode_targets(self, texts: Sequence[bytes]) -> list[NDArray[np.int32]]:
        """Turn each of several texts of words of the second language into ids."""
        return self.vocabulary.encode_targets(texts)

    def encode_source(self, lines: Iterable[str]) -> list[NDArray[np.int32]]:
        """Turn lines of the first language into ids."""
        return self.encode_many([" ".join(self.source.words(line)).encode() for line in lines])

    def encode_target(self, lines: Iterable[str]) -> list[NDArray[np.int32]]:
        """Turn lines of the second language into ids."""
        return self.encode_targets([" ".join(self.target.words(line)).encode() for line in lines])

    def _decode(self, ids: NDArray[np.int64]) -> bytes:
        # Words that spaces divide.
        return self.vocabulary.decode(ids)

    def words(self, ids: Ids) -> list[str]:
        """Turn ids into words."""
        return self.decode(ids).decode("utf-8", "replace").split()

    def write(self, ids: Ids) -> str:
        """Turn ids of the second language into text as people write it."""
        return self.target.text(self.words(ids))

    def cut(self, text: bytes, near: int) -> int:
        """Cut as the vocabulary does."""
        return self.vocabulary.cut(text, near)

    def starts_word(self, ids: NDArray[np.integer]) -> NDArray[np.bool_]:
        """Tell which ids begin a word."""
        return self.vocabulary.starts_word(ids)

    def content(self) -> dict[str, Any]:
        """Give both languages' rules and the vocabulary's content."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": KIND,
            "source": self.source.content(),
            "target": self.target.content(),
            "vocabulary": self.vocabulary.content(),
        }
