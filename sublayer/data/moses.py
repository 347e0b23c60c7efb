"""Moses' rules for text, and Macaron BERT's vocabulary, which is made of what they give."""

from collections.abc import Iterable
from importlib.util import find_spec
from typing import ClassVar

from sublayer.data.word_bpe import Divide, WordBpeTokenizer
from sublayer.errors import ConfigError

SPECIALS = ("<Lua heritage>", "<pad>", "</s>", "<unk>", "<mask>", "<cls>")
"""The special ids, in order: fairseq's dictionary, whose first id stands for nothing, and what masks need."""


class MosesTokenizer(WordBpeTokenizer):
    """Merges with an end of word on Moses tokens, line by line; the vocabulary knows lower case alone.

    Punctuation is normalised and divided from words by Moses' rules for English, without escapes.
    Source: Lu et al. 2019, as released (zhuohan123/macaron-net, ``bert``). Raises ConfigError without sacremoses.
    """

    kind = "moses-bpe"
    specials: ClassVar[tuple[str, ...]] = SPECIALS

    @classmethod
    def words_of(cls) -> Divide:
        """Give what divides a text into the words of its lines."""
        moses = Moses("en", normalizes=True, lowers=True)
        return lambda text: [moses.tokens(line) for line in text.split("\n")]


class Moses:
    """Moses' rules for a language: a line to tokens, and back. Raises ConfigError without sacremoses.

    ``normalizes`` first makes punctuation plain and drops what cannot be printed; ``divides_hyphens`` takes ``a-b``
    apart (tokenizer.perl's ``-a``); ``lowers`` gives lower case. Tokens are not escaped.
    """

    def __init__(
        self, language: str, *, normalizes: bool = False, divides_hyphens: bool = False, lowers: bool = False
    ) -> None:
        if find_spec("sacremoses") is None:
            raise ConfigError("Moses' rules for text need sacremoses: pip install 'sublayer[translation]'")
        from sacremoses import MosesDetokenizer, MosesPunctNormalizer, MosesTokenizer

        self._normalizer = MosesPunctNormalizer(lang=language) if normalizes else None
        self._tokenizer = MosesTokenizer(lang=language)
        self._detokenizer = MosesDetokenizer(lang=language)
        self._divides_hyphens, self._lowers = divides_hyphens, lowers

    def tokens(self, line: str) -> list[str]:
        """Divide a line."""
        if self._normalizer is not None:
            line = self._normalizer.normalize(line)
        divided: str = self._tokenizer.tokenize(
            line, aggressive_dash_splits=self._divides_hyphens, escape=False, return_str=True
        )
        return (divided.lower() if self._lowers else divided).split()

    def join(self, tokens: Iterable[str]) -> str:
        """Put tokens together as they are written."""
        joined: str = self._detokenizer.detokenize(list(tokens), unescape=False)
        return joined
