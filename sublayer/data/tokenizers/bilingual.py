"""A vocabulary of two languages, with what is done to each language's text before and after."""

from collections.abc import Iterable, Sequence
from typing import Any

from sublayer.data.arrays import AnyInts, Bools, Ints, TokenIds
from sublayer.data.tokenizers.base import FORMAT, VERSION, Ids, Tokenizer
from sublayer.data.tokenizers.language_rules import LanguageRules
from sublayer.errors import ConfigError

KIND = "bilingual"


class BilingualTokenizer(Tokenizer):
    """Lines of either language to ids by one joint ``vocabulary``, and ids of the second to text.

    ``encode`` and ``decode`` are of text whose words are divided by spaces; ``encode_source``,
    ``encode_target`` and ``write`` are of text as people write it. Where the vocabulary has no
    padding, its ``<s>`` pads, which stands in no text: what pads is masked wherever it is read, and
    is never written.

    Raises ConfigError where the vocabulary has no end of a text, or neither padding nor ``<s>``.
    """

    kind = KIND
    is_lossless = False

    def __init__(self, vocabulary: Tokenizer, source: LanguageRules, target: LanguageRules) -> None:
        pad_id = vocabulary.cls_id if vocabulary.pad_id is None else vocabulary.pad_id
        if vocabulary.sep_id is None or pad_id is None:
            raise ConfigError(
                f"the tokenizer, of kind {vocabulary.kind}, has no end of a text or no padding, "
                "which translation needs: give data.tokenizer = word-bpe or unigram, "
                "or a file whose vocabulary has </s> and <pad> or <s>"
            )
        self.vocabulary = vocabulary
        self.source = source
        self.target = target
        self.vocab_size = vocabulary.vocab_size
        self.has_words = vocabulary.has_words
        self.end_id = vocabulary.end_id
        self.unk_id = vocabulary.unk_id
        self.pad_id = pad_id
        self.cls_id = vocabulary.cls_id
        self.sep_id = vocabulary.sep_id
        self.mask_id = vocabulary.mask_id
        self.special_ids = vocabulary.special_ids
        self.sentinel_ids = vocabulary.sentinel_ids
        self.marks = dict(vocabulary.marks)
        self.reads_marks = vocabulary.reads_marks
        self.token_bytes = vocabulary.token_bytes
        self.token_characters = vocabulary.token_characters

    def encode(self, text: bytes) -> TokenIds:
        """Encode words separated by spaces."""
        return self.vocabulary.encode(text)

    def encode_many(self, texts: Sequence[bytes]) -> list[TokenIds]:
        """Encode each of several texts of words."""
        return self.vocabulary.encode_many(texts)

    def encode_targets(self, texts: Sequence[bytes]) -> list[TokenIds]:
        """Encode each of several texts of words of the second language."""
        return self.vocabulary.encode_targets(texts)

    def encode_source(self, lines: Iterable[str]) -> list[TokenIds]:
        """Encode lines of the first language, as people write it."""
        return self.encode_many(_word_texts(self.source, lines))

    def encode_target(self, lines: Iterable[str]) -> list[TokenIds]:
        """Encode lines of the second language, as people write it."""
        return self.encode_targets(_word_texts(self.target, lines))

    def _decode(self, ids: Ints) -> bytes:
        # Words that spaces divide.
        return self.vocabulary.decode(ids)

    def words(self, ids: Ids) -> list[str]:
        """Decode ids into words."""
        return self.decode(ids).decode("utf-8", "replace").split()

    def write(self, ids: Ids) -> str:
        """Decode ids of the second language into detokenized text."""
        return self.target.text(self.words(ids))

    def cut(self, text: bytes, near: int) -> int:
        """Cut as the vocabulary does."""
        return self.vocabulary.cut(text, near)

    def starts_word(self, ids: AnyInts) -> Bools:
        """Return which ids begin a word."""
        return self.vocabulary.starts_word(ids)

    def content(self) -> dict[str, Any]:
        """Return both languages' rules and the vocabulary's content."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": KIND,
            "source": self.source.content(),
            "target": self.target.content(),
            "vocabulary": self.vocabulary.content(),
        }


def _word_texts(rules: LanguageRules, lines: Iterable[str]) -> list[bytes]:
    """Split lines into words by a language's rules; join the words of each by spaces."""
    texts = []
    for line in lines:
        words = " ".join(rules.words(line))
        texts.append(words.encode())
    return texts
