"""How a text is cut into the pieces that are corrupted."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sublayer.data.arrays import AnyInts, Ints
from sublayer.data.batches import Boundaries
from sublayer.data.counter_rng import Purpose, below, fork, seeds
from sublayer.data.split import Split

SHORTEST = 2
"""Tokens of the shortest piece that can be corrupted: one of each kind."""


@dataclass(frozen=True)
class Joined:
    """Parts of a text, one after another."""

    firsts: Ints
    """Where each part begins in the text, ``[P]``."""
    bounds: Ints
    """Where each part begins among the joined ones, and the end of the last, ``[P + 1]``."""

    def positions(self, places: Ints) -> Ints:
        """Return where places among the joined parts are in the text."""
        parts = np.searchsorted(self.bounds, places, side="right") - 1
        offsets = places - self.bounds[parts]
        positions: Ints = self.firsts[parts] + offsets
        return positions

    @property
    def n_tokens(self) -> int:
        """Count the tokens of all parts."""
        return int(self.bounds[-1])


class Cuts(NamedTuple):
    """Pieces of joined parts."""

    begins: Ints
    """Where each begins, ``[N]``."""
    lengths: Ints
    """Their tokens, ``[N]``."""


def whole_documents(split: Split) -> Joined:
    """Join all documents of a split as they stand in it."""
    bounds = np.append(split.document_starts, len(split.ids))
    return Joined(split.document_starts, bounds)


def shuffled_documents(split: Split, seed: int, epoch: int, chunk_tokens: int) -> Joined:
    """Join the documents of a split in the order of an epoch, of each at most ``chunk_tokens``.

    A longer document is represented by one chunk, which begins at a random multiple of so many.

    Source: Raffel et al. 2020, as released (``select_random_chunk``, ``reduce_concat_tokens``).
    Departure: there 128 documents are joined at a time, and what their last piece lacks is filled
    up with others; here all documents of an epoch are.
    """
    starts = split.document_starts
    n_tokens = np.diff(np.append(starts, len(split.ids)))
    bits = seeds(seed, Purpose.DOCUMENT_ORDER, epoch, len(starts))
    order = np.argsort(fork(bits, 0), kind="stable")
    n_chunks = -(-n_tokens // chunk_tokens)
    offsets = below(fork(bits, 1), n_chunks) * chunk_tokens
    lengths = np.minimum(n_tokens - offsets, chunk_tokens)
    firsts = starts + offsets
    bounds = np.concatenate([[0], np.cumsum(lengths[order])])
    return Joined(firsts[order], bounds)


def cut(joined: Joined, length: int, boundaries: Boundaries) -> Cuts:
    """Cut joined documents into pieces of ``length``, the last of which may be shorter.

    Where ``boundaries`` are respected, each document is cut on its own, and each one's last piece
    may be shorter. What is too short to be corrupted is left out.
    """
    bounds = joined.bounds
    if boundaries == "ignore":
        bounds = bounds[[0, -1]]
    n_tokens = np.diff(bounds)  # [P]
    n_pieces = -(-n_tokens // length)  # [P]
    owners = np.repeat(np.arange(len(n_tokens)), n_pieces)  # [N]
    first_numbers = np.cumsum(n_pieces) - n_pieces  # [P]
    numbers = np.arange(len(owners)) - first_numbers[owners]
    begins = bounds[owners] + numbers * length
    lengths = np.minimum(bounds[owners + 1] - begins, length)
    is_long_enough = lengths >= SHORTEST
    return Cuts(begins[is_long_enough], lengths[is_long_enough])


def read_pieces(split: Split, joined: Joined, begins: Ints, length: int) -> AnyInts:
    """Read pieces of one length, ``[B, length]``, by where they begin among joined parts, [B]."""
    places = begins[:, None] + np.arange(length)
    ids: AnyInts = split.ids[joined.positions(places)]
    return ids
