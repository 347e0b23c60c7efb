"""Inputs and targets of a text of which some tokens are noise."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from sublayer.data.arrays import AnyInts, Bools, Ints


class Rows(NamedTuple):
    """Rows of ids of several lengths, one after another."""

    ids: Ints
    """``[N]``, those of the first row first."""
    lengths: Ints
    """``[B]``."""


class Corrupted(NamedTuple):
    """What an encoder reads of pieces, and what a decoder is to write, both without their end."""

    inputs: Rows
    targets: Rows


def corrupt(pieces: AnyInts, mask: Bools, sentinels: Sequence[int]) -> Corrupted:
    """Divide pieces ``[B, L]`` into inputs and targets by a mask, True at noise.

    In an input each run of noise gives way to a sentinel, the first run to the first sentinel. The
    target is made in the same way of the opposite mask: it holds the noise, and a sentinel for each
    run of what is not. Without sentinels both hold just their own tokens. Runs for which there is
    no sentinel are not noise.

    Source: Raffel et al. 2020, as released (``noise_span_to_unique_sentinel``,
    ``nonnoise_span_to_unique_sentinel``).
    """
    if not sentinels:
        return Corrupted(_select(pieces, ~mask), _select(pieces, mask))
    mask = limit_runs(mask, len(sentinels))
    names = np.asarray(sentinels, dtype=np.int64)
    return Corrupted(_replace_runs(pieces, mask, names), _replace_runs(pieces, ~mask, names))


def limit_runs(mask: Bools, most: int) -> Bools:
    """Return a mask with at most ``most`` runs of noise, and as many of what is not, in each row.

    Of rows with more, the last runs are not noise any more.
    """
    most_runs = np.maximum(_count_runs(mask), _count_runs(~mask))  # [B]
    exceeds = most_runs > most
    if not exceeds.any():
        return mask
    limited = mask.copy()
    rows = mask[exceeds]
    # One run less, since what is not noise may begin the row and end it.
    limited[exceeds] = rows & (_run_numbers(rows) < most - 1)
    return limited


def _replace_runs(pieces: AnyInts, mask: Bools, sentinels: Ints) -> Rows:
    begins = _begins(mask)
    numbers = np.cumsum(begins, axis=1) - 1
    ids = pieces.astype(np.int64)
    ids[begins] = sentinels[numbers[begins]]
    return _select(ids, begins | ~mask)


def _select(ids: AnyInts, is_kept: Bools) -> Rows:
    return Rows(ids[is_kept].astype(np.int64), np.count_nonzero(is_kept, axis=1))


def _begins(mask: Bools) -> Bools:
    """Return where runs of True begin."""
    begins = mask.copy()
    begins[:, 1:] &= ~mask[:, :-1]
    return begins


def _run_numbers(mask: Bools) -> Ints:
    """Return the number of the last run of True that began, from 0, at each place."""
    numbers: Ints = np.cumsum(_begins(mask), axis=1) - 1
    return numbers


def _count_runs(mask: Bools) -> Ints:
    counts: Ints = np.count_nonzero(_begins(mask), axis=1)
    return counts
