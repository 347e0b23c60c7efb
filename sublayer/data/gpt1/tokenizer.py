"""GPT-1's tokenizer: its BPE on the words of the published text rules, or of transformers'."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers

from sublayer.config.texts import GPT1, Normalization
from sublayer.data.arrays import Ints, TokenIds
from sublayer.data.gpt1.text_rules import NEWLINE, cut, words_of
from sublayer.data.gpt1.vocabulary import UNKNOWN, Gpt1Vocabulary, Merge, check_vocabulary
from sublayer.data.subwords.bpe_encoding import END
from sublayer.data.subwords.library_files import call_library, check_ids
from sublayer.data.subwords.subword import SubwordTokenizer
from sublayer.data.tokenizers.base import (
    FORMAT,
    VERSION,
    Tokenizer,
    count_characters,
    decode_utf8,
    find_special,
)
from sublayer.data.tokenizers.extended import ExtendedTokenizer
from sublayer.data.tokenizers.words import Ragged
from sublayer.errors import ConfigError, DataError


class Gpt1Tokenizer(Tokenizer):
    """GPT-1's BPE on the words of the published rules, in lower case.

    An end of line between text is a word, for which the vocabulary may have ``\\n</w>``. What it
    lacks is ``<unk>``, an id for each character. Source: openai/finetune-transformer-lm,
    ``text_utils.py``.

    Departure: a pair's occurrences are merged one by one, not all at once. The two differ only
    where a merge makes what an earlier one takes, which none of the published merges does.

    Encoding raises DataError without ftfy or spaCy; decoding does not.
    """

    kind = GPT1
    is_lossless = False

    def __init__(self, vocabulary: Gpt1Vocabulary) -> None:
        self.vocabulary = vocabulary
        ids = vocabulary.ids
        self.vocab_size = max(ids.values()) + 1
        self.unk_id = ids[UNKNOWN]
        names = {name: ids[name] for name in vocabulary.special}
        self.special_ids = tuple(sorted(names.values()))
        special = find_special(names)
        self.pad_id, self.cls_id, self.sep_id, self.mask_id = special.values()
        # Without rules that divide text: words come divided.
        self._library = tokenizers.Tokenizer(_model(vocabulary))
        texts = [b""] * self.vocab_size
        self._texts = [""] * self.vocab_size
        for piece, id_ in ids.items():
            if piece in names:
                continue
            text = piece.removesuffix(END)
            texts[id_] = text.encode()
            has_space = piece.endswith(END) and text != NEWLINE
            self._texts[id_] = f"{text} " if has_space else text
        self.token_bytes = np.array(list(map(len, texts)), dtype=np.int64)
        self.token_characters = count_characters(texts)

    @classmethod
    def from_content(cls, content: dict[str, Any]) -> "Gpt1Tokenizer":
        """Build from ``content``; raise DataError, without a path, where it is damaged."""
        ids = check_ids(content.get("ids"), "its vocabulary")
        merges = content.get("merges")
        if not (isinstance(merges, list) and all(map(_is_pair, merges))):
            raise DataError("its merges are missing or damaged")
        pairs = tuple((left, right) for left, right in merges)
        check_vocabulary(ids, pairs, "its vocabulary", "its merges")
        return cls(Gpt1Vocabulary(ids, pairs))

    def encode(self, text: bytes) -> TokenIds:
        """Encode UTF-8; raise NotUtf8, a DataError, at the first byte that is not."""
        decoded = decode_utf8(text)
        known: dict[str, int] = {}
        parts = [np.empty(0, dtype=np.int32)]
        for words in words_of(decoded):
            # A word that is new in the text has the next number there.
            numbers = [known.setdefault(word, len(known)) for word in words.distinct]
            parts.append(np.array(numbers, dtype=np.int32)[words.numbers])
        return Ragged(self._encode_each(list(known))).take(np.concatenate(parts))

    def _decode(self, ids: Ints) -> bytes:
        # Words with a space after each; special ids have no text.
        texts = map(self._texts.__getitem__, ids.tolist())
        return "".join(texts).encode()

    def cut(self, text: bytes, near: int) -> int:
        """Cut in a line that the rules leave as it is, before a space between letters."""
        return cut(text, near)

    def content(self) -> dict[str, Any]:
        """Return the pieces with their ids, and the merges."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "kind": self.kind,
            "ids": dict(self.vocabulary.ids),
            "merges": [list(merge) for merge in self.vocabulary.merges],
        }

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Return the pieces of ids, with the mark of those that end a word."""
        return [self._names[id_] for id_ in ids]

    @cached_property
    def _names(self) -> Mapping[int, str]:
        return {id_: piece for piece, id_ in self.vocabulary.ids.items()}

    def _encode_each(self, words: list[str]) -> list[list[int]]:
        encodings = self._library.encode_batch_fast(words, add_special_tokens=False)
        return [encoding.ids for encoding in encodings]


def with_normalization(vocabulary: Gpt1Vocabulary, normalization: Normalization) -> Tokenizer:
    """Build the tokenizer of a vocabulary with the text rules of a name.

    transformers' are those of its OpenAIGPTTokenizer: BERT's words, in lower case and without
    accents; ends of lines are spaces.
    """
    if normalization == "published":
        return Gpt1Tokenizer(vocabulary)
    return SubwordTokenizer(transformers_library(vocabulary))


def transformers_library(vocabulary: Gpt1Vocabulary) -> tokenizers.Tokenizer:
    """Build the ``tokenizers`` library's form of a vocabulary, with transformers' rules."""
    library = tokenizers.Tokenizer(_model(vocabulary))
    library.normalizer = normalizers.BertNormalizer(lowercase=True)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.BPEDecoder(suffix=END)
    library.add_special_tokens(vocabulary.special)
    return library


def renormalized(tokenizer: Tokenizer, path: Path, normalization: Normalization) -> Tokenizer:
    """Return the tokenizer of a file with the text rules of a name in place of its own.

    Raises ConfigError where it is of another kind than GPT-1's.
    """
    if isinstance(tokenizer, ExtendedTokenizer):
        inner = renormalized(tokenizer.vocabulary, path, normalization)
        return ExtendedTokenizer(inner, tokenizer.names)
    vocabulary = vocabulary_of(tokenizer)
    if vocabulary is None:
        raise ConfigError(
            f"data.normalization = {normalization} is of GPT-1's tokenizer, and {path} is of kind "
            f"{tokenizer.kind}: leave it out"
        )
    check_vocabulary(vocabulary.ids, vocabulary.merges, str(path), str(path))
    return with_normalization(vocabulary, normalization)


def vocabulary_of(tokenizer: Tokenizer) -> Gpt1Vocabulary | None:
    """Return the vocabulary of a tokenizer of GPT-1's kind, without added ids; None of another."""
    if isinstance(tokenizer, ExtendedTokenizer):
        return vocabulary_of(tokenizer.vocabulary)
    if isinstance(tokenizer, Gpt1Tokenizer):
        return tokenizer.vocabulary
    if not (isinstance(tokenizer, SubwordTokenizer) and tokenizer.kind == GPT1):
        return None
    model = tokenizer.library_content["model"]
    merges = tuple((left, right) for left, right in model["merges"])
    return Gpt1Vocabulary(model["vocab"], merges)


def count_published(texts: Iterable[bytes]) -> Counter[str]:
    """Count the words of texts by the published rules, ends of lines among them."""
    counts: Counter[str] = Counter()
    for text in texts:
        for words in words_of(decode_utf8(text)):
            numbers = np.bincount(words.numbers, minlength=len(words.distinct))
            counts.update(dict(zip(words.distinct, numbers.tolist(), strict=True)))
    return counts


def _model(vocabulary: Gpt1Vocabulary) -> models.BPE:
    merges: list[Merge] = list(vocabulary.merges)
    return call_library(
        lambda: models.BPE(
            dict(vocabulary.ids), merges, unk_token=UNKNOWN, end_of_word_suffix=END, fuse_unk=False
        ),
        "the tokenizers library cannot use GPT-1's merges",
    )


def _is_pair(merge: Any) -> bool:
    if not isinstance(merge, list) or len(merge) != 2:
        return False
    return all(isinstance(piece, str) and piece for piece in merge)
