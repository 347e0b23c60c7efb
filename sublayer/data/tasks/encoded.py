"""Examples as tokens: the texts of each of their rows, their labels, and how long rows are."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, Self

import numpy as np

from sublayer.data.arrays import AnyInts, Bools, Floats, Ints

CUTS = ("longest", "first")
"""What gives way where a row is too long, by the number that is stored."""


@dataclass(frozen=True)
class EncodedExamples:
    """Examples of one split of a task, each a few rows, each a few texts.

    The texts of all rows stand one after another in ``ids``.
    """

    ids: AnyInts
    """Token ids, ``[N]``, without marks."""
    text_starts: Ints
    """Where each text begins, and the end: ``[P + 1]``."""
    row_starts: Ints
    """The first text of each row, and the number of texts: ``[R + 1]``."""
    example_starts: Ints
    """The first row of each example, and the number of rows: ``[E + 1]``."""
    labels: Floats
    """The index of the class or the right choice, or the number; 0 where there is none: ``[E]``."""
    is_labelled: Bools
    """``[E]``."""
    cuts: Ints
    """What of each row gives way, a number of ``CUTS``: ``[R]``."""
    numbers: Ints
    """The place of each among the examples that were read: ``[E]``."""

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, Any]) -> Self:
        """Put together what was stored, by the names of the fields, as narrow numbers."""
        wide: dict[str, Any] = {}
        for each in fields(cls):
            stored = arrays[each.name]
            wide[each.name] = stored if each.name == "ids" else stored.astype(np.int64)
        wide["labels"] = np.asarray(arrays["labels"], dtype=np.float64)
        wide["is_labelled"] = wide["is_labelled"].astype(np.bool_)
        return cls(**wide)

    def arrays(self) -> dict[str, Any]:
        """Return what is stored, by the names of the fields."""
        stored = {each.name: getattr(self, each.name) for each in fields(self)}
        stored["is_labelled"] = self.is_labelled.astype(np.uint8)
        return stored

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def n_rows(self) -> int:
        """Count the rows of all examples."""
        return len(self.row_starts) - 1

    @cached_property
    def text_lengths(self) -> Ints:
        """Tokens of each text: ``[P]``."""
        return np.diff(self.text_starts)

    @cached_property
    def row_texts(self) -> Ints:
        """Count the texts of each row: ``[R]``."""
        return np.diff(self.row_starts)

    @cached_property
    def row_tokens(self) -> Ints:
        """Count the tokens of each row, without marks and uncut: ``[R]``."""
        if not self.n_rows:
            return np.zeros(0, dtype=np.int64)
        return np.add.reduceat(self.text_lengths, self.row_starts[:-1])

    def rows_of(self, example: int) -> range:
        """Return the rows of an example."""
        return range(self.example_starts[example], self.example_starts[example + 1])

    def texts_of(self, row: int) -> list[AnyInts]:
        """Return the token ids of each text of a row."""
        first, stop = self.row_starts[row], self.row_starts[row + 1]
        starts = self.text_starts[first : stop + 1]
        return [self.ids[start:end] for start, end in pairwise(starts)]

    def span_of(self, row: int) -> tuple[int, int]:
        """Return the places of the first and the last token of a row's answer, marks included.

        They are 0 and 0 where it has none, or where answers are no spans.
        """
        return 0, 0

    def golds(self) -> list[Any]:
        """Return what is right, as a checksum takes it."""
        gold: list[Any] = self.labels.tolist()
        return gold

    def select(self, examples: Ints) -> Self:
        """Return some of the examples, by their places here, in this order."""
        rows = ranges(self.example_starts, examples)
        texts = ranges(self.row_starts, rows)
        tokens = ranges(self.text_starts, texts)
        return replace(
            self,
            ids=self.ids[tokens],
            text_starts=bounds(self.text_lengths[texts]),
            row_starts=bounds(self.row_texts[rows]),
            example_starts=bounds(np.diff(self.example_starts)[examples]),
            labels=self.labels[examples],
            is_labelled=self.is_labelled[examples],
            cuts=self.cuts[rows],
            numbers=self.numbers[examples],
        )


def joined(parts: Sequence[EncodedExamples]) -> EncodedExamples:
    """Put examples of several tasks behind each other; ``numbers`` are those of each part."""
    if len(parts) == 1:
        return parts[0]
    starts = {"text_starts", "row_starts", "example_starts"}
    arrays: dict[str, Any] = {}
    for each in fields(EncodedExamples):
        values = [getattr(part, each.name) for part in parts]
        if each.name in starts:
            arrays[each.name] = bounds(np.concatenate([np.diff(value) for value in values]))
        else:
            arrays[each.name] = np.concatenate(values)
    return EncodedExamples(**arrays)


def bounds(lengths: Sequence[int] | Ints) -> Ints:
    """Return where each of so many begins, and the end of the last."""
    starts = np.zeros(len(lengths) + 1, dtype=np.int64)
    np.cumsum(lengths, out=starts[1:])
    return starts


def ranges(starts: Ints, chosen: Ints) -> Ints:
    """Return all numbers from ``starts[i]`` to ``starts[i + 1]`` of each chosen ``i``, in order."""
    lengths = np.diff(starts)[chosen]
    own_starts = bounds(lengths)
    offsets = np.arange(own_starts[-1]) - np.repeat(own_starts[:-1], lengths)
    numbers: Ints = np.repeat(starts[chosen], lengths) + offsets
    return numbers


def cut_lengths(lengths: Sequence[int], room: int) -> list[int]:
    """Return how many tokens of each text are kept: the longest loses one at its end, and again.

    Of equally long ones the last gives way. Source: BERT's run_classifier.py, of two texts.
    """
    kept = list(lengths)
    excess = sum(kept) - room
    while excess > 0:
        longest = max(kept)
        at_top = [index for index, length in enumerate(kept) if length == longest]
        below = max((length for length in kept if length < longest), default=0)
        # All that are longest come down together to the next, or as far as there is need.
        level = max(below, longest - excess // len(at_top))
        if level < longest:
            for index in at_top:
                kept[index] = level
        else:
            for index in at_top[len(at_top) - excess :]:
                kept[index] -= 1
        excess = sum(kept) - room
    return kept
