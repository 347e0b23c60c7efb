"""Counter-based random numbers: stateless, and the same bits in every version of numpy.

Philox derives a 64-bit seed per item (document, sentence) from (seed, purpose, epoch, item). The
draws of an item are forked from its seed alone, independent of other items' draws.
"""

from bisect import bisect_right
from collections.abc import Callable
from enum import IntEnum
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from sublayer.errors import DataError
from sublayer.files.arrays import Floats, Ints

Bits = NDArray[np.uint64]
"""64 random bits for each item, ``[N]``."""

_WORD = 1 << 64
_MOST_DRAWS = 1 << 32
"""Length of the counter range of an item's generator."""
# The constants of SplitMix64.
_STEP = np.uint64(0x9E3779B97F4A7C15)
_FIRST_FACTOR = np.uint64(0xBF58476D1CE4E5B9)
_SECOND_FACTOR = np.uint64(0x94D049BB133111EB)
_FIRST_SHIFT = np.uint64(30)
_SECOND_SHIFT = np.uint64(27)
_LAST_SHIFT = np.uint64(31)

_WORD_BITS = 64


class Purpose(IntEnum):
    """Purpose of a random number: purposes that share a seed and an epoch are independent."""

    WINDOWS = 1
    WINDOW_ORDER = 2
    CHUNKS = 3
    SENTENCES = 4
    EXAMPLE_ORDER = 5
    MASKS = 6
    PAIR_ORDER = 7
    BATCH_ORDER = 8
    DOCUMENT_ORDER = 9
    NOISE = 10
    TEXT_ORDER = 11
    ANSWERS = 12


def seeds(seed: int, purpose: Purpose, epoch: int, count: int) -> Bits:
    """Draw a seed of 64 random bits for each of ``count`` items, ``[N]``.

    The first items have the same seeds whatever ``count`` is.
    """
    philox = np.random.Philox(key=_key(seed, purpose), counter=epoch * _WORD)
    drawn = philox.random_raw(count)
    return np.asarray(drawn, dtype=np.uint64)


def generator(seed: int, purpose: Purpose, epoch: int, number: int) -> np.random.Generator:
    """Return a numpy generator for item ``number`` of an epoch, for many draws per item.

    It depends only on (seed, purpose, epoch, number), and shares no draws with other items.
    """
    # Items have disjoint ranges of the counter.
    counter = epoch * _WORD + number * _MOST_DRAWS
    philox = np.random.Philox(key=_key(seed, purpose), counter=counter)
    return np.random.Generator(philox)


def _key(seed: int, purpose: Purpose) -> int:
    # Philox' key has two words.
    low = seed % _WORD
    return low + purpose * _WORD


def fork(bits: Bits, numbers: Ints | int) -> Bits:
    """Return output ``numbers`` (from 0) of SplitMix64 generators seeded with ``bits``.

    A single number applies to all generators, ``[N]`` numbers to one generator each.

    Source: Steele, Lea and Flood 2014, fig. 17.
    """
    n_steps = np.atleast_1d(numbers).astype(np.uint64)
    n_steps = n_steps + np.uint64(1)
    # Products and sums wrap around, modulo 2**64.
    state: Bits = bits + _STEP * n_steps
    state ^= state >> _FIRST_SHIFT
    state *= _FIRST_FACTOR
    state ^= state >> _SECOND_SHIFT
    state *= _SECOND_FACTOR
    state ^= state >> _LAST_SHIFT
    return state


def uniform(bits: Bits) -> Floats:
    """Convert bits into floats, uniform in [0, 1): multiples of 2**-53."""
    # A double has 53 bits of precision: the upper ones, the best mixed.
    mantissas = bits >> np.uint64(11)
    return mantissas.astype(np.float64) * 2.0**-53


def below(bits: Bits, limits: Ints | int) -> Ints:
    """Convert bits into integers, uniform in [0, ``limits``); 0 where the limit is 0.

    The distribution is uniform as long as limits are far below 2**53.
    """
    scaled = uniform(bits) * limits
    return scaled.astype(np.int64)


