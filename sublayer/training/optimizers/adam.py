"""Adam and its relatives: AdamW, Adam as released with GPT-1, LAMB, steps scaled by the weights.

PyTorch decorates their methods for compiled callers: the first call imports torch._dynamo, with
torch.distributed.tensor, torch.onnx and sympy, which takes longer than all other imports. No update
is compiled here.
"""

from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from inspect import unwrap
from typing import Any, Literal

import torch
from torch import Tensor

from sublayer.training.optimizers.division import WHOLE, Division, Exchanging


class Optimizer(torch.optim.Optimizer):
    """PyTorch's base of optimizers, its methods undecorated."""

    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)


class Sgd(Optimizer, torch.optim.SGD):
    """PyTorch's SGD, its step undecorated."""

    step = torch.no_grad()(unwrap(torch.optim.SGD.step))


class Adam(Optimizer, torch.optim.Adam):
    """PyTorch's Adam, its step undecorated."""

    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


class AdamW(Optimizer, torch.optim.AdamW):
    """PyTorch's AdamW, its step undecorated."""

    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


State = MutableMapping[Tensor, dict[str, Any]]
"""State that an optimizer keeps of each parameter, under the names that PyTorch's Adam gives it."""


def count_steps(state: State, parameters: Sequence[Tensor]) -> Tensor:
    """Add one to the step count of each parameter; return the counts as one float64 tensor.

    Shape ``[n]``; the first step is 1. Counts are float32, exact up to 2**24.
    """
    for parameter in parameters:
        if "step" not in state[parameter]:
            zero = torch.zeros((), dtype=torch.float32, device=parameter.device)
            state[parameter]["step"] = zero
    steps = [state[parameter]["step"] for parameter in parameters]
    torch._foreach_add_(steps, 1.0)
    return torch.stack(steps).double()


