"""Rules of languages: Moses' tokenizer, texts of two languages, Macaron BERT's vocabulary."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib.util import find_spec
from typing import Any, ClassVar, Literal, Self
from unicodedata import category

from sublayer.data.tokenizers.base import Ids, Tokenizer, WrappedTokenizer, read_fields
from sublayer.data.tokenizers.word_bpe import NO_RULES, SplitWords, WordBpeTokenizer
from sublayer.errors import ConfigError, DataError
from sublayer.files.arrays import TokenIds

SPECIALS = ("<Lua heritage>", "<pad>", "</s>", "<unk>", "<mask>", "<cls>")
"""The special ids in order: those of fairseq's dictionary, the first unused, and of masking."""


class MosesTokenizer(WordBpeTokenizer):
    """BPE with end-of-word pieces on lowercase Moses tokens, line by line.

    Punctuation is normalised and split from words by Moses' rules for English, without escapes.
    With the rule ``keep_accents`` it is only split, not normalised; without ``lowercase``, capitals
    stay.
    Source: Lu et al. 2019, as released (zhuohan123/macaron-net, ``bert``).

    Training and encoding raise ConfigError without sacremoses; decoding does not.
    """

    kind = "moses-bpe"
    specials: ClassVar[tuple[str, ...]] = SPECIALS
    rule_names: ClassVar[tuple[str, ...]] = ("keep_accents", "lowercase")

    @classmethod
    def words_of(cls, rules: Mapping[str, bool] = NO_RULES) -> SplitWords:
        """Return the function that splits a text into the words of its lines."""
        keeps, lowers = rules.get("keep_accents", False), rules.get("lowercase", True)
        english = LanguageRules("en", "tokenize" if keeps else "normalize", lowers=lowers)
        return lambda text: [english.words(line) for line in text.split("\n")]


MosesRule = Literal["none", "tokenize", "normalize"]


@dataclass(frozen=True)
class LanguageRules:
    """The rules of one language: ``data.moses`` and its companions.

    Moses' tokenizer always drops ASCII control characters; its rules need sacremoses.
    """

    language: str
    """Its code, such as ``de``: Moses' rules differ by language."""
    moses: MosesRule = "none"
    """``none``: words are separated by spaces. ``tokenize``: by Moses' tokenizer. ``normalize``: by
    Moses' tokenizer, after normalising punctuation and, like Moses'
    ``remove-non-printing-char.perl``, replacing each non-printing character by a space."""
    divides_hyphens: bool = False
    """True where Moses' tokenizer splits ``a-b``, as tokenizer.perl's ``-a``; else no effect."""
    lowers: bool = False
    """True where text is lowercased, which is never undone."""
    escapes: bool = False
    """True where Moses' tokenizer writes its reserved characters as entities, ``&`` as ``&amp;``
    (tokenizer.perl without ``-no-escape``), which ``text`` undoes; no effect without it."""

    def words(self, line: str) -> list[str]:
        """Split a line into words; raise ConfigError where Moses' rules are not installed."""
        if self.moses != "none":
            normalizer, tokenizer, _ = self._moses
            if normalizer is not None:
                line = normalizer.normalize(line)
                if not (line.isascii() and line.isprintable()):
                    # Unicode's categories C: controls, format characters such as the soft hyphen,
                    # surrogates, private use, and unassigned characters.
                    line = "".join(" " if category(char).startswith("C") else char for char in line)
            line = tokenizer.tokenize(
                line,
                aggressive_dash_splits=self.divides_hyphens,
                escape=self.escapes,
                return_str=True,
            )
        return (line.lower() if self.lowers else line).split()

    def text(self, words: Iterable[str]) -> str:
        """Detokenize: join words into ordinary text, or by spaces without Moses' rules.

        Raises ConfigError as ``words`` does.
        """
        if self.moses == "none":
            return " ".join(words)
        _, _, detokenizer = self._moses
        joined: str = detokenizer.detokenize(list(words), unescape=self.escapes)
        return joined

    def content(self) -> dict[str, Any]:
        """Return the rules as JSON; ``escapes``, a later field, only where it is true."""
        content = asdict(self)
        if not self.escapes:
            del content["escapes"]
        return content

    @classmethod
    def from_content(cls, content: Any) -> Self:
        """Build from ``content``; raise DataError, without a path, where it is damaged or newer."""
        rules = read_fields(content, cls, "escapes")
        if content.keys() - cls.__dataclass_fields__.keys():
            raise DataError("the rules of a language have an unknown field: update the program")
        return rules

    @cached_property
    def _moses(self) -> tuple[Any, Any, Any]:
        """Moses' normalizer of punctuation, if applied, tokenizer and detokenizer."""
        if find_spec("sacremoses") is None:
            raise ConfigError(
                "Moses' rules for text need sacremoses: pip install 'sublayer[translation]'"
            )
        from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

        normalizer = MosesPunctNormalizer(lang=self.language) if self.moses == "normalize" else None
        return normalizer, MosesTokenizer(lang=self.language), MosesDetokenizer(lang=self.language)

    def word_texts(self, lines: Iterable[str]) -> list[bytes]:
        """Split lines into words by a language's rules; join the words of each by spaces."""
        return [" ".join(self.words(line)).encode() for line in lines]


KIND = "bilingual"


class BilingualTokenizer(WrappedTokenizer):
    """Tokenizer of two languages with one joint ``vocabulary``; decodes the second.

    ``encode`` and ``decode`` take and give words separated by spaces; ``encode_source``,
    ``encode_target`` and ``write`` take and give ordinary text. A vocabulary without padding pads
    with ``<s>``, which occurs in no text: padding is masked in the input, and never written.

    Raises ConfigError where the vocabulary has no end of text, or neither padding nor ``<s>``.
    """

    def __init__(self, vocabulary: Tokenizer, source: LanguageRules, target: LanguageRules) -> None:
        pad_id = vocabulary.cls_id if vocabulary.pad_id is None else vocabulary.pad_id
        if vocabulary.sep_id is None or pad_id is None:
            raise ConfigError(
                f"the tokenizer, of kind {vocabulary.kind}, has no end of text or no padding, "
                "which translation needs: give data.tokenizer = word-bpe or unigram, "
                "or a file with </s> and <pad> or <s>"
            )
        super().__init__(vocabulary)
        self.kind = KIND
        self.is_lossless = False
        self.pad_id = pad_id
        self.source = source
        self.target = target

    def around(self, vocabulary: Tokenizer) -> Tokenizer:
        """Return another vocabulary with the same languages' rules."""
        return BilingualTokenizer(vocabulary, self.source, self.target)

    def encode_source(self, lines: Iterable[str]) -> list[TokenIds]:
        """Encode lines of ordinary text in the first language."""
        return self.encode_many(self.source.word_texts(lines))

    def encode_target(self, lines: Iterable[str]) -> list[TokenIds]:
        """Encode lines of ordinary text in the second language."""
        return self.encode_targets(self.target.word_texts(lines))

    def words(self, ids: Ids) -> list[str]:
        """Decode ids into words."""
        return self.decode(ids).decode("utf-8", "replace").split()

    def write(self, ids: Ids) -> str:
        """Decode ids of the second language into detokenized text."""
        return self.target.text(self.words(ids))

    def content(self) -> dict[str, Any]:
        """Return both languages' rules and the vocabulary's content."""
        return self._described(
            source=self.source.content(),
            target=self.target.content(),
            vocabulary=self.vocabulary.content(),
        )
