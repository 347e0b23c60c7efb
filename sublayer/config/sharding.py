"""What ``train.shard`` does not go with."""

from sublayer.config.optimizers.adafactor import AdafactorConfig
from sublayer.config.recipe import Recipe
from sublayer.errors import ConfigError


def check_shard(recipe: Recipe) -> None:
    """Raise ConfigError, naming both fields, where a recipe cannot be trained in parts."""
    shard = recipe.train.shard
    if shard == "none":
        return
    if recipe.train.exact:
        raise ConfigError(
            f"train.shard = {shard} contradicts train.exact = true, which adds up gradients of "
            "whole copies: leave one of them out"
        )
    optimizer = recipe.optimizer
    field = ""
    if isinstance(optimizer, AdafactorConfig):
        field = "kind = adafactor"
    elif getattr(optimizer, "parameter_scale", False):
        field = "parameter_scale = true"
    if field:
        raise ConfigError(
            f"train.shard = {shard} contradicts optimizer.{field}, which takes means over whole "
            "matrices: give optimizer.kind = adamw, lamb or sgd"
        )
