"""Batches of translation pairs of similar length: a pure function of (seed, step)."""

from bisect import bisect_right
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch

from sublayer.counts import count
from sublayer.data.arrays import Ints
from sublayer.data.batches import IGNORED
from sublayer.data.epochs import LastEpochs
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.packing import pairs_in_rows
from sublayer.data.parallel.batch_plan import BatchOrder, BatchRule
from sublayer.data.split import Split
from sublayer.errors import DataError


class TranslationBatches:
    """Batches of at most ``batch_tokens`` tokens on either side, padding and ends included.

    Where ``context`` is more, it is the limit: a pair is never cut. In every epoch each pair is
    used once: they are sorted by length, equal ones in an order of the epoch, filled into batches,
    and the batches shuffled, as ``BatchRule`` says of ``multiple``, ``order`` and ``parts``, which
    share ``batch_tokens``. Pairs with a side of more than ``context`` tokens, its end included, are
    left out and counted in ``n_left_out``. ``starts_with_pad``: a decoder reads padding first, not
    the end.

    Raises DataError where no pair is left.
    """

    lengths_vary: ClassVar[bool] = True

    def __init__(
        self,
        split: Split,
        *,
        context: int,
        batch_tokens: int,
        seed: int,
        starts_with_pad: bool = False,
        multiple: int = 1,
        order: BatchOrder = "anew",
        parts: int = 1,
    ) -> None:
        end_id = split.tokenizer.sep_id
        pad_id = split.tokenizer.pad_id
        assert end_id is not None and pad_id is not None, "the vocabulary was checked"
        self.split = split
        self._seed = seed
        part_tokens = max(batch_tokens // parts, context)
        self._rule = BatchRule(part_tokens, multiple=multiple, order=order, parts=parts)
        self._end_id = end_id
        self._pad_id = pad_id
        self._first_id = pad_id if starts_with_pad else end_id
        self._bounds = side_bounds(split)
        lengths = side_lengths(split)  # [all pairs, 2]
        longer = lengths.max(1)
        self._indices = np.flatnonzero(longer <= context)  # [N]: in the split, of those that fit
        self.n_left_out = len(lengths) - len(self._indices)
        if not len(self._indices):
            raise DataError(
                f"every pair of the {split.name} split has a side of more than "
                f"data.context = {context}: give a longer data.context"
            )
        self._lengths = lengths[self._indices]  # [N, 2]
        self._batches = LastEpochs[list[Ints]]()
        self._ends = [0]
        """The number of batches before each epoch, and after the last that was planned."""

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """Return pairs ``rank``, ``rank + world``, ... of the global batch of a step (0-based).

        Where there are more processes than pairs, those without one are given the first, of which
        nothing counts.
        """
        pairs = self._pairs_of(step)
        if rank < len(pairs):
            return self.pairs(pairs[rank::world])
        first = self.pairs(pairs[:1])
        assert first.targets is not None, "targets are predicted"
        nothing = torch.full_like(first.targets, IGNORED)
        return replace(first, targets=nothing, predicted=None)

    def n_tokens(self, step: int) -> int:
        """Count the target's tokens of the global batch, ends included."""
        pairs = self._pairs_of(step)
        n_targets = self._lengths[pairs, 1]
        return int(n_targets.sum())

    def notes(self) -> list[str]:
        """Return a line on how many pairs are left out, if any are."""
        if not self.n_left_out:
            return []
        return [
            f"{count(self.n_left_out, 'pair')} of the {self.split.name} split, longer than "
            "data.context, left out"
        ]

    def n_batches(self, epoch: int) -> int:
        """Count the batches of an epoch, 0-based: epochs may differ by a few."""
        return len(self._epoch(epoch))

    def steps(self, epochs: float) -> int:
        """Count the batches of ``epochs``, the last of which may be a part of one."""
        n_whole = int(epochs)
        steps = sum(self.n_batches(epoch) for epoch in range(n_whole))
        part = epochs - n_whole
        if part > 0:
            steps += round(part * self.n_batches(n_whole))
        return steps

    def pairs(self, numbers: Ints) -> PackedBatch:
        """Return the batch of pairs ``numbers`` [B], among those that fit; at least one.

        Rows are in the order of ``numbers``.
        """
        sources, targets = [], []
        for pair in self._indices[numbers]:
            # A pair has two sides, and where it stops the next begins.
            first_bound = 2 * pair
            start, middle, stop = self._bounds[first_bound : first_bound + 3]
            sources.append(self._ended(start, middle))
            targets.append(self._ended(middle, stop))
        return pairs_in_rows(sources, targets, pad_id=self._pad_id, first_id=self._first_id)

    def _ended(self, start: int, stop: int) -> Ints:
        """Return tokens of the split, and the end."""
        return np.append(self.split.ids[start:stop], self._end_id).astype(np.int64)

    def places(self, step: int) -> Ints:
        """Return the numbers in the split, [B], of the pairs of a step's global batch, in order.

        They count the pairs that are too long, too; those of ``pairs`` do not.
        """
        return self._indices[self._pairs_of(step)]

    @property
    def n_pairs(self) -> int:
        """Count the pairs that fit."""
        return len(self._indices)

    @property
    def lengths(self) -> Ints:
        """Tokens of both sides of each pair that fits, ends included: [N, 2]."""
        return self._lengths

    def _pairs_of(self, step: int) -> Ints:
        ends = self._ends
        while step >= ends[-1]:
            epoch = len(ends) - 1
            ends.append(ends[-1] + self.n_batches(epoch))
        epoch = bisect_right(ends, step) - 1
        return self._epoch(epoch)[step - ends[epoch]]

    def _epoch(self, epoch: int) -> list[Ints]:
        return self._batches.get(epoch, self._make_epoch)

    def _make_epoch(self, epoch: int) -> list[Ints]:
        """Return the numbers of the pairs of each batch of an epoch."""
        return self._rule.steps(self._lengths, seed=self._seed, epoch=epoch)


def side_bounds(split: Split) -> Ints:
    """Return where each side of each pair begins, source before target, and the end: [2 N + 1]."""
    assert split.sentence_starts is not None, "the text was stored as pairs"
    return np.append(split.sentence_starts, len(split.ids))


def side_lengths(split: Split) -> Ints:
    """Count the tokens of both sides of each pair of a split, ends included: [N, 2]."""
    n_tokens = np.diff(side_bounds(split))  # [2 N]
    lengths: Ints = n_tokens.reshape(-1, 2) + 1
    return lengths
