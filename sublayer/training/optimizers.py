"""Optimizers of the papers, for replicated or sharded parameters, grouped by role."""

import math
from collections.abc import (
    Callable,
    Generator,
    Iterable,
    Iterator,
    Mapping,
    MutableMapping,
    Sequence,
)
from contextlib import suppress
from inspect import unwrap
from typing import Any, Literal, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor, nn

from sublayer.config.model import Role
from sublayer.config.optimizers import (
    RATE_SHARE,
    AdafactorConfig,
    AdamConfig,
    LambConfig,
    LionConfig,
    MuonConfig,
    OptimizerConfig,
    ScheduleFreeConfig,
    SgdConfig,
    Shape,
)
from sublayer.model.blocks import Attention, CrossAttention
from sublayer.model.kernels.products import has_bfloat16_units
from sublayer.model.kernels.sizes import CPU_UPDATE_PART, GPU_UPDATE_PART
from sublayer.model.parameters import named_parameters
from sublayer.objective.base import Objective

T = TypeVar("T")
Exchanging = Generator[Sequence[Tensor], Sequence[Tensor], T]
"""Coroutine that yields this process's parts of sums, and is sent the sums over all processes.

All processes must yield equally often, with equally many tensors of the same shapes.
"""


class Division:
    """Sharding of parameters among processes, and sums over shards.

    ``parts`` has the whole shape of each sharded parameter, and the axis along which it is divided,
    from 0; others are replicated. ``total`` sums a tensor over processes. Process ``rank`` of
    ``size`` has the part that PyTorch gives it: the last parts may be shorter, or empty.
    """

    def __init__(
        self,
        parts: Mapping[Tensor, tuple[Shape, int]] | None = None,
        total: Callable[[Tensor], Tensor] | None = None,
        rank: int = 0,
        size: int = 1,
    ) -> None:
        self._parts = parts or {}
        self._total = total
        self._rank, self._size = rank, size

    def shape(self, parameter: Tensor) -> Shape:
        """Return the shape of the whole parameter."""
        part = self._parts.get(parameter)
        return tuple(parameter.shape) if part is None else part[0]

    def axis(self, parameter: Tensor) -> int | None:
        """Return a parameter's sharded axis, counted from the last as a negative number.

        None if the parameter is replicated.
        """
        if parameter not in self._parts:
            return None
        shape, axis = self._parts[parameter]
        return axis - len(shape)

    def divides(self, parameter: Tensor, n_axes: int) -> bool:
        """Check whether a variable, which is the last axes of a parameter, is sharded."""
        axis = self.axis(parameter)
        return axis is not None and axis >= -n_axes

    def part(self, whole: Tensor, parameter: Tensor) -> Tensor:
        """Return this process's part of a tensor with the whole parameter's shape, as a view."""
        axis = self.axis(parameter)
        if axis is None:
            return whole
        start = min(self._rank * -(-whole.shape[axis] // self._size), whole.shape[axis])
        return whole.narrow(axis, start, parameter.shape[axis])

    def gather(
        self, values: Sequence[Tensor], parameters: Sequence[Tensor]
    ) -> Exchanging[Sequence[Tensor]]:
        """Gather whole tensors from parts with the layout of parameters, all sharded or none."""
        if self.axis(parameters[0]) is None:
            return values
        wholes = []
        for value, parameter in zip(values, parameters, strict=True):
            # A sum with -0 is exact, even if the other number is a zero of either sign.
            whole = value.new_full(self.shape(parameter), -0.0)
            self.part(whole, parameter).copy_(value)
            wholes.append(whole)
        return (yield wholes)

    def whole_norms(
        self, norms: Sequence[Tensor], are_parts: Sequence[bool]
    ) -> Exchanging[list[Tensor]]:
        """Compute the L2 norms of variables, which are sharded or, by ``are_parts``, replicated.

        ``norms``, of any shapes, are over this process's parts. Norms of replicated variables
        are returned unchanged.
        """
        partial = [norm for norm, is_part in zip(norms, are_parts, strict=True) if is_part]
        if not partial:
            return list(norms)
        squares = iter((yield torch._foreach_mul(partial, partial)))
        return [
            next(squares).sqrt() if is_part else norm
            for norm, is_part in zip(norms, are_parts, strict=True)
        ]

    def root_mean_squares(
        self, values: Sequence[Tensor], parameters: Sequence[Tensor], n_axes: int
    ) -> Exchanging[list[Tensor]]:
        """Compute the root mean square of each variable of ``values``.

        A value has the layout of its parameter, or is a stack of several such values. A variable is
        the last ``n_axes`` axes, which are kept with length 1.
        """
        norms = []
        are_parts = []
        counts = []
        for value, parameter in zip(values, parameters, strict=True):
            shape = self.shape(parameter)
            n = min(n_axes, len(shape))
            norms.append(_norm(value, n))
            are_parts.append(self.divides(parameter, n))
            counts.append(math.prod(shape[len(shape) - n :]))
        whole = yield from self.whole_norms(norms, are_parts)
        return [norm / math.sqrt(count) for norm, count in zip(whole, counts, strict=True)]

    def run(self, updates: Iterable[Exchanging[None]]) -> None:
        """Run updates, and sum tensors that they yield at the same time in one exchange.

        Collective. An update that yields nothing ends, and frees its memory, before the next
        begins. There is no synchronization with the device.
        """
        waiting = []
        for update in updates:
            tensors = next(update, None)
            if tensors is not None:
                waiting.append((update, tensors))
        while waiting:
            assert self._total is not None, "only sharded parameters have parts to add"
            parts = [tensor for _, group in waiting for tensor in group]
            flat = self._total(torch.cat([tensor.flatten() for tensor in parts]))
            split = torch.split(flat, [tensor.numel() for tensor in parts])
            sums = (total.view(part.shape) for total, part in zip(split, parts, strict=True))
            still = []
            for update, tensors in waiting:
                totals = [next(sums) for _ in tensors]
                with suppress(StopIteration):
                    still.append((update, update.send(totals)))
            waiting = still


def _norm(values: Tensor, n_axes: int) -> Tensor:
    """Compute the L2 norm over the last axes, which are kept with length 1."""
    if n_axes == 0:
        return values.abs()
    norms: Tensor = torch.linalg.vector_norm(values, dim=tuple(range(-n_axes, 0)), keepdim=True)
    return norms


WHOLE = Division()
"""Division of replicated parameters, of which every process has all."""


class Optimizer(torch.optim.Optimizer):
    """PyTorch's base class of optimizers, with undecorated methods."""

    moves_before_gradient = False
    """Whether ``begin`` changes the weights."""
    add_param_group = unwrap(torch.optim.Optimizer.add_param_group)
    zero_grad = unwrap(torch.optim.Optimizer.zero_grad)

    def begin(self) -> None:
        """Move weights to where the step's gradient is computed; a no-op here."""


class Sgd(Optimizer, torch.optim.SGD):
    """PyTorch's SGD, with an undecorated step."""

    step = torch.no_grad()(unwrap(torch.optim.SGD.step))


class Adam(Optimizer, torch.optim.Adam):
    """PyTorch's Adam, with an undecorated step."""

    step = torch.no_grad()(unwrap(torch.optim.Adam.step))


class AdamW(Optimizer, torch.optim.AdamW):
    """PyTorch's AdamW, with an undecorated step."""

    step = torch.no_grad()(unwrap(torch.optim.AdamW.step))


State = MutableMapping[Tensor, dict[str, Any]]
"""Optimizer state of a parameter, under the names of PyTorch's Adam."""


def updated_together(parameters: Iterable[Tensor], division: Division) -> Iterator[list[Tensor]]:
    """Group parameters of the same shape and sharding into updates, alike in all processes.

    Parameters without a gradient are left out.
    """
    by_layout: dict[tuple[Shape, int | None], list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            layout = division.shape(parameter), division.axis(parameter)
            by_layout.setdefault(layout, []).append(parameter)
    for (shape, _), alike in by_layout.items():
        part = CPU_UPDATE_PART if alike[0].device.type == "cpu" else GPU_UPDATE_PART
        n_together = max(1, part // math.prod(shape))
        for start in range(0, len(alike), n_together):
            yield alike[start : start + n_together]


def count_steps(state: State, parameters: Sequence[Tensor]) -> Tensor:
    """Add one to the step count of each parameter; return the counts as one float64 tensor ``[n]``.

    The first step is 1. Counts are stored as float32, exact up to 2**24.
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

    d is ``m / (sqrt(v) + eps)``, where m and v are running averages of the gradient and of its
    square, starting at 0; with ``is_corrected`` they are first divided by ``1 - beta^t``. Without
    ``has_momentum`` m is the gradient itself. Each group has its own decay. Parameters without a
    gradient are skipped. There is no synchronization with the device. Subclasses scale the
    direction before or after decay is added, possibly by norms of whole parameters, which
    ``division`` sums over shards in one exchange for all groups.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        *,
        lr: float,
        betas: tuple[float, float],
        eps: float = 0.0,
        is_corrected: bool = False,
        has_momentum: bool = True,
        division: Division = WHOLE,
    ) -> None:
        self.is_corrected = is_corrected
        self.has_momentum = has_momentum
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
        """Scale directions in place, before decay is added; a no-op here."""
        yield from ()

    def scale_updates(
        self, updates: list[Tensor], parameters: list[Tensor], group: dict[str, Any]
    ) -> Exchanging[None]:
        """Scale updates in place, decay included; a no-op here."""
        yield from ()

    def _directions(self, parameters: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Update the moments; compute d in new tensors, the only ones as large as the weights.

        Moments start at 0 and become ``beta1 m + (1 - beta1) g`` and ``beta2 v + (1 - beta2) g^2``,
        in the dtype of the parameter.
        """
        beta1, beta2 = group["betas"]
        gradients = first = _gradients(parameters)
        if self.has_momentum:
            first = self._states("exp_avg", parameters)
            torch._foreach_lerp_(first, gradients, 1.0 - beta1)
        second = self._states("exp_avg_sq", parameters)
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
        if self.is_corrected and self.has_momentum:
            torch._foreach_div_(directions, (1.0 - beta1**steps).unbind())
        return list(directions)

    def _states(self, name: str, parameters: Sequence[Tensor]) -> list[Tensor]:
        """Return a state of each parameter, at first 0."""
        for parameter in parameters:
            if name not in self.state[parameter]:
                self.state[parameter][name] = torch.zeros_like(parameter)
        return [self.state[parameter][name] for parameter in parameters]


def _gradients(parameters: Iterable[Tensor]) -> list[Tensor]:
    return [parameter.grad for parameter in parameters if parameter.grad is not None]


SMALLEST_SCALE = 1e-3
"""Minimum scale of weights, so that weights that start at 0 can change."""


def parameter_scales(
    parameters: Sequence[Tensor], n_axes: int, division: Division
) -> Exchanging[list[Tensor]]:
    """Compute ``max(1e-3, RMS(w))`` of each variable of the parameters.

    A variable is the last ``n_axes`` axes, which are kept with length 1. There is no
    synchronization with the device. Source: Shazeer & Stern 2018, sec. 8; as released,
    tensorflow/mesh.
    """
    rms = yield from division.root_mean_squares(parameters, parameters, n_axes)
    return at_least_smallest(rms)


def at_least_smallest(rms: Sequence[Tensor]) -> list[Tensor]:
    """Compute the scales of weights from their root mean squares, in place."""
    return [scale.clamp_(min=SMALLEST_SCALE) for scale in rms]


class Gpt1Adam(MomentOptimizer):
    """Update ``w`` by ``-lr * c * (m / (sqrt(v) + eps) + weight_decay * w)``.

    ``c = sqrt(1 - beta2^t) / (1 - beta1^t)`` corrects moments for their start at 0, but scales
    decay as well: by 0.316 at the first update, 0.795 at the thousandth, for betas of 0.9 and
    0.999.

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

    Source: PiotrNawrot/nanoT5, ``AdamWScale``, where decay is not scaled either. Departures: decay
    uses the weights before the update, like all optimizers here, and eps is added to the corrected
    root, as in AdamW as published.
    """

    def scale_directions(
        self, directions: list[Tensor], parameters: list[Tensor], group: dict[str, Any]
    ) -> Exchanging[None]:
        """Multiply the direction of each variable by the root mean square of its weights."""
        scales = yield from parameter_scales(parameters, group["n_axes"], self.division)
        torch._foreach_mul_(directions, scales)


Adapted = Literal["tensor", "map", "none"]
"""Variables with separate trust ratios: each tensor, each map of a stacked tensor, or none."""


class Lamb(MomentOptimizer):
    """LAMB: update ``w`` by ``-lr * ratio * u``, with ``ratio = ||w|| / ||u||``.

    ``u`` is ``d + weight_decay * w``, d Adam's direction. Norms are L2, with weights from before
    the update; if either is 0, the ratio is 1. A group's ``adapted`` selects the variables with
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
        # A process may have none of several stacked maps that are sharded as wholes.
        if update_parts:
            local_norms = torch._foreach_norm([*weight_parts, *update_parts])
            norms = yield from self.division.whole_norms(local_norms, 2 * are_parts)
            weight_norms, update_norms = torch.stack(norms).chunk(2)
            has_both = (weight_norms > 0) & (update_norms > 0)
            ratios = torch.where(has_both, weight_norms / update_norms, 1.0)
            torch._foreach_mul_(update_parts, ratios.unbind())


def _variables(tensors: Sequence[Tensor], adapted: Adapted) -> list[Tensor]:
    """Return the variables with trust ratios; a tensor may hold several."""
    if adapted == "tensor":
        return list(tensors)
    return [variable for tensor in tensors for variable in tensor.unbind()]


class Lion(MomentOptimizer):
    """Update ``w`` by ``-lr * (sign(beta1 m + (1 - beta1) g) + weight_decay * w)``.

    m is the running average of the gradient g with decay rate beta2, updated afterwards.

    Source: Chen et al. 2023 (2302.06675), algorithm 2.
    """

    def _directions(self, parameters: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        beta1, beta2 = group["betas"]
        gradients, averages = _gradients(parameters), self._states("exp_avg", parameters)
        directions = torch._foreach_lerp(averages, gradients, 1.0 - beta1)
        torch._foreach_sign_(directions)
        torch._foreach_lerp_(averages, gradients, 1.0 - beta2)
        return list(directions)


class ScheduleFree(MomentOptimizer):
    """Schedule-free AdamW: weights x are the average of fast weights z.

    ``begin`` moves the weights to ``y = beta1 x + (1 - beta1) z``, where the gradient is computed.
    A step moves z by ``-lr * (g / (sqrt(v) + eps) + weight_decay * y)``, v corrected for its start,
    and x by ``lr^2 / sum(lr^2)`` of its distance to z; between steps the weights are x.

    Source: Defazio et al. 2024 (2405.15682), algorithm 1 and appendix; as released,
    facebookresearch/schedule_free. Departure: x is computed after every step, not only for
    evaluations, so that results do not depend on when these take place.
    """

    moves_before_gradient = True

    @torch.no_grad()
    def begin(self) -> None:
        """Move weights from x to y."""
        for group in self.param_groups:
            self._shift(group["params"], 1.0 - group["betas"][0])

    def _updates(self) -> Iterator[Exchanging[None]]:
        yield from super()._updates()
        for group in self.param_groups:
            unused = [parameter for parameter in group["params"] if parameter.grad is None]
            self._shift(unused, 1.0 - 1.0 / group["betas"][0])

    def _shift(self, parameters: Iterable[Tensor], share: float) -> None:
        """Move weights by a share of their distance to z, if there is one."""
        moved = [parameter for parameter in parameters if self.state.get(parameter)]
        if moved:
            torch._foreach_lerp_(moved, [self.state[parameter]["z"] for parameter in moved], share)

    def _update(self, parameters: list[Tensor], group: dict[str, Any]) -> Exchanging[None]:
        states, lr = [self.state[parameter] for parameter in parameters], group["lr"]
        for parameter, state in zip(parameters, states, strict=True):
            if "z" not in state:
                state["z"] = parameter.detach().clone()
                state["weight_sum"] = parameter.new_zeros(())
        updates = self._directions(parameters, group)
        if group["weight_decay"] > 0:
            torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])
        self._shift(parameters, 1.0 - 1.0 / group["betas"][0])
        fast, sums = [state["z"] for state in states], [state["weight_sum"] for state in states]
        torch._foreach_add_(fast, updates, alpha=-lr)
        torch._foreach_add_(sums, lr**2)
        # Without a rate so far x equals z, whatever its share.
        shares = lr**2 / torch.stack(sums).clamp_(min=torch.finfo(sums[0].dtype).tiny)
        torch._foreach_lerp_(parameters, fast, shares.unbind())
        yield from ()


HeadAxis = tuple[int, int]
"""Axis of a map's heads, -2 or -1, and the width of a head."""


def head_axes(objective: Objective) -> dict[str, HeadAxis]:
    """Find the axis of heads in the maps of attentions, by the parameter's persistent name."""
    names = {id(parameter): name for name, parameter in named_parameters(objective)}
    found = {}
    for module in objective.modules():
        if isinstance(module, Attention | CrossAttention):
            for maps in module.stored_maps:
                found[names[id(maps.weight)]] = (-2, module.d_head)
            found[names[id(module.output.weight)]] = (-1, module.d_head)
    return found


_SMALLEST_NORM = 1e-7
"""Minimum Frobenius norm by which Newton-Schulz divides."""


def orthogonalise(
    maps: Float[Tensor, "N rows columns"], coefficients: tuple[float, float, float], n_steps: int
) -> Float[Tensor, "N rows columns"]:
    """Map the singular values of matrices towards 1, by Newton-Schulz iterations in their dtype.

    Matrices are divided by their Frobenius norm, in place; an iteration is ``a X + (b A + c A^2)
    X`` with ``A = X X^T``. In bfloat16 each result is rounded, and sums are in float32; a processor
    without bfloat16 units computes the same in float32, from rounded numbers, in another order of
    summation, since its bfloat16 products are far slower.

    Source: Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks".
    """
    a, b, c = coefficients
    emulates = maps.dtype == torch.bfloat16 and maps.is_cpu and not has_bfloat16_units()
    is_tall = maps.shape[-2] > maps.shape[-1]
    x = maps.mT if is_tall else maps
    # One by one, since a norm over the last axes would add in another order.
    norms = torch.stack(list(torch._foreach_norm(list(maps.unbind()))))
    x.div_(norms.clamp_(min=_SMALLEST_NORM)[:, None, None])
    if emulates:
        x = x.float()

    def rounded(values: Tensor) -> Tensor:
        return values.bfloat16().float() if emulates else values

    for _ in range(n_steps):
        gram = rounded(x @ x.mT)
        polynomial = rounded(torch.baddbmm(gram, gram, gram, beta=b, alpha=c))
        x = rounded(torch.baddbmm(x, polynomial, x, beta=a))
    x = x.to(maps.dtype)
    return x.mT if is_tall else x


class Muon(MomentOptimizer):
    """Muon for linear maps, corrected AdamW for all other parameters.

    A map is updated by ``-lr * (factor * O + weight_decay * w)``, where O is the orthogonalised
    momentum. Groups with ``is_orthogonalised`` hold maps, those of one ``heads`` with heads along
    an axis, each of which is orthogonalised separately. Sharded maps are gathered, those of one
    update at a time, and orthogonalised in every process.

    Sources: Jordan et al. 2024; Liu et al. 2025 (2502.16982), for decay and the factor of the rate;
    ``torch.optim.Muon``, which it equals to the bit on a processor with bfloat16 units.
    """

    def __init__(
        self, groups: Iterable[dict[str, Any]], config: MuonConfig, **settings: Any
    ) -> None:
        self.config = config
        super().__init__(groups, is_corrected=True, **settings)

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Update every parameter that has a gradient; there is no closure."""
        for update in self._updates():
            # One after the other, so that few whole maps are held at a time.
            self.division.run([update])

    def _updates(self) -> Iterator[Exchanging[None]]:
        for group in self.param_groups:
            if group["is_orthogonalised"]:
                for together in updated_together(group["params"], self.division):
                    yield self._update_maps(together, group)
            elif _gradients(group["params"]):
                used = [each for each in group["params"] if each.grad is not None]
                yield self._update(used, group)

    def _update_maps(self, parameters: list[Tensor], group: dict[str, Any]) -> Exchanging[None]:
        config, lr, heads = self.config, group["lr"], group["heads"]
        gradients, means = _gradients(parameters), self._states("momentum_buffer", parameters)
        torch._foreach_lerp_(means, gradients, 1.0 - config.momentum)
        mixed = torch._foreach_lerp(gradients, means, config.momentum) if config.nesterov else means
        wholes = yield from self.division.gather(mixed, parameters)
        dtype = getattr(torch, config.newton_schulz_dtype)
        maps = torch.cat([_divided(whole, heads).to(dtype) for whole in wholes])
        n_maps, shape = len(maps) // len(parameters), wholes[0].shape
        del mixed, wholes
        factor = config.rate_factor(*maps.shape[-2:])
        maps = orthogonalise(maps, config.newton_schulz_coefficients, config.newton_schulz_steps)
        updates = [_joined(part, heads).reshape(shape) for part in torch.split(maps, n_maps)]
        parts = [
            self.division.part(update, parameter)
            for update, parameter in zip(updates, parameters, strict=True)
        ]
        torch._foreach_mul_(parameters, 1.0 - lr * group["weight_decay"])
        torch._foreach_add_(parameters, parts, alpha=-lr * factor)


def _divided(
    maps: Float[Tensor, "*maps rows columns"], heads: HeadAxis | None
) -> Float[Tensor, "N some_rows some_columns"]:
    """Return a parameter's maps, or the heads of each, as one batch."""
    if heads is not None:
        axis, width = heads
        maps = torch.unflatten(maps, axis, (-1, width)).movedim(axis - 1, -3)
    return maps.flatten(0, -3) if maps.dim() > 2 else maps.unsqueeze(0)


def _joined(maps: Float[Tensor, "N rows columns"], heads: HeadAxis | None) -> Float[Tensor, "..."]:
    """Order a batch of ``_divided`` as its parameter."""
    return maps if heads is None else maps.movedim(-3, heads[0] - 1)


_EPS = 1e-30
"""Constant added to squares of gradients."""


class Adafactor(Optimizer):
    """Update ``w`` by ``-lr * max(1e-3, RMS(w)) * u / max(1, RMS(u) / clip_threshold)``.

    ``u`` is ``g / sqrt(V)``, V the running mean of ``g^2 + 1e-30``, which the n-th update decays by
    ``1 - n ** -decay_exponent``. For a matrix with both sides of at least ``min_factored`` only the
    means R of rows and C of columns are kept, and V is ``R C / mean(R)``. There is no momentum, no
    bias correction and no weight decay; without ``parameter_scale`` there is no
    ``max(1e-3, RMS(w))``.

    The last ``n_axes`` axes of a group's parameters form a variable with separate factors and RMS;
    earlier axes count stacked variables. Parameters without a gradient are skipped; n is a
    parameter's number of updates plus ``decay_offset``. There is no synchronization with the
    device. For sharded parameters processes exchange twice a step: means of squares, then sums of
    squares for RMS.

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
            for together in updated_together(group["params"], self.division):
                yield self._update(together, group["lr"], group["n_axes"])

    def _update(self, parameters: list[Tensor], lr: float, n_axes: int) -> Exchanging[None]:
        """Update parameters of the same shape together."""
        for parameter in parameters:
            state, shape = self.state[parameter], self.division.shape(parameter)
            for name, axes in self.config.mean_axes(shape).items():
                if name not in state:
                    state[name] = parameter.new_zeros([parameter.shape[axis] for axis in axes])
        directions = yield from self._directions(parameters)
        factors = yield from self._factors(parameters, directions, n_axes)
        torch._foreach_addcmul_(parameters, directions.unbind(), factors, value=-lr)

    def _directions(self, parameters: list[Tensor]) -> Exchanging[Tensor]:
        """Compute ``u`` of each parameter, in one new tensor.

        If columns are sharded, a process has a part of each row's sum, and vice versa.
        """
        shape, axis = self.division.shape(parameters[0]), self.division.axis(parameters[0])
        gradient = _stack([tensor.grad for tensor in parameters if tensor.grad is not None])
        steps = count_steps(self.state, parameters) + self.config.decay_offset
        new_shares = steps**-self.config.decay_exponent  # [n]: weight of the new term in a mean
        new_shares = new_shares.to(gradient.dtype)
        squares = gradient.square()
        if not self.config.is_factored(shape):
            means = self._average("exp_avg_sq", parameters, squares.add_(_EPS), new_shares)
            return torch.rsqrt(means, out=squares).mul_(gradient)
        n_rows, n_columns = shape[-2:]
        new_rows, new_columns = squares.sum(-1), squares.sum(-2)
        del squares  # as large as the gradient
        new_rows /= n_columns
        new_columns /= n_rows
        if axis == -1:
            (new_rows,) = yield [new_rows]
        rows = self._average("exp_avg_sq_row", parameters, new_rows.add_(_EPS), new_shares)
        mean = rows.sum(-1, keepdim=True) / n_rows
        if axis == -2:
            new_columns, mean = yield [new_columns, mean]
        columns = self._average("exp_avg_sq_col", parameters, new_columns.add_(_EPS), new_shares)
        directions = gradient * (rows / mean).rsqrt_().unsqueeze(-1)
        return directions.mul_(columns.rsqrt().unsqueeze(-2))

    def _average(
        self, name: str, parameters: list[Tensor], new: Tensor, new_shares: Tensor
    ) -> Tensor:
        """Update the running means of parameters in place; return them as one tensor."""
        means = [self.state[tensor][name] for tensor in parameters]
        torch._foreach_lerp_(means, new.unbind(), new_shares.unbind())
        return _stack(means)

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


def _stack(tensors: Sequence[Tensor]) -> Tensor:
    """Stack tensors of the same shape; a single tensor is not copied."""
    if len(tensors) == 1:
        return tensors[0].unsqueeze(0)
    return torch.stack(list(tensors))


def build_optimizer(
    config: OptimizerConfig,
    parameters: Mapping[str, nn.Parameter],
    roles: Mapping[str, Role],
    rate_shares: Mapping[str, float] | None = None,
    division: Division = WHOLE,
    heads: Mapping[str, HeadAxis] | None = None,
) -> Optimizer:
    """Build the optimizer, with parameter groups by role.

    ``roles`` has every name of ``parameters``, and so has ``rate_shares``, factors of the learning
    rate, by default 1. The rate is the config's until ``set_learning_rate``. ``division`` describes
    the sharding of ``parameters``, ``heads`` those of ``head_axes``.
    """
    shares = rate_shares or dict.fromkeys(parameters, 1.0)
    groups: list[dict[str, Any]] = []
    for name, parameter in parameters.items():
        options = config.options(division.shape(parameter), roles[name])
        options[RATE_SHARE] = shares[name] * options.get(RATE_SHARE, 1.0)
        if isinstance(config, MuonConfig):
            options["heads"] = (heads or {}).get(name) if config.muon_unit == "head" else None
        alike = [group for group in groups if group["options"] == options]
        if alike:
            alike[0]["params"].append(parameter)
        else:
            groups.append({"params": [parameter], "options": options})
    groups = [{"params": group["params"], **group["options"]} for group in groups]
    if build := getattr(config, "build", None):  # a plugin's
        built: Optimizer = build(groups, division)
        return built
    if isinstance(config, SgdConfig):
        return Sgd(groups, lr=config.lr, momentum=config.momentum, foreach=True)
    if isinstance(config, AdafactorConfig):
        return Adafactor(groups, config, division)
    settings: dict[str, Any] = {"lr": config.lr, "betas": config.betas}
    if isinstance(config, LionConfig):
        return Lion(groups, **settings)
    settings["eps"] = config.eps
    if isinstance(config, MuonConfig):
        return Muon(groups, config, **settings, division=division)
    if isinstance(config, ScheduleFreeConfig):
        return ScheduleFree(groups, **settings, is_corrected=True, has_momentum=False)
    if isinstance(config, AdamConfig):
        return Adam(groups, **settings, fused=True)
    if isinstance(config, LambConfig):
        is_corrected = config.form == "published"
        return Lamb(groups, **settings, is_corrected=is_corrected, division=division)
    if config.is_as_published:
        return AdamW(groups, **settings, fused=True)
    if config.form == "gpt1":
        return Gpt1Adam(groups, **settings, is_corrected=False)
    settings["is_corrected"] = config.bias_correction
    if config.parameter_scale:
        return ScaledAdamW(groups, **settings, division=division)
    # Without bias correction, as in BERT and ALBERT as released.
    return MomentOptimizer(groups, **settings)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every parameter group to its share of ``lr``."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group[RATE_SHARE]


def rate_shares(objective: Objective, layer_decay: float) -> dict[str, float]:
    """Compute each parameter's share of the learning rate, by its persistent name.

    It is ``layer_decay ** (n_layers + 2 - depth)``, where embeddings have depth 0, blocks count
    from 1, and the final norm and heads have the full rate. Shared weights, and a position bias,
    have the rate of their last block; a tied output matrix has the embeddings' rate. The model
    has a single stack, unless the decay is 1.

    Source: Clark et al. 2020 (2003.10555), as released (google-research/electra,
    ``model/optimization.py``), where the last block has the square of the decay, too. The rates of
    shared blocks, position biases and the final norm, which the source lacks, are choices of ours.
    """
    if layer_decay == 1.0:
        return {name: 1.0 for name, _ in named_parameters(objective)}
    model = objective.model
    n_layers = model.config.n_layers
    depths: dict[int, int] = {}

    def set_depth(parameter: nn.Parameter, depth: int) -> None:
        depths[id(parameter)] = depth

    for parameter in model.positions.parameters():
        set_depth(parameter, n_layers)
    for layer in range(n_layers):
        for parameter in model.block_parameters(layer):
            set_depth(parameter, layer + 1)
    for parameter in model.embedding_parameters():
        set_depth(parameter, 0)
    shares = {}
    for name, parameter in named_parameters(objective):
        depth = depths.get(id(parameter), n_layers + 2)
        shares[name] = layer_decay ** (n_layers + 2 - depth)
    return shares
