"""Batches of translation pairs of similar length: a pure function of (seed, step)."""

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import numpy as np
import torch

from sublayer.data.batches import IGNORED, PackedBatch, pairs_in_rows
from sublayer.data.counter_rng import Epochs, Purpose, seeds
from sublayer.data.store import Split
from sublayer.errors import DataError
from sublayer.files.arrays import Ints
from sublayer.numbers import count

BatchOrder = Literal["anew", "once"]


@dataclass(frozen=True)
class BatchRule:
    """Rule that groups the pairs of an epoch into batches.

    Pairs are sorted by length, those of equal length in random order, and filled into batches,
    which are shuffled.
    """

    tokens: int
    """Maximum number of tokens on either side of a batch, padding and ends included."""
    multiple: int = 1
    """Divisor of a batch's number of pairs, where a batch has at least as many."""
    order: BatchOrder = "anew"
    """Frequency of batching: ``anew`` makes batches in every epoch, from pairs sorted by the longer
    side; ``once`` makes them in the first, from pairs sorted by the source's length and then the
    target's, and shuffles them in every epoch (fairseq)."""
    parts: int = 1
    """Number of batches that a step consumes, over all processes and accumulation."""

    def steps(self, lengths: Ints, *, seed: int, epoch: int) -> list[Ints]:
        """Return the pair numbers of each step of an epoch, from ``lengths`` [N, 2].

        The last step may have fewer parts.
        """
        made_in = 0 if self.order == "once" else epoch
        ties = seeds(seed, Purpose.PAIR_ORDER, made_in, len(lengths))
        source, target = lengths.T
        longer = lengths.max(1)
        # The last key is the primary one.
        if self.order == "once":
            pairs = np.lexsort((ties, target, source))
        else:
            # Alternating order, so that where the longer side changes, shorter sides are similar.
            zigzag = np.where(longer % 2 == 0, source - target, target - source)
            pairs = np.lexsort((ties, zigzag, longer))
        runs = fill(longer[pairs], self.tokens, self.multiple)
        sort_keys = seeds(seed, Purpose.BATCH_ORDER, epoch, len(runs))
        order = np.argsort(sort_keys, kind="stable").tolist()
        batches = [pairs[slice(*runs[index])] for index in order]
        firsts = range(0, len(batches), self.parts)
        return [np.concatenate(batches[first : first + self.parts]) for first in firsts]


def fill(widths: Ints, batch_tokens: int, multiple: int = 1) -> list[tuple[int, int]]:
    """Cut pairs into runs whose size times maximum width is at most ``batch_tokens``.

    ``widths`` are the tokens of the longer sides. A run, returned as start and stop, has at least
    one pair, however wide. A run of ``multiple`` pairs or more leaves the pairs beyond a multiple
    to the next run; the last run keeps all. Widths of 3, 3, 4 and 9 fill runs of 8 tokens as
    (0, 2), (2, 3) and (3, 4). Source of the multiple: fairseq, ``batch_by_size``.
    """
    runs = []
    start = 0
    widest = 0
    for index, width in enumerate(widths.tolist()):
        widest = max(widest, width)
        n_pairs = index - start
        if widest * (n_pairs + 1) > batch_tokens and n_pairs:
            beyond = n_pairs % multiple
            stop = index - beyond if n_pairs > beyond else index
            runs.append((start, stop))
            start = stop
            widest = int(widths[start : index + 1].max())
    runs.append((start, len(widths)))
    return runs


