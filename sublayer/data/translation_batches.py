"""Batches of pairs of about equal lengths: the global batch is a pure function of (seed, step)."""

from bisect import bisect_right
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from sublayer.data.batches import IGNORED, copy_to
from sublayer.data.draws import Purpose, roots
from sublayer.data.split import Split
from sublayer.errors import DataError


@dataclass(frozen=True)
class TranslationBatch:
    """Sources, and targets as the decoder reads and predicts them.

    A source is its tokens and the end. ``target`` begins with what a decoder reads first and has the target's tokens,
    ``labels`` are its tokens and the end, -1 where there is none. Rows are padded behind; ``source_mask`` is None where
    no source is.
    """

    source: Int[Tensor, "B S"]
    source_mask: Bool[Tensor, "B S"] | None
    target: Int[Tensor, "B T"]
    labels: Int[Tensor, "B T"]
    n_targets: int

    def __len__(self) -> int:
        return self.source.shape[0]

    def __getitem__(self, rows: slice) -> "TranslationBatch":
        labels = self.labels[rows]
        n_targets = int((labels >= 0).sum())
        width = max(1, int((labels >= 0).sum(1).max()))
        mask = None if self.source_mask is None else self.source_mask[rows]
        longest = self.source.shape[1] if mask is None else int(mask.sum(1).max())
        if mask is not None:
            mask = None if bool(mask[:, :longest].all()) else mask[:, :longest]
        return TranslationBatch(
            self.source[rows, :longest], mask, self.target[rows, :width], labels[:, :width], n_targets
        )

    @property
    def width(self) -> int:
        """Tokens of the longer side."""
        return max(self.source.shape[1], self.target.shape[1])

    def to(self, device: torch.device) -> "TranslationBatch":
        """Copy to a device, without waiting for the copies."""
        if device.type == "cpu":
            return self
        mask = None if self.source_mask is None else copy_to(self.source_mask, device)
        source, target, labels = (copy_to(each, device) for each in (self.source, self.target, self.labels))
        return TranslationBatch(source, mask, target, labels, self.n_targets)


