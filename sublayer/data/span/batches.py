"""Batches of corrupted pieces: a pure function of (seed, step)."""

from bisect import bisect_right
from typing import Literal

import numpy as np

from sublayer.data.arrays import Ints
from sublayer.data.batches import Boundaries, Windows
from sublayer.data.counter_rng import Purpose, seeds
from sublayer.data.epochs import LastEpochs
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.random_order import random_order
from sublayer.data.span.examples import CorruptionRule, Pieces, corrupted_batch
from sublayer.data.span.pieces import Cuts, cut, shuffled_documents, whole_documents
from sublayer.data.split import Split
from sublayer.errors import DataError

Mode = Literal["random", "shuffled"]


class RandomPieces:
    """Batches of ``batch_sequences`` corrupted pieces that begin at random.

    Each begins at a uniform position of the split; in a weighted mixture a source is drawn by its
    weight, then a position within it.

    Raises DataError where the split, or a weighted source of it, has no piece.
    """

    lengths_vary = False

    def __init__(
        self, split: Split, rule: CorruptionRule, *, batch_sequences: int, seed: int
    ) -> None:
        self.split = split
        self.rule = rule
        self._seed = seed
        split.check_length(rule.raw_length, "objective.raw_length")
        # Of a window the last token has its target in the piece, too.
        context = rule.raw_length - 1
        self._windows = Windows(split, context=context, batch_sequences=batch_sequences, seed=seed)
        self._text = whole_documents(split)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """Return rows ``rank``, ``rank + world``, ... of the global batch of a step (0-based)."""
        begins = self._windows.starts(step)
        lengths = np.full_like(begins, self.rule.raw_length)
        bits = seeds(self._seed, Purpose.NOISE, step, len(begins))
        own = slice(rank, None, world)
        pieces = Pieces(self._text, Cuts(begins[own], lengths[own]), bits[own])
        return corrupted_batch(self.split, [pieces], self.rule)

    def n_tokens(self, step: int) -> int:
        """Count the tokens of the global batch as if inputs were full: a context for each row."""
        return self._windows.batch_sequences * self.rule.context

    def notes(self) -> list[str]:
        """Return what of the split is left out: nothing."""
        return []


