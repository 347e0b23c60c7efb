"""How long a step is beside the weights that it changes: by their root mean square."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

SMALLEST_SCALE = 1e-3
"""The scale of weights that are smaller, so that what begins at 0 moves at all."""


def parameter_scales(parameters: Sequence[Tensor], n_axes: int) -> list[Tensor]:
    """Compute ``max(1e-3, RMS(w))`` of each parameter, of each of its variables.

    The last ``n_axes`` axes are a variable. Those axes are kept, with a length of 1. Nothing waits
    for the device. Source: Shazeer & Stern 2018, sec. 8; as released, tensorflow/mesh.
    """
    scales = []
    for parameter in parameters:
        rms = root_mean_square(parameter, min(n_axes, parameter.dim()))
        scales.append(rms.clamp_(min=SMALLEST_SCALE))
    return scales


def root_mean_square(values: Tensor, n_axes: int) -> Tensor:
    """Compute the root of the mean square over the last axes, which are kept with length 1."""
    if n_axes == 0:
        return values.abs()
    axes = tuple(range(-n_axes, 0))
    count = math.prod(values.shape[-n_axes:])
    norms: Tensor = torch.linalg.vector_norm(values, dim=axes, keepdim=True)
    return norms / math.sqrt(count)
