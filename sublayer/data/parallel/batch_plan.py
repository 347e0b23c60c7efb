"""Which pairs stand together in a batch: sorted by length, filled, shuffled, grouped into steps."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from sublayer.data.arrays import Ints
from sublayer.data.counter_rng import Bits, Purpose, seeds

BatchOrder = Literal["anew", "once"]


@dataclass(frozen=True)
class BatchRule:
    """How pairs are filled into the batches of an epoch.

    Pairs are sorted by length, equal ones at random, and filled into batches, which are shuffled.
    """

    tokens: int
    """Tokens of either side of a batch at most, padding and ends included."""
    multiple: int = 1
    """A batch has a multiple of so many pairs, where it has as many."""
    order: BatchOrder = "anew"
    """``anew``: batches are made in every epoch, sorted by the longer side. ``once``: an epoch has
    the batches of the first in another order, sorted by the source's length and then the target's
    (fairseq)."""
    parts: int = 1
    """Batches that a step takes together: those of several processes and of accumulation."""

    def steps(self, lengths: Ints, *, seed: int, epoch: int) -> list[Ints]:
        """Return the numbers of the pairs of each step of an epoch, of ``lengths`` [N, 2].

        The last step may have fewer parts.
        """
        made_in = 0 if self.order == "once" else epoch
        ties = seeds(seed, Purpose.PAIR_ORDER, made_in, len(lengths))
        if self.order == "once":
            # The last key is the first to sort by.
            pairs = np.lexsort((ties, lengths[:, 1], lengths[:, 0]))
        else:
            pairs = _sorted_by_longer(lengths, ties)
        widths = lengths[pairs].max(1)
        runs = fill(widths, self.tokens, self.multiple)
        sort_keys = seeds(seed, Purpose.BATCH_ORDER, epoch, len(runs))
        batches = []
        for index in np.argsort(sort_keys, kind="stable"):
            start, stop = runs[index]
            batches.append(pairs[start:stop])
        if self.parts == 1:
            return batches
        firsts = range(0, len(batches), self.parts)
        return [np.concatenate(batches[first : first + self.parts]) for first in firsts]


def fill(widths: Ints, batch_tokens: int, multiple: int = 1) -> list[tuple[int, int]]:
    """Cut a sequence of pairs into runs whose size times the widest is at most ``batch_tokens``.

    ``widths`` are tokens of the longer sides. Runs are given by their start and stop; one has one
    pair at least, however wide. A run of ``multiple`` pairs or more gives what is beyond a multiple
    to the next; the last keeps all. Widths of 3, 3, 4 and 9 fill runs of 8 tokens as (0, 2),
    (2, 3) and (3, 4). Source of the multiple: fairseq, ``batch_by_size``.
    """
    runs = []
    start = 0
    widest = 0
    for index, width in enumerate(widths.tolist()):
        widest = max(widest, width)
        n_pairs = index - start
        if widest * (n_pairs + 1) > batch_tokens and n_pairs:
            stop = start + _rounded(n_pairs, multiple)
            runs.append((start, stop))
            start = stop
            widest = int(widths[start : index + 1].max())
    runs.append((start, len(widths)))
    return runs


def _rounded(n_pairs: int, multiple: int) -> int:
    beyond = n_pairs % multiple
    return n_pairs - beyond if n_pairs > beyond else n_pairs


def _sorted_by_longer(lengths: Ints, ties: Bits) -> Ints:
    longer = lengths.max(1)
    difference = lengths[:, 0] - lengths[:, 1]
    # Back and forth, so that pairs which meet where the longer side grows have about the
    # same other side.
    zigzag = np.where(longer % 2 == 0, difference, -difference)
    return np.lexsort((ties, zigzag, longer))
