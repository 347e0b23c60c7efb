"""A covering design: few combinations of many axes in which every pair of values occurs."""

import itertools
import random
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

Setting = tuple[str, int]  # an axis and the number of its value
Pair = frozenset[Setting]
Axes = Mapping[str, Sequence[Any]]


def cover(axes: Axes, forbidden: Collection[Pair], n_rows: int) -> list[dict[str, Any]]:
    """Choose ``n_rows`` combinations without forbidden pairs, greedily, the rarest pairs of values first.

    The same arguments give the same rows. Raises ValueError where some allowed pair occurs in none of them.
    """
    chooser, counts = random.Random(0), Counter(dict.fromkeys(allowed_pairs(axes, forbidden), 0))
    rows = []
    for _ in range(n_rows):
        row = _row(axes, set(forbidden), counts, chooser)
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


def _row(axes: Axes, forbidden: set[Pair], counts: Counter[Pair], chooser: random.Random) -> dict[str, int]:
    """Start from a rarest pair and add the axes in random order, each with the value that makes the rarest pairs."""
    fewest = min(counts.values())
    row = dict(chooser.choice(sorted(map(sorted, (pair for pair, n in counts.items() if n == fewest)))))
    names = [name for name in axes if name not in row]
    chooser.shuffle(names)
    for name in names:
        fitting = [n for n in range(len(axes[name])) if not any(pair in forbidden for pair in _with(row, (name, n)))]
        gains = [sum(4.0 ** -counts[pair] for pair in _with(row, (name, number))) for number in fitting]
        best = [number for number, gain in zip(fitting, gains, strict=True) if gain == max(gains)]
        row[name] = chooser.choice(best)
    return {name: row[name] for name in axes}


def _with(row: Mapping[str, int], setting: Setting) -> list[Pair]:
    return [frozenset((placed, setting)) for placed in row.items()]


def _pairs(row: Mapping[str, int]) -> list[Pair]:
    return [frozenset(pair) for pair in itertools.combinations(row.items(), 2)]
