"""BPE with end-of-word pieces on whitespace-separated words: subword-nmt's kind of vocabulary."""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any, ClassVar, Self

import numpy as np

from sublayer.data.arrays import AnyInts, Bools, Ints, TokenIds
from sublayer.data.subwords.bpe_encoding import END, BpeEncoder
from sublayer.data.subwords.bpe_training import (
    Marks,
    Merges,
    alphabet_of,
    count_words,
    symbols_of,
    train_merges,
)
from sublayer.data.tokenizers.base import (
    FORMAT,
    VERSION,
    Tokenizer,
    after_newline,
    count_characters,
    decode_utf8,
    find_special,
)
from sublayer.data.tokenizers.words import encode_words
from sublayer.errors import ConfigError, DataError

NO_RULES: Mapping[str, bool] = MappingProxyType({})
SplitWords = Callable[[str], list[list[str]]]

APART = "0.1"
"""The version of subword-nmt's codes before 0.2: the end of a word is a symbol of its own."""
CODES = (APART, "0.2")
"""The versions of subword-nmt's codes."""


class WordBpeTokenizer(Tokenizer):
    """Merges with an end of word, line by line; what whitespace divides words is not kept.

    A word begins after a piece that ends one, after a special id, and at the first id of a
    sequence. Source: Sennrich et al. 2016 (1508.07909). Special ids are in fairseq's order; the
    others are the characters and merges in the order of training, where fairseq counts pieces in
    the text. ``codes`` is the version of subword-nmt's file that merges were read from (see
    ``bpe_files.read_codes``): then not all that they make need be a piece. None: they were trained
    here, and all is.
    """

    kind = "word-bpe"
    specials: ClassVar[tuple[str, ...]] = ("<s>", "<pad>", "</s>", "<unk>")
    rule_names: ClassVar[tuple[str, ...]] = ()
    """Rules for text that a vocabulary may be trained with."""
    is_lossless = False
    has_words = True

    def __init__(
        self, merges: Merges, codes: str | None = None, rules: Mapping[str, bool] = NO_RULES
    ) -> None:
        self._merges = merges
        self._codes = codes
        self._rules = dict(rules)
        n_specials = len(self.specials)
        self.vocab_size = n_specials + len(merges.pieces)
        self.special_ids = tuple(range(n_specials))
        self.unk_id = self.specials.index("<unk>")
        special = find_special({name: id_ for id_, name in enumerate(self.specials)})
        self.pad_id, self.cls_id, self.sep_id, self.mask_id = special.values()
        self._encode_each = BpeEncoder(
            merges, first_id=n_specials, unk_id=self.unk_id, is_apart=self.is_apart
        )
        # Of each id, the special ones first: they have no text, and a word begins after one.
        texts = [b""] * n_specials
        ends_word = [True] * n_specials
        self._texts = [""] * n_specials
        for piece in merges.pieces:
            text = piece.removesuffix(END)
            is_last = piece.endswith(END)
            texts.append(text.encode())
            ends_word.append(is_last)
            self._texts.append(f"{text} " if is_last else text)
        self._ends_word = np.array(ends_word)
        self.token_bytes = np.array(list(map(len, texts)), dtype=np.int64)
        self.token_characters = count_characters(texts)

    @classmethod
    def train(
        cls,
        texts: Iterable[bytes],
        *,
        vocab_size: int | None = None,
        n_merges: int | None = None,
        rules: Mapping[str, bool] = NO_RULES,
    ) -> Self:
        """Train ``n_merges``, or as many as ``vocab_size``, which counts every id, allows.

        ``rules``, by the names of ``rule_names``, replace those for text. Short texts may hold
        fewer. Raises ConfigError where the characters of the text do not fit
        in; NotUtf8, a DataError, where a text is not UTF-8; DataError where there is no text.
        """
        divide = cls.words_of(rules)
        words = count_words(line for text in texts for line in divide(decode_utf8(text)))
        alphabet = alphabet_of(words)
        if not alphabet:
            raise DataError("there is no text to train a tokenizer on: give a longer one")
        least = len(cls.specials) + 2 * len(alphabet)
        if vocab_size is not None and vocab_size < least:
            raise ConfigError(
                f"data.vocab_size = {vocab_size} is too small for {cls.kind}: "
                f"{least} are the text's characters and the special ids"
            )
        if vocab_size is not None:
            n_merges = vocab_size - least
        assert n_merges is not None, "the number of merges is given, or follows from the size"
        merges = train_merges(words, alphabet, n_merges=n_merges, marks=Marks(end=END))
        return cls(merges, rules=rules)

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> Self:
        """Build from ``content``; raise DataError, without a path, where it is damaged."""
        pieces = content.get("pieces")
        merges = content.get("merges")
        if not (isinstance(pieces, list) and isinstance(merges, list)):
            raise DataError("its pieces or merges are missing: it is damaged")
        if not (_are_texts(pieces) and all(map(_is_pair, merges))):
            raise DataError("its pieces or merges are damaged")
        if any("\n" in piece for piece in pieces):
            raise DataError("one of its pieces has an end of line, which no word has")
        codes = content.get("codes")
        if codes is not None and codes not in CODES:
            raise DataError(f"its merges are of codes = {codes!r}: update the program")
        distinct = set(pieces)
        has_all = codes is not None or symbols_of(merges) <= distinct
        if len(distinct) < len(pieces) or not has_all:
            raise DataError("its merges do not make its pieces: it is damaged")
        pairs = tuple((left, right) for left, right in merges)
        rules = {name: content[name] for name in cls.rule_names if name in content}
        if not all(isinstance(value, bool) for value in rules.values()):
            raise DataError(f"its {' and '.join(rules)} must be true or false: it is damaged")
        return cls(Merges(tuple(pieces), pairs), codes, rules)

    def encode(self, text: bytes) -> TokenIds:
        """Encode UTF-8; raise NotUtf8, a DataError, at the first byte that is not."""
        lines = self._divide(decode_utf8(text))
        words = list(chain.from_iterable(lines))
        return encode_words(words, self._encode_each)

    def _decode(self, ids: Ints) -> bytes:
        # Words with a space after each; special ids have no text.
        texts = map(self._texts.__getitem__, ids.tolist())
        return "".join(texts).encode()

    def cut(self, text: bytes, near: int) -> int:
        """Cut after a newline, since each line is encoded on its own."""
        return after_newline(text, near)

    def starts_word(self, ids: AnyInts) -> Bools:
        """Return which ids begin a word: the first, special ids, and those after a word's last."""
        is_after_last = self._ends_word[ids[:-1]]
        is_special = ids[1:] < len(self.specials)
        starts = np.ones(len(ids), dtype=np.bool_)
        starts[1:] = is_after_last | is_special
        return starts

    def content(self) -> dict[str, Any]:
        """Return the pieces by id after the special ones, the merges, and the codes' version."""
        codes = {} if self._codes is None else {"codes": self._codes}
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            **codes,
            **self._rules,
            "pieces": list(self._merges.pieces),
            "merges": [list(merge) for merge in self._merges.merges],
        }

    @property
    def pieces(self) -> list[str]:
        """The pieces by id after the special ones; those that end a word end in ``</w>``."""
        return list(self._merges.pieces)

    @property
    def merges(self) -> list[tuple[str, str]]:
        """The merges in their order."""
        return list(self._merges.merges)

    @property
    def made(self) -> set[str]:
        """All that the merges take and make."""
        return symbols_of(self._merges.merges)

    @property
    def is_apart(self) -> bool:
        """Whether the end of a word is a symbol until it is merged, as in codes of version 0.1."""
        return self._codes == APART

    @classmethod
    def words_of(cls, rules: Mapping[str, bool] = NO_RULES) -> SplitWords:
        """Return what splits a text into the words of its lines."""
        return _by_whitespace

    @cached_property
    def _divide(self) -> SplitWords:
        return self.words_of(self._rules)


def _by_whitespace(text: str) -> list[list[str]]:
    return [line.split() for line in text.split("\n")]


def _are_texts(values: Any) -> bool:
    if not isinstance(values, list):
        return False
    return all(isinstance(value, str) and value for value in values)


def _is_pair(merge: Any) -> bool:
    return _are_texts(merge) and len(merge) == 2
