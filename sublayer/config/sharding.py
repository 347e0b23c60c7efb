"""What ``train.shard`` does not go with."""

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
