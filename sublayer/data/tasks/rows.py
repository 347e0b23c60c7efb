"""Rows of an example as a model reads them: texts cut to fit, marks around them."""

from typing import NamedTuple

import numpy as np

from sublayer.data.arrays import Ints
from sublayer.data.tasks.encoded import CUTS, EncodedExamples, cut_lengths
from sublayer.data.tasks.marks import Marks


class Row(NamedTuple):
    """A row's token ids, marks included, and the segment of each: 0 for the first text, 1 after."""

    ids: Ints
    segments: Ints


def row_lengths(encoded: EncodedExamples, marks: Marks, context: int) -> Ints:
    """Count the tokens of every row, marks included, cut to ``context``: ``[R]``."""
    cut: Ints = np.minimum(whole_lengths(encoded, marks), context)
    return cut


def whole_lengths(encoded: EncodedExamples, marks: Marks) -> Ints:
    """Count the tokens that every row would have uncut, marks included: ``[R]``."""
    lengths: Ints = encoded.row_tokens + encoded.row_texts + (marks.first is not None)
    return lengths


def build_row(
    encoded: EncodedExamples, row: int, marks: Marks, context: int, *, is_swapped: bool = False
) -> Row:
    """Build a row, cut where it is longer than ``context``; ``is_swapped`` exchanges two texts."""
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
    parts: list[Ints] = []
    if marks.first is not None:
        parts.append(_mark(marks.first))
    n_first = 0
    for number, text in enumerate(texts, start=1):
        is_last = number == len(texts)
        parts += [text.astype(np.int64), _mark(marks.last if is_last else marks.between)]
        if number == 1:
            n_first = sum(map(len, parts))
    ids = np.concatenate(parts)
    segments = np.ones(len(ids), dtype=np.int64)
    segments[:n_first] = 0
    return Row(ids, segments)


def _mark(id_: int) -> Ints:
    return np.array([id_], dtype=np.int64)
