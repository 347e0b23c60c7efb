"""Predict what was cut out of a text, token by token. Source: Raffel et al. 2020 (1910.10683)."""

from sublayer.config.objectives.span import SpanObjective
from sublayer.model.kernels.cross_entropy import Smoothing
from sublayer.model.transformer import Transformer
from sublayer.objective.targets.loss import TargetLoss


class SpanCorruption(TargetLoss):
    """The loss of what was cut out, sentinels and end included, with z-loss where asked for."""

    def __init__(self, model: Transformer, config: SpanObjective) -> None:
        smoothing = None
        if config.z_loss:
            smoothing = Smoothing(1.0, 0.0, config.z_loss)
        super().__init__(model, smoothing)
