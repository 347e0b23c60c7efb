"""Two segments of one input: the rule that makes them, where they lie in the text, and what is cut to make them fit."""

from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sublayer.data.draws import Bits, branch, heads
from sublayer.errors import ConfigError

N_SPECIAL = 3
"""Tokens of an input that are not of its sentences: one before A, one after A, one after B."""

UNLABELLED, IN_ORDER, OUT_OF_ORDER = -1, 0, 1
"""Labels: nothing to tell; B follows A; A and B are swapped, or B is from elsewhere."""


class Drawn(IntEnum):
    """What is drawn for an example, each from a branch of its bits."""

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
    """How chunks of consecutive sentences become pairs, and what is to be told of a pair.

    A chunk is filled up to a target: ``max_len`` less three special tokens, or, with ``p_short``, a uniform length from
    2 tokens to that, drawn for each example or once per document and epoch (ALBERT as released). ``task``: in half of
    the pairs, ``sop`` swaps A and B, ``nsp`` takes B from another document; ``none`` keeps them in order, unlabelled.
    ``alone``: what a chunk of a single sentence gives: A alone, unlabelled; a pair with a B from another document
    (ALBERT as released, in both tasks: in ``sop`` its label can be told by topic); or nothing.
    ``negatives``: where a corpus has a single document, ``anywhere`` takes such a B from elsewhere in it, at least
    ``max_len`` tokens from A where there is one.

    Raises ConfigError for a number out of range, and for negatives without a task.
    Source: Lan et al. 2020, sec. 3.1; Devlin et al. 2019, appendix A.2; as released.
    """

    task: Literal["none", "nsp", "sop"]
    max_len: int = 512
    p_short: float = 0.1
    target_per: Literal["example", "document"] = "example"
    alone: Literal["keep", "negative", "drop"] = "keep"
    negatives: Literal["others", "anywhere"] = "others"

    def __post_init__(self) -> None:
        if self.max_len < N_SPECIAL + 2:
            raise ConfigError(f"max_len = {self.max_len} must be at least 5: three special tokens and two of sentences")
        if not 0 <= self.p_short <= 1:
            raise ConfigError(f"p_short = {self.p_short} must be from 0 to 1")
        if self.task == "none" and self.alone == "negative":
            raise ConfigError("alone = negative contradicts task = none, which has no labels; use keep or drop")

    @property
    def budget(self) -> int:
        """Most tokens of A and B together."""
        return self.max_len - N_SPECIAL


class Pairs(NamedTuple):
    """Examples as ranges of token positions [P]: A stands first in the input; B is empty where A is alone.

    ``label``: 0 where B follows A, 1 where they are swapped or B is from elsewhere, -1 where nothing is to be told.
    """

    a_start: NDArray[np.int64]
    a_stop: NDArray[np.int64]
    b_start: NDArray[np.int64]
    b_stop: NDArray[np.int64]
    label: NDArray[np.int8]

    @property
    def n_pairs(self) -> int:
        """Number of examples."""
        return len(self.label)


def kept_tokens(pairs: Pairs, budget: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Count what stays of A and of B where one token at a time is dropped from the longer, from B where they are equal.

    Source: Lan et al. 2020, as released; without its loop.
    """
    a_length, b_length = pairs.a_stop - pairs.a_start, pairs.b_stop - pairs.b_start
    return (
        np.minimum(a_length, np.maximum(budget - budget // 2, budget - b_length)),
        np.minimum(b_length, np.maximum(budget // 2, budget - a_length)),
    )


def trimmed(pairs: Pairs, a_kept: NDArray[np.int64], b_kept: NDArray[np.int64], bits: Bits) -> Pairs:
    """Cut segments to the lengths they keep: each token dropped is the first or the last, by the flip of a coin."""
    a_start = pairs.a_start + heads(branch(bits, Drawn.TRIM_A), pairs.a_stop - pairs.a_start - a_kept)
    b_start = pairs.b_start + heads(branch(bits, Drawn.TRIM_B), pairs.b_stop - pairs.b_start - b_kept)
    return Pairs(a_start, a_start + a_kept, b_start, b_start + b_kept, pairs.label)
