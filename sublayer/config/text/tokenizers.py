"""The tokenizers that ``data.tokenizer`` names, and the files that it takes instead."""

from pathlib import PurePath
from typing import Literal

from sublayer.errors import ConfigError
from sublayer.nearest import LONGEST_WORD, nearest_hint

GPT1 = "gpt1-bpe"
TOKENIZERS = (
    "bytes",
    "characters",
    "bpe",
    "unigram",
    "wordpiece",
    "moses-bpe",
    "word-bpe",
    GPT1,
)
CODES_SUFFIXES, CODES_NAMES = (".codes", ".code", ".bpe"), ("codes", "code", "bpecodes")
"""Of a file of subword-nmt's or fastBPE's merges, which often has no suffix."""
TOKENIZER_SUFFIXES = (".json", ".model", ".txt")
"""Of a tokenizer's file: the tokenizers library's or ours, SentencePiece's, BERT's vocabulary."""
TRAINED_TOKENIZERS = tuple(name for name in TOKENIZERS if name != "bytes")
"""Those that learn their vocabulary from the training split."""

LETTERED_TOKENIZERS = ("unigram", "wordpiece", "moses-bpe")
"""Those that are trained with or without marks and capitals."""

Normalization = Literal["published", "transformers"]
"""The text rules of GPT-1's tokenizer."""
MARKED_TOKENIZERS = ("bpe", "unigram", "wordpiece")
"""Those that are trained with special tokens that a text may name."""
SpecialTokens = Literal["tokens", "text"]
"""What the marks of special tokens are in a text."""
GPT1_SUFFIXES = (".json", ".bpe")
"""Of files of tokenizers that may be GPT-1's."""

SENTINEL_SUFFIXES = (".json", ".model")
"""Of files of tokenizers that may have sentinels."""
_N_SPECIAL = 3
"""Ids of T5's vocabulary beside its pieces and its sentinels: padding, end and unknown."""


def is_tokenizer_file(name: str) -> bool:
    """Return whether ``data.tokenizer`` is a file, by its name."""
    return name.endswith(TOKENIZER_SUFFIXES) or is_codes_file(name)


def is_codes_file(name: str) -> bool:
    """Return whether a file holds merges of subword-nmt or fastBPE, by its name."""
    return name.endswith(CODES_SUFFIXES) or PurePath(name).name in CODES_NAMES


def check_sentinels(vocab_size: int, sentinels: int) -> None:
    """Raise ConfigError where sentinels leave a vocabulary no room for a piece of text."""
    least = sentinels + _N_SPECIAL + 1
    if sentinels and vocab_size < least:
        raise ConfigError(
            f"data.vocab_size = {vocab_size} is filled by data.sentinels = {sentinels} and "
            f"{_N_SPECIAL} special ids: give at least {least}, and room for the text's characters"
        )


def check_tokenizer(tokenizer: str) -> None:
    """Raise ConfigError where ``data.tokenizer`` is neither a tokenizer's name nor its file."""
    if tokenizer in TOKENIZERS or is_tokenizer_file(tokenizer):
        return
    raise ConfigError(
        f"data.tokenizer = {tokenizer[:LONGEST_WORD]!r} is not one of {', '.join(TOKENIZERS)}, nor "
        f"a file (tokenizer.json, .model, vocab.txt, .codes){nearest_hint(tokenizer, TOKENIZERS)}"
    )
