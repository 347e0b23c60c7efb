"""Segment pairs: the rule that forms them, their token ranges, and how they are trimmed to fit."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sublayer.data.arrays import Ints
from sublayer.data.counter_rng import Bits, binomial, fork
from sublayer.errors import ConfigError

N_SPECIAL = 3
"""Tokens of an input that are not of its sentences: one before A, one after A, one after B."""

UNLABELLED, IN_ORDER, OUT_OF_ORDER = -1, 0, 1
"""Labels: nothing to tell; B follows A; A and B are swapped, or B is from elsewhere."""


class Drawn(IntEnum):
    """What is drawn for an example, each from a fork of its seed.

    Seeded runs depend on the numbers: a new one goes to the end.
    """

    TARGET = 0
    CUT = 1
    COIN = 2
    DOCUMENT = 3
    SENTENCE = 4
    SHARE = 5
    TRIM_A = 6
    TRIM_B = 7


@dataclass(frozen=True)
class PairRule:
    """How chunks of consecutive sentences become pairs, and what is predicted of a pair.

    A chunk is filled up to a target: ``max_len`` less three special tokens, or, with ``p_short``, a
    uniform length from 2 tokens to that.

    Raises ConfigError for a number out of range, and for ``alone = negative`` without a task.
    Source: Lan et al. 2020, sec. 3.1; Devlin et al. 2019, appendix A.2; as released.
    """

    task: Literal["none", "nsp", "sop"]
    """In half of the pairs, ``sop`` swaps A and B, ``nsp`` takes B from another document; ``none``
    keeps them in order, unlabelled."""
    max_len: int = 512
    """Tokens of an example, the special ones included; at least 5."""
    p_short: float = 0.1
    target_per: Literal["example", "document"] = "example"
    """A target is drawn for each example, or once per document and epoch (ALBERT as released)."""
    alone: Literal["keep", "negative", "drop"] = "keep"
    """What a chunk of a single sentence gives: A alone, unlabelled; a pair with a B from another
    document (ALBERT as released, in both tasks: in ``sop`` its label can be told by topic); or
    nothing."""
    negatives: Literal["others", "anywhere"] = "others"
    """Where a corpus has a single document, ``anywhere`` takes such a B from elsewhere in it, at
    least ``max_len`` tokens from A where there is one; ``others`` is an error there."""

    def __post_init__(self) -> None:
        if self.max_len < N_SPECIAL + 2:
            raise ConfigError(
                f"max_len = {self.max_len} must be at least 5: "
                "three special tokens and two of sentences"
            )
        if not 0 <= self.p_short <= 1:
            raise ConfigError(f"p_short = {self.p_short} must be from 0 to 1")
        if self.task == "none" and self.alone == "negative":
            raise ConfigError(
                "alone = negative contradicts task = none, which has no labels; use keep or drop"
            )

    @property
    def budget(self) -> int:
        """Most tokens of A and B together."""
        return self.max_len - N_SPECIAL


class Pairs(NamedTuple):
    """Examples as ranges of token positions [P].

    A stands first in the input; B is empty where A is alone.
    """

    a_start: Ints
    a_stop: Ints
    b_start: Ints
    b_stop: Ints
    label: NDArray[np.int8]
    """0 where B follows A, 1 where they are swapped or B is from elsewhere, -1: not predicted."""

    @property
    def n_pairs(self) -> int:
        """Number of examples."""
        return len(self.label)

    @property
    def a_length(self) -> Ints:
        """Tokens of A [P]."""
        return self.a_stop - self.a_start

    @property
    def b_length(self) -> Ints:
        """Tokens of B [P]."""
        return self.b_stop - self.b_start


def trimmed_lengths(pairs: Pairs, budget: int) -> tuple[Ints, Ints]:
    """Compute the lengths of A and B, [P] each, after tokens are dropped from the longer one.

    One token at a time is dropped, from B where they are equally long, until ``budget`` tokens are
    left of both together. Source: Lan et al. 2020, as released; without its loop.
    """
    half = budget // 2
    # Each has its half, A the odd token, and what the other leaves of its own.
    a_limit = np.maximum(budget - half, budget - pairs.b_length)
    b_limit = np.maximum(half, budget - pairs.a_length)
    a_length = np.minimum(pairs.a_length, a_limit)
    b_length = np.minimum(pairs.b_length, b_limit)
    return a_length, b_length


def trim(pairs: Pairs, a_length: Ints, b_length: Ints, bits: Bits) -> Pairs:
    """Trim segments to lengths [P], each token from the front or the back by a coin."""
    # Of the tokens that are dropped, those that go from the front.
    n_from_a = binomial(fork(bits, Drawn.TRIM_A), pairs.a_length - a_length)
    n_from_b = binomial(fork(bits, Drawn.TRIM_B), pairs.b_length - b_length)
    a_start = pairs.a_start + n_from_a
    b_start = pairs.b_start + n_from_b
    return Pairs(
        a_start=a_start,
        a_stop=a_start + a_length,
        b_start=b_start,
        b_stop=b_start + b_length,
        label=pairs.label,
    )
