"""Encoded examples assembled into packed batches."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np

from sublayer.config.supervised import Format
from sublayer.data.arrays import AnyInts, Bools, Ints
from sublayer.data.batches import IGNORED
from sublayer.data.packing import PackedBatch, PackedSequence, Unpacked, pack_examples
from sublayer.data.tasks.encoded import CUTS, EncodedExamples, Marks, bounds, cut_lengths


def whole_lengths(encoded: EncodedExamples, marks: Marks) -> Ints:
    """Count the tokens of every row, special ones included, without truncation: ``[R]``."""
    return encoded.row_tokens + encoded.row_texts + (marks.first is not None)


def build_row(
    encoded: EncodedExamples, row: int, marks: Marks, context: int, *, is_swapped: bool = False
) -> tuple[Ints, Ints]:
    """Build a row, truncated to ``context``; ``is_swapped`` exchanges two texts.

    Returns token ids, special ones included, and segments: 0 for the first text, 1 after it.
    """
    texts = encoded.texts_of(row)
    if is_swapped:
        texts.reverse()
    room = context - marks.n_marks(len(texts))
    lengths = [len(text) for text in texts]
    if sum(lengths) > room:
        if CUTS[encoded.cuts[row]] == "first":
            others = sum(lengths[1:])
            kept = [max(0, room - others), *cut_lengths(lengths[1:], room)]
        else:
            kept = cut_lengths(lengths, room)
        texts = [text[:length] for text, length in zip(texts, kept, strict=True)]
    first = [] if marks.first is None else [marks.first]
    ends = [marks.between] * (len(texts) - 1) + [marks.last]
    parts: list[Any] = [
        first,
        *chain.from_iterable((text, [end]) for text, end in zip(texts, ends, strict=True)),
    ]
    ids = np.concatenate(parts).astype(np.int64)
    segments = np.ones(len(ids), dtype=np.int64)
    segments[: len(first) + len(texts[0]) + 1] = 0
    return ids, segments


_ROW_TOKENS = 128
"""Tokens of a row into which shorter examples are packed, where none is longer."""


@dataclass(frozen=True)
class RowRule:
    """Layout rule of texts in a model's rows, and the number of rows computed at a time."""

    format: Format
    marks: Marks
    context: int
    """Tokens that a row has at most, marks included."""
    predicts_text: bool = False
    """True where a traversal's own tokens are predicted, too."""
    target_length: int = 0
    """Of text to text: tokens that a target has at most, its end included."""
    first_id: int | None = None
    """First id that a decoder beside an encoder reads; None where there is none."""
    fills_rows: bool = False
    """True where a batch is as many examples as full rows of the context hold."""
    n_rows: int | None = None
    """Rows of so many tokens that are computed at a time where nothing is learned; None: a number
    that the device is quick with."""


