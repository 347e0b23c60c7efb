"""The plane in which states differ most: their two first principal components."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

_N_AXES = 2


@dataclass(frozen=True)
class Plane:
    """A plane through the mean of states; its axes are of length 1 and at right angles."""

    centre: Float[Tensor, " D"]
    axes: Float[Tensor, "2 D"]
    shares: tuple[float, float]
    """Shares of the states' variance along each axis, the larger first; NaN where they are equal
    and have none."""

    def coordinates(self, states: Float[Tensor, "*rows D"]) -> Float[Tensor, "*rows 2"]:
        """Project states: their distances from the centre along each axis, with a sign."""
        return (states - self.centre) @ self.axes.T

    def share_within(self, differences: Float[Tensor, "*rows D"]) -> float:
        """Compute which share of the squared lengths of differences lies in the plane.

        It is NaN where all of them are 0.
        """
        total = float(differences.square().sum())
        if total == 0.0:
            return math.nan
        within = differences @ self.axes.T  # [*rows, 2]
        return float(within.square().sum()) / total


def fit_plane(states: Float[Tensor, "N D"]) -> Plane:
    """Find the plane in which states vary most around their mean, by principal components.

    The largest part of each axis is positive, so that equal states have equal coordinates on every
    machine. Where they vary in less than two dimensions, what is missing of the axes is 0.
    """
    centre = states.mean(0)
    _, lengths, directions = torch.linalg.svd(states - centre, full_matrices=False)
    axes = states.new_zeros(_N_AXES, states.shape[1])
    variances = states.new_zeros(_N_AXES)
    n_found = min(_N_AXES, len(directions))
    for index in range(n_found):
        axis = directions[index]
        axes[index] = axis * axis[axis.abs().argmax()].sign()
        variances[index] = lengths[index].square()
    shares = variances / lengths.square().sum()
    first, second = shares.tolist()
    return Plane(centre, axes, (first, second))
