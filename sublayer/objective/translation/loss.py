"""Predict a translation token by token, from its source and what was written so far.

Source: Vaswani et al. 2017 (1706.03762); label smoothing: Szegedy et al. 2016 (1512.00567), sec. 7.
"""

from sublayer.config.objectives.translation import TranslationObjective
from sublayer.model.kernels.cross_entropy import Smoothing
from sublayer.model.transformer import Transformer
from sublayer.objective.targets.loss import TargetLoss


class Translation(TargetLoss):
    """The loss of translations, smoothed as a recipe says."""

    def __init__(self, model: Transformer, config: TranslationObjective) -> None:
        vocab_size = model.config.vocab_size
        super().__init__(model, smoothing_of(config, vocab_size))


def smoothing_of(config: TranslationObjective, vocab_size: int) -> Smoothing | None:
    """Return the weights of a smoothed loss; None where nothing but nats is trained.

    uniform: a share ``e`` goes to every entry of the vocabulary alike, the target's own among them
    (fairseq of 2019, with which Macaron Net was trained; Szegedy et al.). others: ``e`` goes to the
    others (fairseq since).
    """
    share, z = config.label_smoothing, config.z_loss
    if share == 0.0 and z == 0.0:
        return None
    if config.smoothing == "uniform":
        return Smoothing(1.0 - share, share / vocab_size, z)
    each = share / (vocab_size - 1)
    return Smoothing(1.0 - share - each, each, z)
