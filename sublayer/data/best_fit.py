"""Which items stand together in a row, so that few rows hold them all."""

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Sequence

import numpy as np

from sublayer.data.arrays import Ints


def n_that_fit(sizes: Ints, n_pieces: Ints, n_rows: int, width: int) -> int:
    """Count the items, from the first on, that best fit puts into ``n_rows`` rows of ``width``.

    An item is one at least. One that is larger than a row has as many rows as pieces.
    """
    is_larger = sizes > width
    taken = np.cumsum(np.where(is_larger, n_pieces * width, sizes))
    n_items = max(1, int(np.searchsorted(taken, n_rows * width, side="right")))
    while n_items > 1:
        larger = is_larger[:n_items]
        needed = int(n_pieces[:n_items][larger].sum())
        needed += n_best_fit(sizes[:n_items][~larger], width)
        if needed <= n_rows:
            break
        n_items = max(1, min(n_items - 1, n_items * n_rows // needed))
    return n_items


def n_best_fit(sizes: Ints, width: int) -> int:
    """Count the rows of ``best_fit`` for items of one side, none of which is larger than a row.

    Items of one size are put in together: a row that one fits best takes the next ones too.
    """
    n_rows = 0
    rooms: list[int] = []
    n_with: Counter[int] = Counter()
    """How many rows have so much room left."""

    def add(room: int, n: int) -> None:
        if room and n:
            if not n_with[room]:
                insort(rooms, room)
            n_with[room] += n

    values, counts = np.unique(sizes, return_counts=True)
    for size, n_left in zip(values[::-1].tolist(), counts[::-1].tolist(), strict=True):
        while n_left:
            place = bisect_left(rooms, size)
            if place < len(rooms):
                room = rooms.pop(place)
                n_open = n_with.pop(room)
            else:
                room = width
                n_open = -(-n_left // (width // size))
                n_rows += n_open
            n_each = room // size
            n_full = min(n_open, n_left // n_each)
            n_last = n_left - n_full * n_each if n_full < n_open else 0
            n_left -= n_full * n_each + n_last
            add(room - n_each * size, n_full)
            add(room - n_last * size, 1 if n_last else 0)
            add(room, n_open - n_full - (1 if n_last else 0))
    return n_rows


def best_fit(sizes: Sequence[tuple[int, int]], room: tuple[int, int]) -> list[list[int]]:
    """Put each item, the longest first, into the row where it leaves the least room on either side.

    ``sizes`` are tokens of both sides. An item that is larger than a row has one to itself. Rows of
    one item, which need no mask inside, stand before the others; of either kind the fullest first.
    """
    rows: list[list[int]] = []
    # The room left in a row on the first side, its number, and the room on the second; ascending.
    rooms: list[tuple[int, int, int]] = []
    longest_first = sorted(range(len(sizes)), key=lambda index: (-sizes[index][0], index))
    for index in longest_first:
        read, written = sizes[index]
        place = bisect_left(rooms, (read, -1, -1))
        while place < len(rooms) and rooms[place][2] < written:
            place += 1
        if place < len(rooms):
            left, row, left_written = rooms.pop(place)
        else:
            left, left_written = room
            row = len(rows)
            rows.append([])
        rows[row].append(index)
        if left > read:
            insort(rooms, (left - read, row, left_written - written))

    def order(row: list[int]) -> tuple[bool, int]:
        return len(row) > 1, -sum(sizes[index][0] for index in row)

    return sorted(rows, key=order)
