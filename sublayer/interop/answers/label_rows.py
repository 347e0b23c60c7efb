"""A head with a row for each label, as transformers' classes have it."""

from collections.abc import Mapping

import torch
from torch import Tensor

from sublayer.config.resolved import ResolvedModel
from sublayer.objective.supervised.loss import BIAS, WEIGHT
from sublayer.tasks.task import Task


def with_row_of_each(
    config: ResolvedModel, weights: Mapping[str, Tensor], task: Task | None
) -> tuple[ResolvedModel, dict[str, Tensor]]:
    """Return a config and weights whose head has a row for each of two labels.

    Where one output is the logit of the second label, the first has one of 0. All else is as it
    was.
    """
    if task is None or task.kind != "classes" or config.label_outputs != 1:
        return config, dict(weights)
    rows = {}
    for name in (WEIGHT, BIAS):
        rows[name] = torch.cat([torch.zeros_like(weights[name]), weights[name]])
    return config.model_copy(update={"label_outputs": 2}), {**weights, **rows}
