"""The objective that a recipe asks for, around a model."""

from sublayer.config.objective import CausalObjective, MaskedObjective, ObjectiveConfig
from sublayer.model.transformer import Transformer
from sublayer.objective.causal import Causal
from sublayer.objective.masked import Masked
from sublayer.objective.terms import Objective
from sublayer.objective.translation import Translation


def build_objective(model: Transformer, config: ObjectiveConfig, *, seed: int = 0) -> Objective:
    """Put a model into its objective; ``seed`` is that of heads which only training needs."""
    if isinstance(config, CausalObjective):
        return Causal(model, config, seed=seed)
    if isinstance(config, MaskedObjective):
        return Masked(model, config)
    return Translation(model, config)