class MomentOptimizer(Optimizer):
    """Update ``w`` by ``-lr * (d + weight_decay * w)``, where d is Adam's direction.

    d is ``m / (sqrt(v) + eps)`` of the running averages of the gradient and of its square, from 0
    on; with ``is_corrected`` they are divided by ``1 - beta^t`` first. Groups have their own decay.
    Parameters without a gradient are skipped. No synchronisation with the device. Subclasses scale
    the direction before or after decay is added, possibly by norms of whole parameters, which
    ``division`` sums over shards, in one exchange for all groups.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float,
        is_corrected: bool,
        division: Division = WHOLE,
    ) -> None:
        self.is_corrected = is_corrected
        self.division = division
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": 0.0}
        super().__init__(groups, defaults)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient; there is no closure."""
        self.division.run(self._updates())

    def _updates(self) -> Iterator[Exchanging[None]]:
        for group in self.param_groups:
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                yield self._update(parameters, group)

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> Exchanging[None]:
        updates = self._directions(parameters, group)
        yield from self.scale_directions(updates, parameters, group)
        weight_decay = group["weight_decay"]
        if weight_decay > 0:
            torch._foreach_add_(updates, parameters, alpha=weight_decay)
        yield from self.scale_updates(updates, parameters, group)
        torch._foreach_add_(parameters, updates, alpha=-group["lr"])

    def scale_directions(
        self, directions: list[Tensor], parameters: list[Tensor], group: dict[str, Any]
    ) -> Exchanging[None]:
        """Scale directions in place, before decay; no-op here."""
        yield from ()

    def scale_updates(
        self, updates: list[Tensor], parameters: list[Tensor], group: dict[str, Any]
    ) -> Exchanging[None]:
        """Scale updates in place, decay included; no-op here."""
        yield from ()

    def _directions(self, parameters: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Update the moments; compute d in new tensors, the only ones as large as the weights.

        Moments begin at 0; they are ``beta1 m + (1 - beta1) g`` and ``beta2 v + (1 - beta2) g^2``,
        in the parameter's type.
        """
        beta1, beta2 = group["betas"]
        states = [self.state[parameter] for parameter in parameters]
        for parameter, state in zip(parameters, states, strict=True):
            for name in ("exp_avg", "exp_avg_sq"):
                if name not in state:
                    state[name] = torch.zeros_like(parameter)
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        first = [state["exp_avg"] for state in states]
        second = [state["exp_avg_sq"] for state in states]
        torch._foreach_lerp_(first, gradients, 1.0 - beta1)
        torch._foreach_mul_(second, beta2)
        torch._foreach_addcmul_(second, gradients, gradients, 1.0 - beta2)
        directions = torch._foreach_sqrt(second)
        if self.is_corrected:
            # Source: Kingma & Ba 2015, algorithm 1.
            steps = count_steps(self.state, parameters)
            torch._foreach_div_(directions, (1.0 - beta2**steps).sqrt().unbind())
        torch._foreach_add_(directions, group["eps"])
        torch._foreach_reciprocal_(directions)
        torch._foreach_mul_(directions, first)
        if self.is_corrected:
            torch._foreach_div_(directions, (1.0 - beta1**steps).unbind())
        return list(directions)


SMALLEST_SCALE = 1e-3
"""The scale of weights that are smaller, so that what begins at 0 moves at all."""


def parameter_scales(
    parameters: Sequence[Tensor], n_axes: int, division: Division
) -> Exchanging[list[Tensor]]:
    """Compute ``max(1e-3, RMS(w))`` of each variable of the parameters.

    The last ``n_axes`` axes, kept with length 1, are a variable. No synchronisation with the
    device. Source: Shazeer & Stern 2018, sec. 8; as released, tensorflow/mesh.
    """
    rms = yield from division.root_mean_squares(parameters, parameters, n_axes)
    return at_least_smallest(rms)


def at_least_smallest(rms: Sequence[Tensor]) -> list[Tensor]:
    """Compute the scales of weights from their root mean squares, in place."""
    return [scale.clamp_(min=SMALLEST_SCALE) for scale in rms]


class Gpt1Adam(MomentOptimizer):
    """Update ``w`` by ``-lr * c * (m / (sqrt(v) + eps) + weight_decay * w)``.

    ``c = sqrt(1 - beta2^t) / (1 - beta1^t)`` corrects moments for their start at 0, and decay with
    them: by 0.316 at the first update, 0.795 at the thousandth, for betas of 0.9 and 0.999.

    Source: openai/finetune-transformer-lm, ``opt.py``.
    """

    def scale_updates(
        self, updates: list[Tensor], parameters: list[Tensor], group: dict[str, Any]
    ) -> Exchanging[None]:
        """Multiply every update by the correction of its parameter's moments."""
        beta1, beta2 = group["betas"]
        steps = count_steps(self.state, parameters)
        corrections = (1.0 - beta2**steps).sqrt() / (1.0 - beta1**steps)
        torch._foreach_mul_(updates, corrections.unbind())
        yield from ()


class ScaledAdamW(MomentOptimizer):
    """Update ``w`` by ``-lr * (max(1e-3, RMS(w)) * d + weight_decay * w)``, d Adam's direction.

    The last ``n_axes`` axes of a group's parameters are a variable with a separate RMS.

    Source: PiotrNawrot/nanoT5, ``AdamWScale``, where decay is not scaled either. Departures from
    it: decay takes the weights before the update, as everywhere here, and eps is added to the
    corrected root, as in AdamW as published.
    """

    def scale_directions(
        self, directions: list[Tensor], parameters: list[Tensor], group: dict[str, Any]
    ) -> Exchanging[None]:
        """Multiply the direction of each variable by the root mean square of its weights."""
        scales = yield from parameter_scales(parameters, group["n_axes"], self.division)
        torch._foreach_mul_(directions, scales)


Adapted = Literal["tensor", "map", "none"]
"""Variables with trust ratios of their own: each tensor, each map of a stacked one, or none (1)."""


class Lamb(MomentOptimizer):
    """LAMB: update ``w`` by ``-lr * ratio * u``, with ``ratio = ||w|| / ||u||``.

    ``u`` is ``d + weight_decay * w``, d Adam's direction. Norms are L2, of the weights before the
    update; where one of them is 0 the ratio is 1. A group's ``adapted`` selects variables with
    ratios.

    Sources: as released with ALBERT (``is_corrected=False``); You et al. 2020, algorithm 2, with
    phi the identity.
    """

    def scale_updates(
        self, updates: list[Tensor], parameters: list[Tensor], group: dict[str, Any]
    ) -> Exchanging[None]:
        """Multiply the updates of variables by their trust ratios."""
        adapted: Adapted = group["adapted"]
        if adapted == "none":
            return
        update_parts = _variables(updates, adapted)
        weight_parts = _variables(parameters, adapted)
        are_parts = []
        for parameter in parameters:
            n_axes = parameter.dim() if adapted == "tensor" else parameter.dim() - 1
            n_variables = len(_variables([parameter], adapted))
            are_parts += [self.division.divides(parameter, n_axes)] * n_variables
        # Of stacked maps that are sharded whole, a process may have none.
        if update_parts:
            local_norms = torch._foreach_norm([*weight_parts, *update_parts])
            norms = yield from self.division.whole_norms(local_norms, 2 * are_parts)
            torch._foreach_mul_(update_parts, trust_ratios(norms))


def trust_ratios(norms: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Compute ``||w|| / ||u||``, 1 where either is 0, from all ``||w||`` and then all ``||u||``."""
    weight_norms, update_norms = torch.stack(list(norms)).chunk(2)
    has_both = (weight_norms > 0) & (update_norms > 0)
    return torch.where(has_both, weight_norms / update_norms, 1.0).unbind()


def _variables(tensors: Sequence[Tensor], adapted: Adapted) -> list[Tensor]:
    """Return the variables with trust ratios, of which a tensor may hold several."""
    if adapted == "tensor":
        return list(tensors)
    return [variable for tensor in tensors for variable in tensor.unbind()]