class EpochPieces:
    """Batches of ``batch_sequences`` corrupted pieces, each of which an epoch uses once.

    In every epoch all documents, or a chunk of each (``shuffled_documents``), are joined in a new
    order and cut into pieces, which are used in random order. With ``boundaries`` respected each
    document is cut on its own, and its last piece is shorter; else what is left of an epoch and is
    shorter than a piece is not used.

    Raises DataError where the split has no piece.
    """

    def __init__(
        self,
        split: Split,
        rule: CorruptionRule,
        *,
        batch_sequences: int,
        seed: int,
        boundaries: Boundaries,
        chunk_tokens: int,
    ) -> None:
        self.split = split
        self.rule = rule
        self.lengths_vary = boundaries == "respect"
        self._batch_sequences = batch_sequences
        self._seed = seed
        self._boundaries: Boundaries = boundaries
        self._chunk_tokens = chunk_tokens
        self._epochs = LastEpochs[Pieces]()
        self._ends = [0]
        """The number of pieces before each epoch, and after the last that was planned."""
        if self.n_pieces(0) == 0:
            if boundaries == "ignore":
                split.check_length(rule.raw_length, "objective.raw_length")
            raise DataError(
                f"the {split.name} split of {' and '.join(split.sources)} gives no piece that can "
                "be corrupted: give longer documents, a larger objective.chunk_tokens or a smaller "
                "data.context"
            )

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """Return rows ``rank``, ``rank + world``, ... of the global batch of a step (0-based)."""
        parts = self._of_rows(self._rows(step)[rank::world])
        return corrupted_batch(self.split, parts, self.rule)

    def n_tokens(self, step: int) -> int:
        """Count the tokens of the global batch as if inputs were full: a context for each row."""
        return self._batch_sequences * self.rule.context

    def n_pieces(self, epoch: int) -> int:
        """Count the pieces of an epoch, 0-based: epochs may differ by a few."""
        return len(self._pieces(epoch).bits)

    def notes(self) -> list[str]:
        """Return what of the split is left out, if documents are longer than a chunk."""
        starts = self.split.document_starts
        n_tokens = np.diff(np.append(starts, len(self.split.ids)))
        n_long = np.count_nonzero(n_tokens > self._chunk_tokens)
        if not n_long:
            return []
        return [
            f"an epoch uses one chunk of {self._chunk_tokens:,} tokens (objective.chunk_tokens) of "
            f"each longer document: {n_long:,} of the {self.split.name} split"
        ]

    def _rows(self, step: int) -> Ints:
        first = step * self._batch_sequences
        rows: Ints = first + np.arange(self._batch_sequences)
        return rows

    def _of_rows(self, rows: Ints) -> list[Pieces]:
        """Return the pieces of rows, which are numbered through all epochs, an epoch at a time."""
        while rows[-1] >= self._ends[-1]:
            epoch = len(self._ends) - 1
            self._ends.append(self._ends[-1] + self.n_pieces(epoch))
        # A batch may end one epoch, or several short ones, and begin the next.
        first_epoch = bisect_right(self._ends, rows[0]) - 1
        last_epoch = bisect_right(self._ends, rows[-1]) - 1
        parts = []
        for epoch in range(first_epoch, last_epoch + 1):
            begin, end = self._ends[epoch : epoch + 2]
            numbers = rows[(rows >= begin) & (rows < end)] - begin
            if len(numbers):
                parts.append(self._pieces(epoch).select(numbers))
        return parts

    def _pieces(self, epoch: int) -> Pieces:
        return self._epochs.get(epoch, self._make_epoch)

    def _make_epoch(self, epoch: int) -> Pieces:
        joined = shuffled_documents(self.split, self._seed, epoch, self._chunk_tokens)
        cuts = cut(joined, self.rule.raw_length, self._boundaries)
        if self._boundaries == "ignore":
            # Only the last may be shorter.
            n_whole = joined.n_tokens // self.rule.raw_length
            cuts = Cuts(cuts.begins[:n_whole], cuts.lengths[:n_whole])
        n_pieces = len(cuts.begins)
        order = random_order(self._seed, Purpose.WINDOW_ORDER, epoch, n_pieces)
        bits = seeds(self._seed, Purpose.NOISE, epoch, n_pieces)
        return Pieces(joined, cuts, bits).select(order)


class ScoredPieces:
    """Batches of all pieces of whole documents, or of some, for scoring: always the same.

    ``most`` pieces are scored, spread evenly; None: all. Those of a text that is cut through, and
    of documents, but for the last, are equally long.

    Raises DataError where the split has no piece.
    """

    def __init__(
        self,
        split: Split,
        rule: CorruptionRule,
        *,
        batch_sequences: int,
        boundaries: Boundaries,
        most: int | None = None,
    ) -> None:
        self.split = split
        self.rule = rule
        self._batch_sequences = batch_sequences
        joined = whole_documents(split)
        cuts = cut(joined, rule.raw_length, boundaries)
        n_pieces = len(cuts.begins)
        if n_pieces == 0:
            raise DataError(
                f"the {split.name} split of {' and '.join(split.sources)} has no document of two "
                "tokens, the fewest that can be corrupted: give a longer text"
            )
        bits = seeds(_SCORING_SEED, Purpose.NOISE, 0, n_pieces)
        self.pieces = Pieces(joined, cuts, bits)
        if most is not None and most < n_pieces:
            numbers = np.linspace(0, n_pieces - 1, max(1, most)).round().astype(np.int64)
            self.pieces = self.pieces.select(numbers)

    @property
    def n_batches(self) -> int:
        """Count the batches."""
        return -(-len(self.pieces.bits) // self._batch_sequences)

    def batch(self, number: int) -> PackedBatch:
        """Return a batch by its number, from 0."""
        first = number * self._batch_sequences
        last = min(first + self._batch_sequences, len(self.pieces.bits))
        pieces = self.pieces.select(np.arange(first, last))
        return corrupted_batch(self.split, [pieces], self.rule)

    @property
    def documents(self) -> Ints:
        """Return the document that each piece begins in, ``[N]``, by its place in the split."""
        positions = self.pieces.joined.positions(self.pieces.cuts.begins)
        n_begun = np.searchsorted(self.split.document_starts, positions, side="right")
        documents: Ints = n_begun - 1
        return documents


_SCORING_SEED = 0
"""Every model, seed and step is scored on one corruption of a text."""
