"""Merges applied to words: the ids of each word's pieces."""

from collections.abc import Sequence

import tokenizers
from tokenizers import models

from sublayer.data.merges import Merges

END = "</w>"
"""What a piece that ends a word ends in."""

# Names that no word can have, since none holds a newline.
_APART, _UNKNOWN = "\n", "\n\n"


class Merging:
    """Divide words by merges: of all pairs of neighbours the one that was merged first, until none is left.

    Pieces have ids from ``first_id`` on; what the merges make beside them is ``unk_id``. A word's last character has
    the end of word with it from the start, or, where ``is_apart``, the end is a symbol of its own until a merge joins
    it (subword-nmt before 0.2); one that none joins belongs to what is before it.
    Source: Sennrich et al. 2016 (1508.07909), sec. 3.2.

    Departure: a pair is merged place by place, not at all places at once. The two differ only where a merge makes what
    an earlier one takes, in words that have the pair more than once.
    """

    def __init__(self, found: Merges, *, first_id: int, unk_id: int, is_apart: bool) -> None:
        end = _APART if is_apart else END

        def named(symbol: str) -> str:
            return symbol.removesuffix(END) + end if symbol.endswith(END) else symbol

        known = {named(piece): id_ for id_, piece in enumerate(found.pieces, first_id)}
        merges = [(named(left), named(right)) for left, right in found.merges]
        symbols = dict.fromkeys(part for left, right in merges for part in (left, right, left + right))
        others = [symbol for symbol in (*symbols, *([_APART] if is_apart else [])) if symbol not in known]
        self._first_other, self._unk_id = first_id + len(found.pieces), unk_id
        numbers = {_UNKNOWN: unk_id, **known, **{name: id_ for id_, name in enumerate(others, self._first_other)}}
        self._has_others = bool(others)
        self._apart = numbers[_APART] if is_apart else None
        self._ended = {number: known.get(name + end, unk_id) for name, number in numbers.items()} if is_apart else {}
        model = models.BPE(numbers, merges, unk_token=_UNKNOWN)
        if not is_apart:
            model.end_of_word_suffix = END
        self._library = tokenizers.Tokenizer(model)

    def __call__(self, words: Sequence[str]) -> list[list[int]]:
        """Give the ids of each word."""
        if self._apart is not None:
            words = [word + _APART for word in words]
        rows = [encoding.ids for encoding in self._library.encode_batch_fast(words, add_special_tokens=False)]
        if self._apart is not None:
            rows = [self._joined(row) for row in rows]
        if self._has_others:
            rows = [[self._unk_id if id_ >= self._first_other else id_ for id_ in row] for row in rows]
        return rows

    def _joined(self, row: list[int]) -> list[int]:
        if row[-1] != self._apart:
            return row
        return [*row[:-2], self._ended[row[-2]]]
