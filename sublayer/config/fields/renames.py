"""Renamed fields of a recipe, for messages to users and for recipes that earlier runs wrote."""

from collections.abc import Mapping
from typing import Any

RENAMED: dict[str, str] = {
    "data.longest_words": "data.max_words",
    "data.words_ratio": "data.max_words_ratio",
    "objective.alone": "objective.single_sentence",
    "objective.mask_most": "objective.max_predictions",
    "objective.ngram_longest": "objective.max_ngram",
}
"""Each field that once had another name: the old ``table.field`` to the new one."""


def current_name(key: str) -> str:
    """Return a field's current name, whether ``key`` is its old one or its new one."""
    return RENAMED.get(key, key)


def with_current_names(values: Mapping[str, Any], *, table: str = "") -> dict[str, Any]:
    """Return the values by the current names of their fields, in the same order.

    The keys are ``table.field``, or the fields of ``table`` where that is given. An old name stays
    where the new one stands beside it: the program never wrote both.
    """
    prefix = f"{table}." if table else ""
    renamed: dict[str, Any] = {}
    for key, value in values.items():
        name = current_name(f"{prefix}{key}").removeprefix(prefix)
        if name in values:
            name = key
        renamed[name] = value
    return renamed
