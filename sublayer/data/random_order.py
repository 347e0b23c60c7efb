"""Random orders of many items: a pure function of a seed, in a file where they are too many."""

from collections.abc import Iterator
from tempfile import TemporaryFile

import numpy as np

from sublayer.data.arrays import Ints
from sublayer.data.counter_rng import Bits, Purpose, seed_blocks, seeds
from sublayer.files.cache_folder import cache_folder

_MOST = 1 << 24
"""Items that are sorted in memory at once."""
_BLOCK = 1 << 20


def random_order(seed: int, purpose: Purpose, epoch: int, count: int) -> Ints:
    """Return the numbers of ``count`` items in random order, ``[N]``.

    They are sorted by their seeds. An order of more than 16 million is memory-mapped, from a file
    in the cache folder that has no name and goes with it.
    """
    if count <= _MOST:
        return np.argsort(seeds(seed, purpose, epoch, count), kind="stable")
    folder = cache_folder()
    folder.mkdir(parents=True, exist_ok=True)
    with TemporaryFile(dir=folder) as file:
        for part in _sorted_parts(seed, purpose, epoch, count):
            file.write(part.tobytes())
        file.flush()
        return np.memmap(file, dtype=np.int64, mode="r", shape=(count,)).view(np.ndarray)


def _sorted_parts(seed: int, purpose: Purpose, epoch: int, count: int) -> Iterator[Ints]:
    """Yield the order of the items whose seeds lie in one range after another."""
    n_parts = -(-count // _MOST)
    for part in range(n_parts):
        numbers: list[Ints] = []
        sort_keys: list[Bits] = []
        first = 0
        for block in seed_blocks(seed, purpose, epoch, count, _BLOCK):
            # As many ranges of equal length as parts, by the upper half of each seed.
            upper = (block >> np.uint64(32)).astype(np.int64)
            is_in = upper * n_parts >> 32 == part
            numbers.append(first + np.flatnonzero(is_in))
            sort_keys.append(block[is_in])
            first += len(block)
        order = np.argsort(np.concatenate(sort_keys), kind="stable")
        yield np.concatenate(numbers)[order]
