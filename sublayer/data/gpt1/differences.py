"""What GPT-1's published text rules and transformers' make different of a text, counted."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from difflib import SequenceMatcher

import numpy as np

from sublayer.config.texts import Normalization
from sublayer.data.arrays import TokenIds
from sublayer.data.gpt1.text_rules import NEWLINE, divide, mend_lines, standardise
from sublayer.data.gpt1.tokenizer import transformers_library, with_normalization
from sublayer.data.gpt1.vocabulary import Gpt1Vocabulary
from sublayer.data.subwords.bpe_encoding import END
from sublayer.data.tokenizers.base import decode_utf8
from sublayer.data.tokenizers.wordpiece import words_by

Parts = tuple[str, ...]


@dataclass(frozen=True)
class Counts:
    """What one of the rules makes of a text."""

    tokens: int
    unknown: int
    line_ends: int
    """Tokens that stand for ends of lines; transformers' rules have none."""


@dataclass(frozen=True)
class Differences:
    """Both rules on one text."""

    published: Counts
    transformers: Counts
    words: int
    """What whitespace divides; a line in which ftfy changes how many there are is one."""
    different: int
    """Those of which the two make other words."""
    changes: Counter[tuple[Parts, Parts]]
    """How often so many published words became others by transformers' rules."""


def count_differences(vocabulary: Gpt1Vocabulary, text: bytes) -> Differences:
    """Count what both rules make of a text. Raises DataError without ftfy or spaCy, or UTF-8."""
    decoded = decode_utf8(text)
    pairs = _pairs(decoded)
    library = transformers_library(vocabulary)
    changes: Counter[tuple[Parts, Parts]] = Counter()
    n_different = 0
    for (raw, mended), count in pairs.items():
        published = _published(mended)
        transformers = list(words_by(library, raw))
        if published != transformers:
            n_different += count
            for block in _blocks(published, transformers):
                changes[block] += count
    newline = vocabulary.ids.get(f"{NEWLINE}{END}")

    def counts(normalization: Normalization) -> Counts:
        tokenizer = with_normalization(vocabulary, normalization)
        return _count(tokenizer.encode(text), tokenizer.unk_id, newline)

    sides = counts("published"), counts("transformers")
    return Differences(*sides, pairs.total(), n_different, changes)


def _count(ids: TokenIds, unknown: int | None, newline: int | None) -> Counts:
    return Counts(len(ids), int(np.sum(ids == unknown)), int(np.sum(ids == newline)))


def _pairs(text: str) -> Counter[tuple[str, str]]:
    """Count words that whitespace divides, each as it is written and as ftfy mends it."""
    pairs: Counter[tuple[str, str]] = Counter()
    for line, mended in mend_lines(text):
        written, own = line.split(), mended.split()
        if len(written) == len(own):
            pairs.update(zip(written, own, strict=True))
        else:
            pairs[" ".join(written), " ".join(own)] += 1
    return pairs


def _published(mended: str) -> list[str]:
    found = []
    for words in divide(standardise(mended)):
        found += [words.distinct[number] for number in words.numbers.tolist()]
    return [word for word in found if word != NEWLINE]


def _blocks(published: list[str], transformers: list[str]) -> Iterator[tuple[Parts, Parts]]:
    """Yield what differs between two lists of words."""
    matcher = SequenceMatcher(None, published, transformers, autojunk=False)
    for kind, start, end, other_start, other_end in matcher.get_opcodes():
        if kind != "equal":
            yield tuple(published[start:end]), tuple(transformers[other_start:other_end])
