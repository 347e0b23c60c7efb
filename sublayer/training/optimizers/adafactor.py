"""Adafactor: gradients divided by estimates of their squares from the means of rows and columns."""

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from sublayer.config.optimizers import AdafactorConfig, Shape
from sublayer.model.kernels.sizes import CPU_UPDATE_PART, GPU_UPDATE_PART
from sublayer.training.optimizers.adam import Optimizer, at_least_smallest, count_steps
from sublayer.training.optimizers.division import WHOLE, Division, Exchanging

_EPS = 1e-30
"""Added to squares of gradients."""


class Adafactor(Optimizer):
    """Update ``w`` by ``-lr * max(1e-3, RMS(w)) * u / max(1, RMS(u) / clip_threshold)``.

    ``u`` is ``g / sqrt(V)``, V the running mean of ``g^2 + 1e-30``, which the n-th update decays by
    ``1 - n ** -decay_exponent``. Of a matrix with both sides of at least ``min_factored`` only the
    means of rows and columns are kept, R and C, and V is ``R C / mean(R)``. There is no momentum,
    no bias correction, no weight decay; without ``parameter_scale`` no ``max(1e-3, RMS(w))``.

    The last ``n_axes`` axes of a group's parameters form a variable with separate factors and RMS;
    earlier axes count stacked variables. Parameters without a gradient are skipped; n is a
    parameter's number of updates plus ``decay_offset``. No synchronisation with the device. For
    sharded parameters processes exchange twice a step: means of squares, then sums of squares for
    RMS.

    Sources: Shazeer & Stern 2018, algorithms 4 and 5; as T5 was released, tensorflow/mesh,
    ``optimize.py``.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        config: AdafactorConfig,
        division: Division = WHOLE,
    ) -> None:
        self.config = config
        self.division = division
        super().__init__(groups, {"lr": config.lr, "n_axes": 2})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter with a gradient; there is no closure."""
        self.division.run(self._updates())

    def _updates(self) -> Iterator[Exchanging[None]]:
        for group in self.param_groups:
            parameters = [tensor for tensor in group["params"] if tensor.grad is not None]
            for alike in _alike(parameters, self.division):
                yield self._update(alike, group["lr"], group["n_axes"])

    def _update(self, parameters: list[Tensor], lr: float, n_axes: int) -> Exchanging[None]:
        """Update parameters of one shape together."""
        for parameter in parameters:
            self._begin(parameter)
        directions = yield from self._directions(parameters)
        factors = yield from self._factors(parameters, directions, n_axes)
        torch._foreach_addcmul_(parameters, directions.unbind(), factors, value=-lr)

    def _begin(self, parameter: Tensor) -> None:
        kept = self.state[parameter]
        for name, axes in self.config.mean_axes(self.division.shape(parameter)).items():
            if name not in kept:
                kept[name] = parameter.new_zeros([parameter.shape[axis] for axis in axes])

    def _directions(self, parameters: list[Tensor]) -> Exchanging[Tensor]:
        """Compute ``u`` of each parameter, in one new tensor."""
        gradient = _stack([tensor.grad for tensor in parameters if tensor.grad is not None])
        steps = count_steps(self.state, parameters) + self.config.decay_offset
        new_shares = steps**-self.config.decay_exponent  # [n]: weight of the new term in a mean
        new_shares = new_shares.to(gradient.dtype)
        if not self.config.is_factored(self.division.shape(parameters[0])):
            return self._divide(parameters, gradient, new_shares)
        rows, columns = yield from self._mean_squares(parameters, gradient, new_shares)
        directions = gradient * rows.rsqrt_().unsqueeze(-1)
        return directions.mul_(columns.rsqrt().unsqueeze(-2))

    def _mean_squares(
        self, parameters: list[Tensor], gradient: Tensor, new_shares: Tensor
    ) -> Exchanging[tuple[Tensor, Tensor]]:
        """Update row and column means; return row means over their mean, and column means.

        Where columns are sharded, a process has a part of each row's sum, and vice versa.
        """
        n_rows, n_columns = self.division.shape(parameters[0])[-2:]
        axis = self.division.axis(parameters[0])
        new_rows, new_columns = _sums_of_squares(gradient)
        new_rows /= n_columns
        new_columns /= n_rows
        if axis == -1:
            (new_rows,) = yield [new_rows]
        rows = self._average("exp_avg_sq_row", parameters, new_rows.add_(_EPS), new_shares)
        mean = rows.sum(-1, keepdim=True) / n_rows
        if axis == -2:
            new_columns, mean = yield [new_columns, mean]
        columns = self._average("exp_avg_sq_col", parameters, new_columns.add_(_EPS), new_shares)
        return rows / mean, columns

    def _divide(self, parameters: list[Tensor], gradient: Tensor, new_shares: Tensor) -> Tensor:
        squares = gradient.square().add_(_EPS)
        means = self._average("exp_avg_sq", parameters, squares, new_shares)
        return torch.rsqrt(means, out=squares).mul_(gradient)

    def _average(
        self, name: str, parameters: list[Tensor], new: Tensor, new_shares: Tensor
    ) -> Tensor:
        """Update the running means of parameters in place; return them as one tensor."""
        kept = [self.state[tensor][name] for tensor in parameters]
        torch._foreach_lerp_(kept, new.unbind(), new_shares.unbind())
        return _stack(kept)

    def _factors(
        self, parameters: list[Tensor], directions: Tensor, n_axes: int
    ) -> Exchanging[tuple[Tensor, ...]]:
        """Compute the factor of each variable's direction, without the learning rate."""
        values = [directions]
        if self.config.parameter_scale:
            values += parameters
        laid_out_as = [parameters[0], *parameters][: len(values)]
        rms, *scales = yield from self.division.root_mean_squares(values, laid_out_as, n_axes)
        divisors = (rms / self.config.clip_threshold).clamp_(min=1.0).unbind()
        if not self.config.parameter_scale:
            return torch._foreach_reciprocal(divisors)
        return torch._foreach_div(at_least_smallest(scales), divisors)


def _alike(parameters: list[Tensor], division: Division) -> Iterator[list[Tensor]]:
    """Group parameters of one shape and sharding by update, identically in all processes."""
    by_layout: dict[tuple[Shape, int | None], list[Tensor]] = {}
    for parameter in parameters:
        layout = division.shape(parameter), division.axis(parameter)
        by_layout.setdefault(layout, []).append(parameter)
    for (shape, _), alike in by_layout.items():
        part = CPU_UPDATE_PART if alike[0].device.type == "cpu" else GPU_UPDATE_PART
        n_together = max(1, part // math.prod(shape))
        for start in range(0, len(alike), n_together):
            yield alike[start : start + n_together]


def _sums_of_squares(gradient: Tensor) -> tuple[Tensor, Tensor]:
    """Compute row and column sums of squares, without keeping the squares."""
    squares = gradient.square()
    return squares.sum(-1), squares.sum(-2)


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    """Stack tensors of one shape; a single one is not copied."""
    if len(tensors) == 1:
        return tensors[0].unsqueeze(0)
    return torch.stack(list(tensors))
