"""Word boundaries of pieces, and encoding by distinct words.

Distinct words are encoded once, and their ids reused.
"""

import re
import string
from collections.abc import Callable, Sequence
from itertools import chain, islice, pairwise
from threading import Lock
from unicodedata import category

import numpy as np

from sublayer.data.arrays import AnyInts, Ints, TokenIds
from sublayer.tasks.scripts import UNSPACED

SPACE = "▁"
"""The character that stands for a space in a piece."""

_MOST_WORDS = 1 << 18
_MOST_CHARACTERS = 1 << 22
"""Words, and their characters, that a cache knows before it forgets some."""
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
_OF_UNSPACED = re.compile(f"[{UNSPACED}]")
_INSIDE_WORDS = _PUNCTUATION | frozenset(string.ascii_letters)

Rows = Sequence[Sequence[int]]


class RaggedIds:
    """Rows of ids of unequal lengths, taken by number as one sequence of ids.

    A row may be empty.
    """

    def __init__(self, rows: Rows) -> None:
        self._ids = np.empty(0, dtype=np.int32)
        self._lengths = np.empty(0, dtype=np.int64)
        self._starts = np.empty(0, dtype=np.int64)
        self.append(rows)

    def append(self, rows: Rows) -> None:
        """Add rows behind the others."""
        new_ids = np.fromiter(chain.from_iterable(rows), dtype=np.int32)
        lengths = map(len, rows)
        new_lengths = np.fromiter(lengths, dtype=np.int64, count=len(rows))
        self._ids = np.concatenate([self._ids, new_ids])
        self._lengths = np.concatenate([self._lengths, new_lengths])
        self._starts = np.cumsum(self._lengths) - self._lengths

    def select(self, numbers: AnyInts) -> "RaggedIds":
        """Return some of the rows, by their numbers."""
        rows = RaggedIds([])
        rows._ids = self.take(numbers)
        rows._lengths = self._lengths[numbers]
        rows._starts = np.cumsum(rows._lengths) - rows._lengths
        return rows

    def lengths(self, numbers: AnyInts) -> Ints:
        """Return how many ids each of some rows has."""
        return self._lengths[numbers]

    def take(self, numbers: AnyInts) -> TokenIds:
        """Return the concatenated ids of rows ``numbers``, which may repeat."""
        lengths = self._lengths[numbers]  # [rows taken], as the next two
        # Id i of the result is ``shift`` further on in ``_ids``, the same for a whole row.
        starts_in_result = np.cumsum(lengths) - lengths
        shifts = self._starts[numbers] - starts_in_result
        indices = np.arange(lengths.sum())  # [ids of the result]
        indices += np.repeat(shifts, lengths)
        return self._ids[indices]


Encode = Callable[[list[str]], Rows]
"""Returns the ids of each word."""


class WordCache:
    """Cache of encoded words; copies start empty.

    A full cache forgets the most recent words.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._numbers: dict[str, int] = {}
        self._rows = RaggedIds([])
        self._n_characters = 0

    def encode(self, words: Sequence[str], encode: Encode) -> TokenIds:
        """Encode words that do not depend on each other; ``encode`` sees each distinct one once.

        Returned are the ids of all words, one after another. ``encode`` is the same in every call.
        """
        return self.encode_many([words], encode)[0]

    def encode_many(self, texts: Sequence[Sequence[str]], encode: Encode) -> list[TokenIds]:
        """Encode the words of several texts, as ``encode`` does those of one."""
        with self._lock:
            numbers = self._numbers
            n_known = len(numbers)
            # A word that is new has the next number.
            of_words = (numbers.setdefault(word, len(numbers)) for text in texts for word in text)
            indices = np.fromiter(of_words, dtype=np.int64, count=sum(map(len, texts)))
            new = list(islice(reversed(numbers), len(numbers) - n_known))[::-1]
            try:
                self._rows.append(encode(new) if new else [])
            except BaseException:
                self.__init__()  # type: ignore[misc]
                raise
            self._n_characters += sum(map(len, new))
            ends = np.cumsum(np.append(0, self._rows.lengths(indices)))  # in ids, of each word
            bounds = ends[np.cumsum([0, *map(len, texts)])]
            ids = self._rows.take(indices)
            if len(numbers) > _MOST_WORDS or self._n_characters > _MOST_CHARACTERS:
                # All but the first words are forgotten: frequent ones come up early.
                words = list(islice(numbers, _MOST_WORDS // 2))
                n_characters = np.cumsum([len(word) for word in words])
                n_kept = int(np.searchsorted(n_characters, _MOST_CHARACTERS // 2, side="right"))
                self._numbers = {word: number for number, word in enumerate(words[:n_kept])}
                self._n_characters = sum(map(len, self._numbers))
                self._rows = self._rows.select(np.arange(n_kept))
            return [ids[start:stop] for start, stop in pairwise(bounds.tolist())]

    def __reduce__(self) -> tuple[type["WordCache"], tuple[()]]:
        return WordCache, ()


def split_words(text: str) -> list[str]:
    """Split a text at spaces and ends of lines, which every tokenizer takes for whitespace."""
    words = text.replace("\n", " ").split(" ")
    return [word for word in words if word]


def begins_word(piece: str) -> bool:
    """Return whether a piece begins a word for ALBERT's masks.

    ``▁the``, ``,`` and ``é`` do, ``ing`` does not: besides what follows a space and punctuation, it
    is whatever is not of letters a to z and punctuation alone.

    Source: google-research/albert, ``create_pretraining_data.py``.
    """
    if piece.startswith((SPACE, "<")) or piece in _PUNCTUATION:
        return True
    return not _INSIDE_WORDS.issuperset(piece)


def begins_any_word(piece: str) -> bool:
    """Return whether a piece begins a word, in a vocabulary of any language.

    As ``begins_word``, but for letters of scripts with spaces between words, which begin none
    inside: ``ön``, ``ская``, ``습니다``. Characters of Chinese, Japanese and Thai do.
    """
    if piece.isascii():
        return begins_word(piece)
    if piece.startswith(SPACE) or _OF_UNSPACED.match(piece):
        return True
    return begins_word(
        "".join("a" if category(character)[0] in "LM" else character for character in piece)
    )
