"""Which items stand together in a row, so that few rows hold them all."""

from bisect import bisect_left, insort
from collections.abc import Sequence


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