def binomial(bits: Bits, n_flips: Ints) -> Ints:
    """Draw for each seed the number of heads among ``n_flips`` [N] flips of a fair coin."""
    # A flip is a bit: 64-bit words are forked per seed, and their set bits counted.
    n_words = (
        n_flips + _WORD_BITS - 1
    ) // _WORD_BITS  # [N]: the last may have more bits than flips
    owners = np.repeat(np.arange(len(bits)), n_words)  # [W]: per word, like all below
    numbers = np.arange(len(owners)) - (np.cumsum(n_words) - n_words)[owners]
    # The shift drops surplus bits of an item's last word.
    n_unused = np.where(numbers == n_words[owners] - 1, -n_flips[owners] % _WORD_BITS, 0)
    used = fork(bits[owners], numbers) >> n_unused.astype(np.uint64)
    n_heads = np.bincount(owners, weights=np.bitwise_count(used), minlength=len(bits))  # [N]
    return n_heads.astype(np.int64)


def random_order(seed: int, purpose: Purpose, epoch: int, count: int) -> Ints:
    """Return the numbers of ``count`` items in random order, ``[N]``: sorted by their seeds."""
    return np.argsort(seeds(seed, purpose, epoch, count), kind="stable")


Plan = TypeVar("Plan")
_EMPTY_EPOCHS = 64
"""Number of epochs without an item after which the text is taken to have none."""


class Epochs(Generic[Plan]):
    """Plans of epochs, created on demand; the last two are cached for speed.

    ``count`` counts the items of a plan; items are numbered through all epochs. ``empty`` is the
    error message when there are no items. Epochs for which ``same`` returns the same number have
    equally many items, and are counted once.
    """

    def __init__(
        self,
        make: Callable[[int], Plan],
        count: Callable[[Plan], int] | None = None,
        empty: str = "the text gives no example: give a longer one",
        same: Callable[[int], int] | None = None,
    ) -> None:
        self._make = make
        self._count = count
        self._empty = empty
        self._same = same
        self._counts: dict[int, int] = {}
        self._plans: dict[int, Plan] = {}
        self.ends = [0]
        """Number of items before each counted epoch, and after the last of them."""

    def plan(self, epoch: int) -> Plan:
        """Return the plan of an epoch, 0-based."""
        if epoch not in self._plans:
            previous = self._plans.get(epoch - 1)
            # Dropped first, so that at most two plans are in memory.
            self._plans.clear()
            if previous is not None:
                self._plans[epoch - 1] = previous
            self._plans[epoch] = self._make(epoch)
        return self._plans[epoch]

    def locate(self, item: int) -> tuple[int, int]:
        """Return the epoch of an item, by its number through all epochs, and its number therein.

        Raises DataError where 64 epochs in a row have no item.
        """
        assert self._count is not None, "items are counted"
        while item >= self.ends[-1]:
            epoch = len(self.ends) - 1
            same = epoch if self._same is None else self._same(epoch)
            if same not in self._counts:
                self._counts[same] = self._count(self.plan(epoch))
            self.ends.append(self.ends[-1] + self._counts[same])
            if self.ends[-_EMPTY_EPOCHS - 1 : -_EMPTY_EPOCHS] == self.ends[-1:]:
                raise DataError(self._empty)
        epoch = bisect_right(self.ends, item) - 1
        return epoch, item - self.ends[epoch]

    def take(self: "Epochs[Ints]", numbers: Ints, size: int) -> Ints:
        """Return the items with ``numbers`` through all epochs; each plan orders ``size`` items.

        Consecutive items may end one epoch and begin the next.
        """
        epochs, items = np.divmod(numbers, size)
        for epoch in np.unique(epochs).tolist():
            is_of_epoch = epochs == epoch
            items[is_of_epoch] = self.plan(epoch)[items[is_of_epoch]]
        return items

    def start(self, epoch: int) -> int:
        """Count the items before an epoch."""
        while len(self.ends) <= epoch:
            self.locate(self.ends[-1])
        return self.ends[epoch]
