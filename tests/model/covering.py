"""A covering design: few combinations of many axes in which every pair of values occurs."""

import itertools
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

Setting = tuple[str, int]  # an axis and the number of its value
Pair = frozenset[Setting]
Axes = Mapping[str, Sequence[Any]]
Conflicts = Mapping[Setting, set[Setting]]
"""What each setting forbids."""


def cover(axes: Axes, forbidden: Collection[Pair], n_rows: int) -> list[dict[str, Any]]:
    """Choose ``n_rows`` combinations without forbidden pairs, greedily, the rarest pairs first.

    A pair is forbidden too where it leaves no value of some third axis.

    The same arguments give the same rows. Raises ValueError where some allowed pair occurs in none
    of them.
    """
    barred = with_implied(axes, forbidden)
    counts = Counter(dict.fromkeys(allowed_pairs(axes, barred), 0))
    chooser = random.Random(0)
    rows = []
    for _ in range(n_rows):
        row = _choose_row(axes, _conflicts(barred), counts, chooser)
        counts.update(frozenset(pair) for pair in itertools.combinations(row.items(), 2))
        rows.append({name: axes[name][number] for name, number in row.items()})
    missing = [sorted(pair) for pair, count in counts.items() if count == 0]
    if missing:
        raise ValueError(f"{len(missing)} pairs occur in none of {n_rows} rows: {missing[0]}")
    return rows


def allowed_pairs(axes: Axes, forbidden: Collection[Pair]) -> list[Pair]:
    """List every pair of values of two axes that is not forbidden."""
    settings = [[(name, number) for number in range(len(values))] for name, values in axes.items()]
    pairs = []
    for one, other in itertools.combinations(settings, 2):
        pairs += [frozenset(pair) for pair in itertools.product(one, other)]
    barred = set(forbidden)
    return [pair for pair in pairs if pair not in barred]


def with_implied(axes: Axes, forbidden: Collection[Pair]) -> set[Pair]:
    """Add the pairs that leave no value of some third axis, until there are no more of them."""
    barred = set(forbidden)
    while True:
        conflicts = _conflicts(barred)
        pairs = allowed_pairs(axes, barred)
        implied = {pair for pair in pairs if _leaves_none(axes, conflicts, pair)}
        if not implied:
            return barred
        barred |= implied


def _conflicts(forbidden: Collection[Pair]) -> Conflicts:
    found: dict[Setting, set[Setting]] = defaultdict(set)
    for one, other in forbidden:
        found[one].add(other)
        found[other].add(one)
    return found


def _banned(conflicts: Conflicts, settings: Iterable[Setting]) -> set[Setting]:
    """Return the settings that stand beside none of those given."""
    banned: set[Setting] = set()
    for setting in settings:
        banned |= conflicts.get(setting, set())
    return banned


def _leaves_none(axes: Axes, conflicts: Conflicts, settings: Collection[Setting]) -> bool:
    placed = {name for name, _ in settings}
    n_banned = Counter(name for name, _ in _banned(conflicts, settings))
    return any(n == len(axes[name]) for name, n in n_banned.items() if name not in placed)


def _choose_row(
    axes: Axes, conflicts: Conflicts, counts: Counter[Pair], chooser: random.Random
) -> dict[str, int]:
    """Start from a rarest pair and add the axes in random order, each with its best value."""
    fewest = min(counts.values())
    rarest = [sorted(pair) for pair, count in counts.items() if count == fewest]
    row = dict(chooser.choice(sorted(rarest)))
    names = [name for name in axes if name not in row]
    chooser.shuffle(names)
    for name in names:
        best = _best_settings(axes, conflicts, counts, row, name)
        row.update([chooser.choice(best)])
    return {name: row[name] for name in axes}


def _best_settings(
    axes: Axes, conflicts: Conflicts, counts: Counter[Pair], row: Mapping[str, int], name: str
) -> list[Setting]:
    """Return the values of an axis that make the rarest pairs with what a row has."""
    placed = list(row.items())
    banned = _banned(conflicts, placed)
    gains: dict[Setting, float] = {}
    for number in range(len(axes[name])):
        setting = (name, number)
        if setting not in banned and not _leaves_none(axes, conflicts, [*placed, setting]):
            gains[setting] = sum(4.0 ** -counts[frozenset((each, setting))] for each in placed)
    best = max(gains.values())
    return [setting for setting, gain in gains.items() if gain == best]
