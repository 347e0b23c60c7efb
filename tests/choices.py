"""A table of the program with a row of the test's own, whose name the field then allows."""

from typing import Literal

from sublayer.config.model import ModelConfig
from sublayer.config.recipe import Recipe
from sublayer.config.resolved import ResolvedModel, ResolvedRecipe


def allow_choices(field, *names):
    for model in (ModelConfig, ResolvedModel):
        model.model_fields[field].annotation = Literal[names]
        model.model_rebuild(force=True)
    for recipe in (Recipe, ResolvedRecipe):
        recipe.model_rebuild(force=True)
