"""How long a step is beside the weights that it changes: by their root mean square."""

from collections.abc import Sequence

from torch import Tensor

from sublayer.training.optimizers.division import Division, Exchanging

SMALLEST_SCALE = 1e-3
"""The scale of weights that are smaller, so that what begins at 0 moves at all."""


def parameter_scales(
    parameters: Sequence[Tensor], n_axes: int, division: Division
) -> Exchanging[list[Tensor]]:
    """Compute ``max(1e-3, RMS(w))`` of each parameter, of each of its variables.

    The last ``n_axes`` axes are a variable. Those axes are kept, with a length of 1. Nothing waits
    for the device. Source: Shazeer & Stern 2018, sec. 8; as released, tensorflow/mesh.
    """
    rms = yield from division.root_mean_squares(parameters, parameters, n_axes)
    return at_least_smallest(rms)


def at_least_smallest(rms: Sequence[Tensor]) -> list[Tensor]:
    """Return the scales of weights from their root mean squares, in place."""
    return [each.clamp_(min=SMALLEST_SCALE) for each in rms]
