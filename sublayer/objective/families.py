"""The kinds of objectives, each loaded when it is first used."""

from functools import cache
from importlib import import_module

from sublayer.config.objective import ObjectiveTable
from sublayer.config.recipe import OBJECTIVES, Recipe
from sublayer.objective.family import Family
from sublayer.text_model import TextModel

_CLASSES = {
    "causal": ("causal", "CausalFamily"),
    "masked": ("masked.family", "MaskedFamily"),
    "translation": ("translation.family", "TranslationFamily"),
    "span": ("span", "SpanFamily"),
    "supervised": ("supervised.family", "SupervisedFamily"),
}
"""Module and class of each kind of objective, by its name in a recipe."""
KINDS = tuple(_CLASSES)


@cache
def family(kind: str) -> Family:
    """Return a kind of objective by its name in a recipe; raise KeyError for another name."""
    module, name = _CLASSES[kind]
    loaded: Family = getattr(import_module(f"sublayer.objective.{module}"), name)()
    return loaded


def family_of(objective: ObjectiveTable) -> Family:
    """Return the kind of an objective."""
    return family(objective.kind)


def family_of_model(text_model: TextModel, recipe: Recipe | None) -> tuple[str, Family]:
    """Return the kind of a model's training objective, with its name.

    Outside a run: supervised for a model with a task; else the first kind that claims the model,
    or else that trains models of its kind.
    """
    if recipe is not None:
        kind = recipe.objective.kind
    elif text_model.task is not None:
        kind = "supervised"
    else:
        kinds = [
            name
            for name, row in OBJECTIVES.items()
            if text_model.model.config.kind in row.model_kinds
        ]
        claiming = [name for name in kinds if family(name).claims(text_model)]
        kind = (claiming or kinds)[0]
    return kind, family(kind)
