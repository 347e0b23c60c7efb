"""Division of examples into training and held-out selection."""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from sublayer.tasks.task import Example

_Class = int | bool
"""A label or the index of a choice; without one, whether there are answers."""


def held_out(examples: Sequence[Example], share: float, at_most: int) -> NDArray[np.bool_]:
    """Select the held-out examples: a share, and at most ``at_most``.

    Examples of one source, one group or equal texts stay together. These bundles are taken in an
    order that depends only on their texts: first those that bring every class nearer to its share,
    then the sum. There may be fewer where sources are large, but at least one bundle, if there are
    two and ``at_most`` allows it.
    """
    assert 0 < share < 1, "the rest is trained on"
    result = np.zeros(len(examples), dtype=np.bool_)
    n_wanted = min(share * len(examples), at_most)
    if n_wanted <= 0:
        return result
    counts = Counter(map(_class, examples))
    wanted = {label: n_wanted * n / len(examples) for label, n in counts.items()}
    n_missing, n_allowed = n_wanted, at_most
    bundles = _bundles(examples)

    def change(rows: list[int], *, weighs_sum: bool = True) -> float:
        """Return the change of deviation from the shares, of classes and sum, by adding rows."""
        added = Counter(_class(examples[row]) for row in rows)
        of_classes = sum(abs(wanted[label] - n) - abs(wanted[label]) for label, n in added.items())
        return of_classes + (abs(n_missing - len(rows)) - abs(n_missing) if weighs_sum else 0.0)

    for weighs_sum in (False, True):
        for rows in bundles:
            if n_missing <= 0:
                break
            if result[rows[0]] or len(rows) > n_allowed:
                continue
            if change(rows, weighs_sum=weighs_sum) < 0:
                result[rows] = True
                n_missing -= len(rows)
                n_allowed -= len(rows)
                for class_, n in Counter(_class(examples[row]) for row in rows).items():
                    wanted[class_] -= n
    allowed = [rows for rows in bundles if len(rows) <= n_allowed]
    if not result.any() and allowed and len(bundles) > 1:
        result[min(allowed, key=change)] = True
    return result


def count_bundles(examples: Sequence[Example]) -> int:
    """Count the indivisible bundles of examples, by common texts, source or group."""
    return len(_bundles(examples))


def _class(example: Example) -> _Class:
    return example.label if isinstance(example.label, int) else bool(example.answers)


def _bundles(examples: Sequence[Example]) -> list[list[int]]:
    """Return the rows of each bundle, ordered by the least hash of their keys."""
    parents: dict[bytes, bytes] = {}
    keys = []
    for example in examples:
        roots = [_root(parents, key) for key in _keys(example)]
        least = min(roots)
        parents.update((root, least) for root in roots)
        keys.append(least)
    bundles = defaultdict(list)
    for row, key in enumerate(keys):
        bundles[_root(parents, key)].append(row)
    return [rows for _, rows in sorted(bundles.items())]


def _root(parents: dict[bytes, bytes], key: bytes) -> bytes:
    while (parent := parents.setdefault(key, key)) != key:
        parents[key] = parents[parent]
        key = parent
    return key


def _keys(example: Example) -> list[bytes]:
    """Return the hashes of an example's texts, whatever their order, its source and its group."""
    keys = [_hash("texts", *sorted([*example.fields.values(), *example.choices]))]
    if example.source:
        keys.append(_hash("source", example.source))
    if example.group:
        keys.append(_hash("group", example.group))
    return keys


def _hash(kind: str, *texts: str) -> bytes:
    written = kind + "".join([f"\n{len(text)}:{text}" for text in texts])
    return hashlib.blake2b(written.encode("utf-8", "surrogatepass"), digest_size=16).digest()
