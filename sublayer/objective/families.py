"""The kinds of objectives that there are."""

from sublayer.config.objective import ObjectiveTable
from sublayer.config.recipe import OBJECTIVES, Recipe
from sublayer.model.transformer import Transformer
from sublayer.objective.causal import CAUSAL
from sublayer.objective.family import Family
from sublayer.objective.masked.family import MASKED
from sublayer.objective.span import SPAN
from sublayer.objective.supervised.family import SUPERVISED
from sublayer.objective.translation.family import TRANSLATION

FAMILIES: dict[str, Family] = {
    "causal": CAUSAL,
    "masked": MASKED,
    "translation": TRANSLATION,
    "span": SPAN,
    "supervised": SUPERVISED,
}
"""The row of each kind of objective, by its name in a recipe."""


def family_of_model(model: Transformer, recipe: Recipe | None) -> tuple[str, Family]:
    """Return the kind of objective that a model was trained by, and its row.

    Outside a run, that is the first kind which claims it, or else which trains models of its kind.
    """
    if recipe is not None:
        kind = recipe.objective.kind
        return kind, FAMILIES[kind]
    if model.task is not None:
        return "supervised", SUPERVISED
    kinds = [kind for kind, table in OBJECTIVES.items() if model.config.kind in table.model_kinds]
    claiming = [kind for kind in kinds if FAMILIES[kind].claims(model)]
    kind = (claiming or kinds)[0]
    return kind, FAMILIES[kind]


def family_of(objective: ObjectiveTable) -> Family:
    """Return the row of an objective's kind."""
    return FAMILIES[objective.kind]
