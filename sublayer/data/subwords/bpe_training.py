"""BPE training on word counts: equal counts give equal merges, in whatever order of words."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

N_CHARACTERS = 1000
"""Characters that are pieces at first, the most frequent; as in the library's recipe for BERT."""

_BATCH_CHARACTERS = 64 << 10


@dataclass(frozen=True)
class Marks:
    """Where pieces are marked; empty where they are not."""

    inner: str = ""
    """Before all but a word's first piece: WordPiece's ``##``."""
    end: str = ""
    """After a word's last piece: subword-nmt's ``</w>``."""

    def of(self, character: str) -> str:
        """Return the marked form of a character."""
        return f"{self.inner}{character}{self.end}"


@dataclass(frozen=True)
class Merges:
    """Pieces in order of their ids, and the merges that made them."""

    pieces: tuple[str, ...]
    """Characters first, then what merges made; marked as ``Marks`` says."""
    merges: tuple[tuple[str, str], ...]
    """Pairs of neighbours, the one that was merged first in training first."""


def symbols_of(merges: Iterable[Sequence[str]]) -> set[str]:
    """Collect all symbols that merges take and make."""
    symbols: set[str] = set()
    for left, right in merges:
        symbols.update((left, right, left + right))
    return symbols


def alphabet_of(words: Mapping[str, int]) -> list[str]:
    """List the most frequent characters of counted words, ``N_CHARACTERS`` at most, by code."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    # Of equally frequent ones those with the lowest codes, whatever the order of the words.
    by_frequency = sorted(counts, key=lambda character: (-counts[character], character))
    return sorted(by_frequency[:N_CHARACTERS])


def train_merges(
    words: Mapping[str, int], alphabet: list[str], *, n_merges: int, marks: Marks
) -> Merges:
    """Train up to ``n_merges`` on counted words, which hold no whitespace.

    The first pieces are the alphabet's characters and then their marked forms, whether or not the
    words have them. Characters beyond the alphabet are in no piece. Short texts give fewer merges.
    """
    # The library numbers marked characters as a hash table comes, and breaks ties by number; what
    # is named is not.
    known = [*alphabet, *map(marks.of, alphabet)]
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    trainer = trainers.BpeTrainer(
        vocab_size=len(known) + n_merges,
        special_tokens=known,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        show_progress=False,
    )
    # Set afterwards, as None is no value that the library takes.
    if marks.inner:
        trainer.continuing_subword_prefix = marks.inner
    if marks.end:
        trainer.end_of_word_suffix = marks.end
    trained.train_from_iterator(_repeated(words), trainer)
    vocabulary = trained.get_vocab(with_added_tokens=False)
    pieces = sorted(vocabulary, key=vocabulary.__getitem__)
    merges = _merges(trained)
    return Merges(tuple(pieces), merges)


def _merges(trained: Tokenizer) -> tuple[tuple[str, str], ...]:
    # The library shows merges in its file alone.
    content = json.loads(trained.to_str())
    merges = content["model"]["merges"]
    return tuple((left, right) for left, right in merges)


def _repeated(words: Mapping[str, int]) -> Iterator[str]:
    # The library counts words itself: each is written as often as it occurs.
    for word, count in words.items():
        n_characters = len(word) + 1
        size = max(1, _BATCH_CHARACTERS // n_characters)
        for start in range(0, count, size):
            n_times = min(size, count - start)
            yield f"{word} " * n_times


def count_words(texts: Iterable[Iterable[str]]) -> Counter[str]:
    """Count the words of texts that are divided into words already."""
    counts: Counter[str] = Counter()
    for words in texts:
        counts.update(words)
    return counts
