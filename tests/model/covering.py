"""A covering design: few combinations of many axes in which every pair of values occurs."""

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Any

Setting = tuple[str, int]  # an axis and the number of its value
Pair = frozenset[Setting]
Axes = Mapping[str, Sequence[Any]]


def cover(axes: Axes, forbidden: Collection[Pair], n_rows: int) -> list[dict[str, Any]]:
    """Choose ``n_rows`` combinations without forbidden pairs, greedily, the rarest pairs of values first.

    A pair is forbidden too where it leaves no value of some third axis.

    The same arguments give the same rows. Raises ValueError where some allowed pair occurs in none of them.
    """
    barred = with_implied(axes, forbidden)
    chooser, counts = random.Random(0), Counter(dict.fromkeys(allowed_pairs(axes, barred), 0))
    rows = []
    for _ in range(n_rows):
        row = _row(axes, barred, counts, chooser)
        counts.update(_pairs(row))
        rows.append({name: axes[name][number] for name, number in row.items()})
    missing = [pair for pair, count in counts.items() if count == 0]
    if missing:
        raise ValueError(f"{len(missing)} pairs occur in none of {n_rows} rows, {sorted(missing[0])} for one")
    return rows


def allowed_pairs(axes: Axes, forbidden: Collection[Pair]) -> list[Pair]:
    """List every pair of values of two axes that is not forbidden."""
    settings = [[(name, number) for number in range(len(values))] for name, values in axes.items()]
    pairs = (
        frozenset(pair) for one, other in itertools.combinations(settings, 2) for pair in itertools.product(one, other)
    )
    return [pair for pair in pairs if pair not in set(forbidden)]


def with_implied(axes: Axes, forbidden: Collection[Pair]) -> set[Pair]:
    """Add the pairs that leave no value of some third axis, until there are no more of them."""
    barred = set(forbidden)
    while True:
        conflicts = _conflicts(barred)
        implied = {pair for pair in allowed_pairs(axes, barred) if _leaves_none(axes, conflicts, pair)}
        if not implied:
            return barred
        barred |= implied


def _conflicts(forbidden: Collection[Pair]) -> dict[Setting, set[Setting]]:
    found: dict[Setting, set[Setting]] = defaultdict(set)
    for one, other in map(tuple, forbidden):
        found[one].add(other)
        found[other].add(one)
    return found


def _leaves_none(axes: Axes, conflicts: Mapping[Setting, set[Setting]], settings: Collection[Setting]) -> bool:
    banned = set().union(*(conflicts.get(setting, ()) for setting in settings))
    n_banned = Counter(name for name, _ in banned)
    placed = {name for name, _ in settings}
    return any(n == len(axes[name]) for name, n in n_banned.items() if name not in placed)


def _row(axes: Axes, forbidden: set[Pair], counts: Counter[Pair], chooser: random.Random) -> dict[str, int]:
    """Start from a rarest pair and add the axes in random order, each with the value that makes the rarest pairs."""
    fewest, conflicts = min(counts.values()), _conflicts(forbidden)
    row = dict(chooser.choice(sorted(map(sorted, (pair for pair, n in counts.items() if n == fewest)))))
    names = [name for name in axes if name not in row]
    chooser.shuffle(names)
    for name in names:
        banned = set().union(*(conflicts.get(setting, ()) for setting in row.items()))
        free = [n for n in range(len(axes[name])) if (name, n) not in banned]
        fitting = [n for n in free if not _leaves_none(axes, conflicts, [*row.items(), (name, n)])]
        gains = [sum(4.0 ** -counts[pair] for pair in _with(row, (name, number))) for number in fitting]
        best = [number for number, gain in zip(fitting, gains, strict=True) if gain == max(gains)]
        row[name] = chooser.choice(best)
    return {name: row[name] for name in axes}


def _with(row: Mapping[str, int], setting: Setting) -> list[Pair]:
    return [frozenset((placed, setting)) for placed in row.items()]


def _pairs(row: Mapping[str, int]) -> list[Pair]:
    return [frozenset(pair) for pair in itertools.combinations(row.items(), 2)]
