"""Merges applied to words: the ids of each word's pieces."""

from collections.abc import Sequence

import tokenizers
from tokenizers import models

from sublayer.data.subwords.bpe_training import Merges

END = "</w>"
"""What a piece that ends a word ends in."""

# Names that no word can have, since none holds a newline.
_APART, _UNKNOWN = "\n", "\n\n"


class BpeEncoder:
    """Segment words by merges: always the pair of neighbours that was merged first in training.

    Pieces have ids from ``first_id`` on; what the merges make beside them is ``unk_id``. A word's
    last character has the end of word with it from the start, or, where ``is_apart``, the end is a
    symbol of its own until a merge joins it (subword-nmt before 0.2); one that none joins belongs
    to what is before it. Source: Sennrich et al. 2016 (1508.07909), sec. 3.2.

    Departure: a pair's occurrences are merged one by one, not all at once. The two differ only
    where a merge makes what an earlier one takes, in words that have the pair more than once.
    """

    def __init__(self, trained: Merges, *, first_id: int, unk_id: int, is_apart: bool) -> None:
        end = _APART if is_apart else END

        def rename(symbol: str) -> str:
            if not symbol.endswith(END):
                return symbol
            return symbol.removesuffix(END) + end

        known = {rename(piece): id_ for id_, piece in enumerate(trained.pieces, first_id)}
        merges = [(rename(left), rename(right)) for left, right in trained.merges]
        symbols: dict[str, None] = {}  # a set that keeps the order of the merges
        for left, right in merges:
            symbols |= dict.fromkeys((left, right, left + right))
        if is_apart:
            symbols.setdefault(_APART)
        # What the merges make beside the pieces is numbered after them, and becomes unknown.
        others = [symbol for symbol in symbols if symbol not in known]
        self._first_other = first_id + len(trained.pieces)
        self._has_others = bool(others)
        self._unk_id = unk_id
        numbers = {_UNKNOWN: unk_id, **known}
        for number, symbol in enumerate(others, self._first_other):
            numbers[symbol] = number
        model = models.BPE(numbers, merges, unk_token=_UNKNOWN)
        self._apart: int | None = None
        self._ended: dict[int, int] = {}
        """The id of each symbol with an end of word, where that is apart, by its own."""
        if is_apart:
            self._apart = numbers[_APART]
            for symbol, number in numbers.items():
                self._ended[number] = known.get(symbol + end, unk_id)
        else:
            model.end_of_word_suffix = END
        # Without a rule that divides text: words come divided.
        self._library = tokenizers.Tokenizer(model)

    def __call__(self, words: Sequence[str]) -> list[list[int]]:
        """Return the ids of each word; a word is not empty and holds no newline."""
        if self._apart is not None:
            words = [word + _APART for word in words]
        encodings = self._library.encode_batch_fast(words, add_special_tokens=False)
        rows = [encoding.ids for encoding in encodings]
        if self._apart is not None:
            rows = [self._join_end(row) for row in rows]
        if self._has_others:
            rows = [self._without_others(row) for row in rows]
        return rows

    def _join_end(self, row: list[int]) -> list[int]:
        """Join an end of word that stands apart to the symbol before it."""
        if row[-1] != self._apart:
            return row
        *before, last, _ = row
        before.append(self._ended[last])
        return before

    def _without_others(self, row: list[int]) -> list[int]:
        first_other = self._first_other
        unk_id = self._unk_id
        return [unk_id if id_ >= first_other else id_ for id_ in row]