class TranslationBatches:
    """Batches of at most ``batch_tokens`` tokens on either side, padding and ends included.

    A larger ``context`` is the limit instead, since no pair is cut. Each epoch uses each pair once,
    grouped into batches as ``BatchRule`` describes (``multiple``, ``order``); a step's ``parts``
    share ``batch_tokens``. Pairs with a side of more than ``context`` tokens, its end included, are
    left out and counted in ``n_left_out``. With ``starts_with_pad`` the decoder reads padding
    first, not the end.

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
        part_tokens = max(batch_tokens // parts, context)
        self._rule = BatchRule(part_tokens, multiple=multiple, order=order, parts=parts)
        self._end_id = end_id
        self._pad_id = pad_id
        self._first_id = pad_id if starts_with_pad else end_id
        self._bounds = side_bounds(split)
        lengths = side_lengths(split)  # [all pairs, 2]
        longer = lengths.max(1)
        self._indices = np.flatnonzero(longer <= context)  # [N]: in the split, of pairs that fit
        self.n_left_out = len(lengths) - len(self._indices)
        if not len(self._indices):
            raise DataError(
                f"every pair of the {split.name} split has a side of more than "
                f"data.context = {context}: give a longer data.context"
            )
        self._lengths = lengths[self._indices]  # [N, 2]
        # Plan of an epoch: the pair numbers of each step.
        self._epochs = Epochs(
            lambda epoch: self._rule.steps(self._lengths, seed=seed, epoch=epoch), len
        )

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """Return pairs ``rank``, ``rank + world``, ... of the global batch of a step (0-based).

        Processes beyond the number of pairs get the first pair, with weight 0.
        """
        pairs = self._pairs_of(step)
        if rank < len(pairs):
            return self.pairs(pairs[rank::world])
        first = self.pairs(pairs[:1])
        assert first.targets is not None, "targets are predicted"
        nothing = torch.full_like(first.targets, IGNORED)
        weights = torch.zeros_like(first.weights)
        return replace(first, targets=nothing, predicted=None, weights=weights)

    def n_tokens(self, step: int) -> int:
        """Count the target tokens of the global batch, ends included."""
        return int(self._lengths[self._pairs_of(step), 1].sum())

    def notes(self) -> list[str]:
        """Return a line on the number of omitted pairs, if any."""
        if not self.n_left_out:
            return []
        return [
            f"{count(self.n_left_out, 'pair')} of the {self.split.name} split left out: longer "
            "than data.context"
        ]

    def n_batches(self, epoch: int) -> int:
        """Count the batches of an epoch, 0-based: epochs may differ by a few."""
        return len(self._epochs.plan(epoch))

    def steps(self, epochs: float) -> int:
        """Count the batches of ``epochs``, the last possibly partial."""
        n_whole = int(epochs)
        steps = sum(self.n_batches(epoch) for epoch in range(n_whole))
        part = epochs - n_whole
        if part > 0:
            steps += round(part * self.n_batches(n_whole))
        return steps

    def pairs(self, numbers: Ints) -> PackedBatch:
        """Return a batch of the pairs ``numbers`` [B], at least one, counted among those that fit.

        Rows are in the order of ``numbers``.
        """
        sources: list[Ints] = []
        targets: list[Ints] = []
        for pair in self._indices[numbers]:
            # A pair has two sides, and ends where the next pair begins.
            start, middle, stop = self._bounds[2 * pair : 2 * pair + 3]
            for side, ids in (
                (sources, self.split.ids[start:middle]),
                (targets, self.split.ids[middle:stop]),
            ):
                side.append(np.append(ids, self._end_id).astype(np.int64))
        return pairs_in_rows(sources, targets, pad_id=self._pad_id, first_id=self._first_id)

    def places(self, step: int) -> Ints:
        """Return the numbers in the split of the pairs of a step's global batch [B], in order.

        They count overlong pairs, which the numbers of ``pairs`` do not.
        """
        return self._indices[self._pairs_of(step)]

    @property
    def n_pairs(self) -> int:
        """Count the pairs that fit."""
        return len(self._indices)

    @property
    def lengths(self) -> Ints:
        """Lengths in tokens of both sides of each pair that fits, ends included: [N, 2]."""
        return self._lengths

    def _pairs_of(self, step: int) -> Ints:
        epoch, batch = self._epochs.locate(step)
        return self._epochs.plan(epoch)[batch]


def side_bounds(split: Split) -> Ints:
    """Return the starts of all sides, source before target, and the end: [2 N + 1]."""
    assert split.sentence_starts is not None, "the text was stored as pairs"
    return np.append(split.sentence_starts, len(split.ids))


def side_lengths(split: Split) -> Ints:
    """Count the tokens of both sides of each pair of a split, ends included: [N, 2]."""
    n_tokens = np.diff(side_bounds(split))  # [2 N]
    return n_tokens.reshape(-1, 2) + 1
