"""Random numbers as a function of what they are for: no state, and the same bits in every numpy version.

A root is 64 random bits of a thing (a document, a sentence), which Philox makes of (seed, purpose, epoch, thing). What
is drawn for the thing grows from its root alone, so that it does not depend on how many draws other things take.
"""

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

Bits = NDArray[np.uint64]

_WORD = 1 << 64
_MOST_DRAWS = 1 << 32
_STEP = np.uint64(0x9E3779B97F4A7C15)


class Purpose(IntEnum):
    """What is drawn for, which keeps apart what shares a seed and an epoch."""

    WINDOWS = 1
    WINDOW_ORDER = 2
    CHUNKS = 3
    SENTENCES = 4
    EXAMPLE_ORDER = 5
    MASKS = 6
    PAIR_ORDER = 7
    BATCH_ORDER = 8


def roots(seed: int, purpose: Purpose, epoch: int, count: int) -> Bits:
    """Draw 64 random bits for each of ``count`` things."""
    philox = np.random.Philox(key=seed % _WORD + purpose * _WORD, counter=epoch * _WORD)
    return np.asarray(philox.random_raw(count), dtype=np.uint64)


def generator(seed: int, purpose: Purpose, epoch: int, number: int) -> np.random.Generator:
    """Start numpy's generator for one of the things of an epoch, for what takes many draws."""
    philox = np.random.Philox(key=seed % _WORD + purpose * _WORD, counter=epoch * _WORD + number * _MOST_DRAWS)
    return np.random.Generator(philox)


def branch(bits: Bits, numbers: NDArray[np.int64] | int) -> Bits:
    """Give the ``numbers``-th (from 0) output of a generator that was started with ``bits``, for each of them.

    Source: SplitMix64, Steele, Lea and Flood 2014, fig. 17.
    """
    state: Bits = bits + _STEP * (np.atleast_1d(numbers).astype(np.uint64) + np.uint64(1))
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return state ^ (state >> np.uint64(31))


def uniform(bits: Bits) -> NDArray[np.float64]:
    """Turn bits into floats, uniform in [0, 1)."""
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def below(bits: Bits, limits: NDArray[np.int64] | int) -> NDArray[np.int64]:
    """Turn bits into integers, uniform from 0 on and below ``limits``; 0 where the limit is 0."""
    return (uniform(bits) * limits).astype(np.int64)


def heads(bits: Bits, n_flips: NDArray[np.int64]) -> NDArray[np.int64]:
    """Count the heads among ``n_flips`` flips of a fair coin, for each root: bits set among as many random bits."""
    n_words = (n_flips + 63) // 64
    firsts = np.cumsum(n_words) - n_words
    owners = np.repeat(np.arange(len(bits)), n_words)
    places = np.arange(len(owners)) - firsts[owners]
    flips = branch(bits[owners], places)
    unused = np.where(places == n_words[owners] - 1, -n_flips[owners] % 64, 0).astype(np.uint64)
    counts = np.bitwise_count(flips >> unused).astype(np.int64)
    return np.bincount(owners, weights=counts, minlength=len(bits)).astype(np.int64)