class Assembler:
    """Examples packed by their numbers."""

    def __init__(self, encoded: EncodedExamples, rule: RowRule) -> None:
        self._encoded = encoded
        self._rule = rule

    @cached_property
    def _first_lengths(self) -> Ints:
        """Tokens of the first text of every row: [R]."""
        return self._encoded.text_lengths[self._encoded.row_starts[:-1]]

    @cached_property
    def _target_lengths(self) -> Ints:
        """Tokens of every target of text to text, its end included; 0 where there is none: [R]."""
        if self._rule.format != "text":
            return np.zeros(self._encoded.n_rows, dtype=np.int64)
        n_tokens = self._encoded.row_tokens - self._first_lengths + 1
        return np.where(self._encoded.row_texts > 1, n_tokens, 0)

    @cached_property
    def _whole_lengths(self) -> Ints:
        """Tokens of every row, or every source of text to text, before it is cut: [R]."""
        if self._rule.format != "text":
            return whole_lengths(self._encoded, self._rule.marks)
        return self._first_lengths + 1

    @property
    def _read_lengths(self) -> Ints:
        """Tokens of every row, or every source, as it is read: [R]."""
        return np.minimum(self._whole_lengths, self._most_tokens)

    @cached_property
    def _row_bounds(self) -> Ints:
        """Bounds of all rows, sources and targets, one behind another: [R + 1]."""
        written = np.minimum(self._target_lengths, self._rule.target_length)
        return bounds(self._read_lengths + written)

    @property
    def _most_tokens(self) -> int:
        """Tokens of a row or an input at most, its marks included."""
        rule = self._rule
        if rule.format == "text" and rule.first_id is None:
            # Input and target share a row.
            return max(1, rule.context - rule.target_length)
        return rule.context

    @property
    def n_rows(self) -> int:
        """Count the rows."""
        return self._encoded.n_rows

    @property
    def n_cut(self) -> int:
        """Count the truncated rows."""
        return int((self._whole_lengths > self._most_tokens).sum())

    @property
    def share_read(self) -> float:
        """Share of truncated rows' tokens that is read, from 0 to 1."""
        cut = self._whole_lengths[self._whole_lengths > self._most_tokens]
        return len(cut) * self._most_tokens / int(cut.sum()) if len(cut) else 1.0

    def cut_examples(self) -> Bools:
        """Mark the examples with a truncated row: ``[N]``."""
        n_before = bounds((self._whole_lengths > self._most_tokens).astype(np.int64))[
            self._encoded.example_starts
        ]
        return np.diff(n_before) > 0

    @cached_property
    def n_cut_targets(self) -> int:
        """Count the truncated targets."""
        return int((self._target_lengths > self._rule.target_length).sum())

    @property
    def longest_target(self) -> int:
        """Return the length of the longest target, its end included."""
        return int(self._target_lengths.max(initial=0))

    @cached_property
    def filling(self) -> Ints:
        """Room of each example in a row of the context, in tokens, and its sequences: [E, 2].

        Counted on the side that it fills more; tokens of a target are scaled from
        ``written_width`` to the context.
        """
        filled = self.tokens(np.arange(len(self._encoded)))
        if self._rule.first_id is not None:
            read = self._read_lengths
            written = filled - read
            filled = np.maximum(read, -(-written * self._rule.context // self.written_width))
        n_sequences = np.diff(self._encoded.example_starts)
        return np.stack([np.maximum(filled, 1), n_sequences], axis=1)

    @property
    def written_width(self) -> int:
        """Tokens of a row of targets at most."""
        return max(_ROW_TOKENS, self._rule.target_length)

    def tokens(self, numbers: Ints) -> Ints:
        """Count the tokens of examples, marks included: ``[N]``."""
        starts = self._row_bounds[self._encoded.example_starts]
        return starts[numbers + 1] - starts[numbers]

    def pack(
        self, numbers: Ints, *, weight: float = 1.0, is_swapped: Sequence[bool] | None = None
    ) -> PackedBatch:
        """Pack examples, by their numbers: ``[N]``, at least one.

        A ``weight`` of 0 excludes all from the loss; ``is_swapped`` marks exchanged texts.
        """
        swapped = is_swapped or [False] * len(numbers)
        examples = []
        for number, swaps in zip(numbers.tolist(), swapped, strict=True):
            rows = self._encoded.rows_of(number)
            sequences = [self._sequence(row, swaps) for row in rows]
            label = float(self._encoded.labels[number])
            examples.append(Unpacked(sequences, label, weight, number))
        longest = max(len(sequence.ids) for one in examples for sequence in one.sequences)
        width = min(self._rule.context, max(_ROW_TOKENS, longest))
        is_filled = self._rule.fills_rows and width == self._rule.context
        return pack_examples(
            examples,
            width=width,
            written_width=self.written_width,
            filling=self.filling[numbers, 0].tolist() if is_filled else None,
            by_written=self._rule.fills_rows,
            pad_id=self._rule.marks.pad,
            first_id=self._rule.first_id or 0,
        )

    def _sequence(self, row: int, is_swapped: bool) -> PackedSequence:
        rule = self._rule
        if rule.format == "text":
            return self._text_to_text(self._encoded.texts_of(row))
        ids, segments = build_row(
            self._encoded, row, rule.marks, rule.context, is_swapped=is_swapped
        )
        if rule.format == "pair":
            return PackedSequence(ids, segments, readout=0, span=self._encoded.span_of(row))
        targets = np.append(ids[1:], IGNORED) if rule.predicts_text else None
        return PackedSequence(ids, segments, readout=len(ids) - 1, targets=targets)

    def source(self, number: int) -> Ints:
        """Return the input of an example of text to text, its end included: ``[T]``."""
        texts = self._encoded.texts_of(self._encoded.example_starts[number])
        return np.append(texts[0][: self._most_tokens - 1], self._rule.marks.last).astype(np.int64)

    def _text_to_text(self, texts: Sequence[AnyInts]) -> PackedSequence:
        rule = self._rule
        end = rule.marks.last
        source = np.append(texts[0][: self._most_tokens - 1], end).astype(np.int64)
        written = None
        if len(texts) > 1:
            written = np.append(texts[1][: rule.target_length - 1], end).astype(np.int64)
        if rule.first_id is not None:
            return PackedSequence(source, np.zeros_like(source), 0, written=written)
        if written is None:
            return PackedSequence(source, np.zeros_like(source), len(source) - 1)
        ids = np.concatenate([source, written])
        targets = np.full(len(ids), IGNORED, dtype=np.int64)
        # The input's end predicts the first of the target.
        targets[len(source) - 1 : -1] = written
        return PackedSequence(ids, np.zeros_like(ids), len(source) - 1, targets=targets)
