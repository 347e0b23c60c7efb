"""Training and validation loss at the end of an arm's runs, and the gap between them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sublayer.objective.metric import Metric
from sublayer.study.findings.run_curves import LOSS
from sublayer.study.results import ArmResult


@dataclass(frozen=True)
class FinalLosses:
    """Losses at the last evaluation, in nats: means over the seeds that have both; None without."""

    training: float | None
    """The mean over the steps since the evaluation before, with dropout and as weights change."""
    validation: float | None
    gap: float | None
    """Validation minus training: both are of the same nats, without smoothing and other terms."""


def final_losses(arm: ArmResult, metric: Metric) -> FinalLosses:
    """Read the losses at the end of an arm's curves; ``metric`` is the one that decides."""
    curves = arm.curves if metric.name == LOSS else arm.further_curves.get(LOSS, ())
    valid = {curve.seed: curve for curve in curves}
    ends = []
    for trained in arm.training_curves:
        curve = valid.get(trained.seed)
        if curve is not None and curve.steps[-1] == trained.steps[-1]:
            ends.append((trained.values[-1], curve.values[-1]))
    if not ends:
        return FinalLosses(None, None, None)
    training = _mean([trained for trained, _ in ends])
    validation = _mean([value for _, value in ends])
    return FinalLosses(training, validation, validation - training)


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
