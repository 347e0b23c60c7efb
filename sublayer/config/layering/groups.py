"""The shipped recipes in groups, as their files say where they belong."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sublayer.config.layering.sources import find_source, read_toml, shipped_recipes

OTHERS = "others"
"""The group of a recipe that names none, nor does any that it extends."""


@dataclass(frozen=True)
class ShippedRecipe:
    """What a shipped recipe's file says of itself."""

    name: str
    title: str
    source: str
    cost: str
    group: str
    place: int
    """Where it stands in its group: the lowest first, and by name where they are equal."""


def grouped_recipes() -> dict[str, list[ShippedRecipe]]:
    """Return the shipped recipes by group, in the order in which they are shown.

    A recipe is of the group of the recipe that it extends, unless it names one. The group with the
    lowest place comes first; groups that have none follow by name.
    """
    recipes = sorted(map(shipped_recipe, shipped_recipes()), key=_order)
    groups: dict[str, list[ShippedRecipe]] = {}
    for recipe in recipes:
        groups.setdefault(recipe.group, []).append(recipe)
    return groups


def shipped_recipe(name: str) -> ShippedRecipe:
    """Read what a shipped recipe says of itself. Raises ConfigError where its file is no TOML."""
    own = _read(name)
    placed = own
    while "group" not in placed and "extends" in placed:
        placed = _read(str(placed["extends"]))
    return ShippedRecipe(
        name=name,
        title=str(own["title"]),
        source=str(own["source"]),
        cost=str(own["cost"]),
        group=str(placed.get("group", OTHERS)),
        place=int(own.get("place", placed.get("place", sys.maxsize))),
    )


def _read(name: str) -> Mapping[str, Any]:
    return read_toml(find_source(name).path)


def _order(recipe: ShippedRecipe) -> tuple[int, str, str]:
    return (recipe.place, recipe.group, recipe.name)
