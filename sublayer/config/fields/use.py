"""When a field has an effect, in words and as a test of a recipe."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sublayer.config.objectives.base import TextUse
from sublayer.config.objectives.kinds import OBJECTIVES
from sublayer.config.recipe import Recipe


@dataclass(frozen=True)
class Use:
    """When a field has an effect."""

    when: str
    """In words that follow "it counts only where"."""
    holds: Callable[[Recipe], bool]
    deciders: tuple[str, ...]
    """The fields that decide, as ``table.field``."""


def sibling_use(key: str, values: Sequence[Any]) -> Use:
    """Return the condition that another field has one of a few values."""
    words = " or ".join(str(value) for value in values)

    def holds(recipe: Recipe) -> bool:
        return value_of(key, recipe) in values

    return Use(f"{key} is {words}", holds, (key,))


def text_use(*texts: TextUse) -> Use:
    """Return the condition that the objective's batches are made of one of these texts."""
    kinds = [kind for kind, table in OBJECTIVES.items() if table.text in texts]
    words = " or ".join(kinds)

    def holds(recipe: Recipe) -> bool:
        return recipe.objective.text in texts

    return Use(f"objective.kind is {words}", holds, ("objective.kind",))


def has_value(key: str, recipe: Recipe) -> bool:
    """Return whether a recipe's tables have a field, ``table.field`` or a heading."""
    table, dot, name = key.rpartition(".")
    return not dot or name in type(getattr(recipe, table)).model_fields


def value_of(key: str, recipe: Recipe) -> Any:
    """Return the value of ``table.field``, or of a heading, in a recipe."""
    value: Any = recipe
    for name in key.split("."):
        value = getattr(value, name)
    return value
