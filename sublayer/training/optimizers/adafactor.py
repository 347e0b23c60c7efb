"""Adafactor: gradients divided by what the means of rows and columns say of their squares."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from sublayer.config.optimizers.adafactor import AdafactorConfig
from sublayer.estimate.kernel_sizes import CPU_UPDATE_PART, GPU_UPDATE_PART
from sublayer.training.optimizers.moments import count_steps
from sublayer.training.optimizers.parameter_scale import parameter_scales, root_mean_square

_EPS = 1e-30
"""Added to squares of gradients."""


class Adafactor(torch.optim.Optimizer):
    """Update ``w`` by ``-lr * max(1e-3, RMS(w)) * u / max(1, RMS(u) / clip_threshold)``.

    ``u`` is ``g / sqrt(V)``, V the running mean of ``g^2 + 1e-30``, which the n-th update decays by
    ``1 - n ** -decay_exponent``. Of a matrix with both sides of at least ``min_factored`` only the
    means of rows and columns are kept, R and C, and V is ``R C / mean(R)``. There is no momentum,
    no bias correction, no weight decay; without ``parameter_scale`` no ``max(1e-3, RMS(w))``.

    The last ``n_axes`` axes of a group's parameters are a variable, which has factors and RMS of
    its own; axes before them count what is stored together. Parameters without a gradient are left
    alone; n counts the updates of a parameter, and ``decay_offset`` more. Nothing waits for the
    device.

    Sources: Shazeer & Stern 2018, algorithms 4 and 5; as T5 was released, tensorflow/mesh,
    ``optimize.py``.
    """

    def __init__(self, groups: Iterable[dict[str, Any]], config: AdafactorConfig) -> None:
        self.config = config
        super().__init__(groups, {"lr": config.lr, "n_axes": 2})

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient; there is no closure."""
        for group in self.param_groups:
            parameters = [each for each in group["params"] if each.grad is not None]
            for part in _alike(parameters):
                self._update(part, group["lr"], group["n_axes"])

    def _update(self, parameters: list[Tensor], lr: float, n_axes: int) -> None:
        """Update parameters of one shape, all at a time."""
        shape = tuple(parameters[0].shape)
        for parameter in parameters:
            self._begin(parameter)
        gradient = _stack([each.grad for each in parameters if each.grad is not None])
        steps = count_steps(self.state, parameters) + self.config.decay_offset
        new_shares = steps**-self.config.decay_exponent  # [n]: of a mean, what is not decayed
        new_shares = new_shares.to(gradient.dtype)
        if self.config.is_factored(shape):
            updates = self._divide_by_factors(parameters, gradient, new_shares)
        else:
            updates = self._divide(parameters, gradient, new_shares)
        factors = self._factors(parameters, updates, min(n_axes, len(shape)))
        torch._foreach_addcmul_(parameters, updates.unbind(), factors, value=-lr)

    def _begin(self, parameter: Tensor) -> None:
        kept = self.state[parameter]
        for name, shape in self.config.state_shapes(tuple(parameter.shape)).items():
            if name != "step" and name not in kept:
                kept[name] = parameter.new_zeros(shape)

    def _divide_by_factors(
        self, parameters: list[Tensor], gradient: Tensor, new_shares: Tensor
    ) -> Tensor:
        squares = gradient.square()
        new_rows = squares.mean(-1).add_(_EPS)
        new_columns = squares.mean(-2).add_(_EPS)
        rows = self._average("exp_avg_sq_row", parameters, new_rows, new_shares)
        columns = self._average("exp_avg_sq_col", parameters, new_columns, new_shares)
        relative_rows = rows / rows.mean(-1, keepdim=True)
        of_rows = relative_rows.rsqrt_().unsqueeze(-1)
        of_columns = columns.rsqrt().unsqueeze(-2)
        # The squares are not needed again, their memory is.
        updates = torch.mul(gradient, of_rows, out=squares)
        return updates.mul_(of_columns)

    def _divide(self, parameters: list[Tensor], gradient: Tensor, new_shares: Tensor) -> Tensor:
        squares = gradient.square().add_(_EPS)
        means = self._average("exp_avg_sq", parameters, squares, new_shares)
        return torch.rsqrt(means, out=squares).mul_(gradient)

    def _average(
        self, name: str, parameters: list[Tensor], new: Tensor, new_shares: Tensor
    ) -> Tensor:
        """Update a running mean of each parameter in place; return them all as one tensor."""
        kept = [self.state[each][name] for each in parameters]
        torch._foreach_lerp_(kept, new.unbind(), new_shares.unbind())
        return _stack(kept)

    def _factors(
        self, parameters: list[Tensor], updates: Tensor, n_axes: int
    ) -> tuple[Tensor, ...]:
        """Compute what each variable's update is multiplied by, beside the learning rate."""
        excess = root_mean_square(updates, n_axes) / self.config.clip_threshold
        divisors = excess.clamp_(min=1.0).unbind()
        if not self.config.parameter_scale:
            return torch._foreach_reciprocal(divisors)
        scales = parameter_scales(parameters, n_axes)
        return torch._foreach_div(scales, divisors)


def _alike(parameters: list[Tensor]) -> Iterator[list[Tensor]]:
    """Generate parameters of one shape, as many as go together."""
    by_shape: dict[torch.Size, list[Tensor]] = {}
    for parameter in parameters:
        by_shape.setdefault(parameter.shape, []).append(parameter)
    for alike in by_shape.values():
        part = CPU_UPDATE_PART if alike[0].device.type == "cpu" else GPU_UPDATE_PART
        n_together = max(1, part // alike[0].numel())
        for start in range(0, len(alike), n_together):
            yield alike[start : start + n_together]


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    """Return tensors of one shape as one; a single one is not copied."""
    if len(tensors) == 1:
        return tensors[0].unsqueeze(0)
    return torch.stack(list(tensors))
