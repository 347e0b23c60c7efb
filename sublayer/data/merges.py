"""Training merges on counted words: the same words give the same merges, in whatever order they are counted."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

N_CHARACTERS = 1000
"""How many of the most frequent characters become pieces of their own; 1000 as in the library's own recipe for BERT."""

_BATCH_CHARACTERS = 64 << 10


@dataclass(frozen=True)
class Marks:
    """How a piece shows where it stands: ``inner`` before all but a word's first, or ``end`` after its last."""

    inner: str = ""
    end: str = ""

    def of(self, character: str) -> str:
        """Give the marked form of a character."""
        return f"{self.inner}{character}{self.end}"


@dataclass(frozen=True)
class Merges:
    """Pieces in order of their ids, and the merges that made them, in order."""

    pieces: tuple[str, ...]
    merges: tuple[tuple[str, str], ...]


def made_by(merges: Iterable[Sequence[str]]) -> set[str]:
    """Name all that merges take and make."""
    return {part for left, right in merges for part in (left, right, left + right)}


def alphabet_of(words: Mapping[str, int]) -> list[str]:
    """List the most frequent characters of counted words, in order of their codes."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for character in word:
            counts[character] += count
    return sorted(sorted(counts, key=lambda each: (-counts[each], each))[:N_CHARACTERS])


def train_merges(words: Mapping[str, int], alphabet: list[str], *, n_merges: int, marks: Marks) -> Merges:
    """Train up to ``n_merges`` on counted words, which hold no whitespace.

    The first pieces are the alphabet's characters and then their marked forms, whether or not the words have them.
    """
    # The library numbers marked characters as a hash table comes, and breaks ties by number; what is named is not.
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
    found = trained.get_vocab(with_added_tokens=False)
    merges = _merges(trained)
    return Merges(tuple(sorted(found, key=found.__getitem__)), merges)


def _merges(trained: Tokenizer) -> tuple[tuple[str, str], ...]:
    return tuple((left, right) for left, right in json.loads(trained.to_str())["model"]["merges"])


def _repeated(words: Mapping[str, int]) -> Iterator[str]:
    # The library counts words itself: each is said as often as it was found.
    for word, count in words.items():
        size = max(1, _BATCH_CHARACTERS // (len(word) + 1))
        for start in range(0, count, size):
            yield f"{word} " * min(size, count - start)


def count_words(texts: Iterable[Iterable[str]]) -> Counter[str]:
    """Count the words of texts that are divided into words already."""
    counts: Counter[str] = Counter()
    for words in texts:
        counts.update(words)
    return counts
