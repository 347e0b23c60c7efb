"""Moses' rules for text, and Macaron BERT's vocabulary, which is made of what they give."""

from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from typing import ClassVar
from unicodedata import category

from sublayer.data.subwords.word_bpe import NO_RULES, SplitWords, WordBpeTokenizer
from sublayer.errors import ConfigError

SPECIALS = ("<Lua heritage>", "<pad>", "</s>", "<unk>", "<mask>", "<cls>")
"""The special ids, in order: fairseq's dictionary, whose first id is unused, and masking's."""


class MosesTokenizer(WordBpeTokenizer):
    """BPE with end-of-word pieces on Moses tokens, line by line; lower case alone.

    Punctuation is normalised and divided from words by Moses' rules for English, without escapes;
    with the rule ``keep_accents`` it is divided alone, without ``lowercase`` capitals stay.
    Source: Lu et al. 2019, as released (zhuohan123/macaron-net, ``bert``).

    Training and encoding raise ConfigError without sacremoses; decoding does not.
    """

    kind = "moses-bpe"
    specials: ClassVar[tuple[str, ...]] = SPECIALS
    rule_names: ClassVar[tuple[str, ...]] = ("keep_accents", "lowercase")

    @classmethod
    def words_of(cls, rules: Mapping[str, bool] = NO_RULES) -> SplitWords:
        """Return what splits a text into the words of its lines."""
        keeps, lowers = rules.get("keep_accents", False), rules.get("lowercase", True)
        moses = Moses("en", normalizes=not keeps, lowers=lowers)
        return lambda text: [moses.tokens(line) for line in text.split("\n")]


class Moses:
    """Moses' rules for a language: tokenize a line, and undo it.

    ``normalizes`` first makes punctuation plain and a space of each character that cannot be
    printed; ``divides_hyphens`` takes ``a-b`` apart (tokenizer.perl's ``-a``); ``escapes`` writes
    what Moses reserves as entities, ``&`` as ``&amp;`` (tokenizer.perl without ``-no-escape``),
    which ``join`` undoes; ``lowers`` gives lower case. ASCII's control characters are dropped in
    any case.

    Raises ConfigError without sacremoses.
    """

    def __init__(
        self,
        language: str,
        *,
        normalizes: bool = False,
        divides_hyphens: bool = False,
        escapes: bool = False,
        lowers: bool = False,
    ) -> None:
        if find_spec("sacremoses") is None:
            raise ConfigError(
                "Moses' rules for text need sacremoses: pip install 'sublayer[translation]'"
            )
        from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

        self._normalizer = MosesPunctNormalizer(lang=language) if normalizes else None
        self._tokenizer = MosesTokenizer(lang=language)
        self._detokenizer = MosesDetokenizer(lang=language)
        self._divides_hyphens = divides_hyphens
        self._escapes = escapes
        self._lowers = lowers

    def tokens(self, line: str) -> list[str]:
        """Divide a line into tokens, none of them empty."""
        if self._normalizer is not None:
            line = drop_unprintable(self._normalizer.normalize(line))
        divided: str = self._tokenizer.tokenize(
            line,
            aggressive_dash_splits=self._divides_hyphens,
            escape=self._escapes,
            return_str=True,
        )
        if self._lowers:
            divided = divided.lower()
        return divided.split()

    def join(self, tokens: Iterable[str]) -> str:
        """Detokenize: join tokens as they are written."""
        joined: str = self._detokenizer.detokenize(list(tokens), unescape=self._escapes)
        return joined


def drop_unprintable(text: str) -> str:
    """Put a space in the place of each character that cannot be printed.

    They are Unicode's categories C: controls, marks of format such as the soft hyphen, surrogates,
    private use, and what is unassigned. Source: Moses' ``remove-non-printing-char.perl``.
    """
    if text.isascii() and text.isprintable():
        return text
    return "".join(" " if category(each).startswith("C") else each for each in text)
