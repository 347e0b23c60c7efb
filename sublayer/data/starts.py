"""Where the sequences of a batch begin, for attention that has no padding and no masks."""

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from sublayer.data.arrays import Ints

_FEWEST = 2
"""Places of a row: one sequence, and padding."""


def sequence_starts(
    *sides: Int[Tensor, "R _"],
) -> tuple[Int[Tensor, " N"], ...]:
    """Find the first token of each sequence among the rows of a side, laid one behind another.

    A side has numbers of sequences that do not fall along a row, and -1 at the padding behind them,
    which is a sequence too. Sides have the sequences of a row in common. A row has equally many
    places for sequences in all rows and on all sides, the last one of padding; those that are left
    over are empty. It is a power of two, so that few batches differ in it. Behind all starts stands
    the number of tokens. In int32, as kernels ask for.
    """
    numbered = [_numbered(ids.numpy()) for ids in sides]
    most = max(int(numbers.max()) + 2 for numbers in numbered)
    n_places = max(_FEWEST, 1 << (most - 1).bit_length())
    return tuple(_starts(numbers, n_places) for numbers in numbered)


def _numbered(ids: Ints) -> Ints:
    """Number the sequences of each row from 0, [R, T]; padding stays -1."""
    begins = np.zeros(ids.shape, dtype=np.int64)
    begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
    return np.where(ids >= 0, begins.cumsum(1), -1)


def _starts(numbers: Ints, n_places: int) -> Tensor:
    n_rows = len(numbers)
    places = np.arange(n_rows)[:, None] * n_places + numbers % n_places
    lengths = np.bincount(places.ravel(), minlength=n_rows * n_places)
    starts = np.concatenate([[0], lengths.cumsum()])
    return torch.from_numpy(starts.astype(np.int32))