class TranslationBatches:
    """Batches of at most ``batch_tokens`` tokens on either side, padding and ends included; a pair is never cut.

    In every epoch each pair is used once: they are sorted by their longer side and then by how much longer it is, equal
    ones in an order of the epoch, filled into batches, and the batches shuffled. Pairs with a side of more than
    ``context`` tokens, its end included, are left out and counted in ``n_left_out``. ``starts_with_pad``: a decoder
    reads padding first, not the end. Raises DataError where no pair is left.
    """

    def __init__(
        self, split: Split, *, context: int, batch_tokens: int, seed: int, starts_with_pad: bool = False
    ) -> None:
        assert split.tokenizer.sep_id is not None and split.tokenizer.pad_id is not None, "the vocabulary was checked"
        self.split, self._seed, self._batch_tokens = split, seed, max(batch_tokens, context)
        self._end, self._pad = split.tokenizer.sep_id, split.tokenizer.pad_id
        self._first = self._pad if starts_with_pad else self._end
        self._bounds = side_bounds(split)
        lengths = side_lengths(split)
        self._kept = np.flatnonzero(lengths.max(1) <= context)
        self.n_left_out = len(lengths) - len(self._kept)
        if not len(self._kept):
            raise DataError(
                f"every pair of the {split.name} split has a side of more than data.context = {context} tokens: "
                "give a longer data.context"
            )
        self._lengths = lengths[self._kept]
        self._plans: dict[int, list[NDArray[np.int64]]] = {}
        self._ends = [0]

    def batch(self, step: int, rank: int = 0, world: int = 1) -> TranslationBatch:
        """Give pairs ``rank``, ``rank + world``, ... of the global batch of optimizer step ``step`` (0-based).

        Where there are more processes than pairs, those without one are given the first, of which nothing counts.
        """
        pairs = self._pairs_of(step)
        if rank < len(pairs):
            return self.pairs(pairs[rank::world])
        first = self.pairs(pairs[:1])
        return replace(first, labels=torch.full_like(first.labels, IGNORED), n_targets=0)

    def n_tokens(self, step: int) -> int:
        """Count the target's tokens of the global batch, ends included."""
        return int(self._lengths[self._pairs_of(step), 1].sum())

    def n_batches(self, epoch: int) -> int:
        """Count the batches of an epoch."""
        return len(self._plan(epoch))

    def steps(self, epochs: float) -> int:
        """Count the batches of so many epochs, the last of which may be a part of one."""
        whole = int(epochs)
        steps = sum(self.n_batches(epoch) for epoch in range(whole))
        return steps + round((epochs - whole) * self.n_batches(whole) if epochs > whole else 0)

    def pairs(self, numbers: NDArray[np.int64]) -> TranslationBatch:
        """Give the pairs of these numbers, at least one, of those that are kept."""
        lengths = self._lengths[numbers]
        n_source, n_target = lengths.max(0)
        source = np.full((len(numbers), n_source), self._pad, dtype=np.int64)
        target = np.full((len(numbers), n_target), self._pad, dtype=np.int64)
        labels = np.full((len(numbers), n_target), IGNORED, dtype=np.int64)
        for row, pair in enumerate(self._kept[numbers]):
            first, middle, last = self._bounds[2 * pair : 2 * pair + 3]
            source[row, : middle - first], source[row, middle - first] = self.split.ids[first:middle], self._end
            words, n_words = self.split.ids[middle:last], last - middle
            target[row, 0], target[row, 1 : n_words + 1] = self._first, words
            labels[row, :n_words], labels[row, n_words] = words, self._end
        mask = np.arange(n_source) < lengths[:, :1]
        return TranslationBatch(
            torch.from_numpy(source),
            None if mask.all() else torch.from_numpy(mask),
            torch.from_numpy(target),
            torch.from_numpy(labels),
            int(lengths[:, 1].sum()),
        )

    @property
    def n_pairs(self) -> int:
        """Count the pairs that are kept."""
        return len(self._kept)

    @property
    def lengths(self) -> NDArray[np.int64]:
        """Tokens of both sides of each pair that is kept, ends included: [N, 2]."""
        return self._lengths

    def _pairs_of(self, step: int) -> NDArray[np.int64]:
        while step >= self._ends[-1]:
            self._ends.append(self._ends[-1] + self.n_batches(len(self._ends) - 1))
        epoch = bisect_right(self._ends, step) - 1
        return self._plan(epoch)[step - self._ends[epoch]]

    def _plan(self, epoch: int) -> list[NDArray[np.int64]]:
        if epoch not in self._plans:
            # Remembered for speed alone, the last two.
            self._plans = {known: plan for known, plan in self._plans.items() if known == epoch - 1}
            ties = roots(self._seed, Purpose.PAIR_ORDER, epoch, self.n_pairs)
            longer, difference = self._lengths.max(1), self._lengths[:, 0] - self._lengths[:, 1]
            # Back and forth, so that pairs which meet where the longer side grows have about the same other side.
            order = np.lexsort((ties, np.where(longer % 2 == 0, difference, -difference), longer))
            batches = fill(longer[order], self._batch_tokens)
            places = np.argsort(roots(self._seed, Purpose.BATCH_ORDER, epoch, len(batches)), kind="stable")
            self._plans[epoch] = [order[slice(*batches[place])] for place in places]
        return self._plans[epoch]


def side_bounds(split: Split) -> NDArray[np.int64]:
    """Give where in a split's ids each side of each pair begins, sources before targets, and the end: [2 N + 1]."""
    assert split.sentence_starts is not None, "the text was stored as pairs"
    return np.append(split.sentence_starts, len(split.ids))


def side_lengths(split: Split) -> NDArray[np.int64]:
    """Count the tokens of both sides of each pair of a split, ends included: [N, 2]."""
    lengths: NDArray[np.int64] = np.diff(side_bounds(split)).reshape(-1, 2) + 1
    return lengths


def fill(widths: NDArray[np.int64], batch_tokens: int) -> list[tuple[int, int]]:
    """Cut a row of pairs into runs of which the number times the widest is at most ``batch_tokens``, or one pair."""
    runs, start, widest = [], 0, 0
    for place, width in enumerate(widths.tolist()):
        widest = max(widest, width)
        if widest * (place + 1 - start) > batch_tokens and place > start:
            runs.append((start, place))
            start, widest = place, width
    return [*runs, (start, len(widths))]
