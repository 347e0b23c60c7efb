"""Sentinels, which stand for the gaps of a text: their names, their ids, a text around them."""

import re
from collections.abc import Mapping

_NAME = re.compile(rb"<extra_id_(0|[1-9][0-9]*)>")


def sentinel_name(number: int) -> str:
    """Return the name of a sentinel, ``<extra_id_0>`` for the first."""
    return f"<extra_id_{number}>"


def names_behind(n_sentinels: int) -> list[str]:
    """List the names of sentinels that stand behind all other ids, counted down from the last."""
    return [sentinel_name(number) for number in reversed(range(n_sentinels))]


def find_sentinels(names: Mapping[str, int]) -> tuple[int, ...]:
    """Find the ids of sentinels by their names: the k-th is that of ``<extra_id_k>``.

    They end before the first that is missing.
    """
    ids: list[int] = []
    while (id_ := names.get(sentinel_name(len(ids)))) is not None:
        ids.append(id_)
    return tuple(ids)


def split_at_gaps(text: bytes) -> tuple[list[bytes], list[str]]:
    """Split a text at the names of sentinels; return what stands around them, and the names."""
    parts = _NAME.split(text)  # texts, and between them the numbers
    names = [f"<extra_id_{digits.decode()}>" for digits in parts[1::2]]
    return parts[::2], names
