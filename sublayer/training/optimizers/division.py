"""Norms and shapes of whole parameters, for updates of shards."""

import math
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from sublayer.config.optimizers import Shape

T = TypeVar("T")
Exchanging = Generator[Sequence[Tensor], Sequence[Tensor], T]
"""A computation that yields this process's parts of sums, and is sent the sums over all.

Every process yields as often, and as many tensors of the same shapes.
"""


@dataclass(frozen=True)
class Part:
    """A sharded parameter."""

    shape: Shape
    """The shape of the whole parameter."""
    axis: int
    """The axis along which it is divided, from 0."""


class Division:
    """Sharding of parameters among processes, and sums over shards.

    A parameter without a ``Part`` is replicated. ``total`` sums a tensor over processes.
    """

    def __init__(
        self,
        parts: Mapping[Tensor, Part] | None = None,
        total: Callable[[Tensor], Tensor] | None = None,
    ) -> None:
        self._parts = parts or {}
        self._total = total

    def shape(self, parameter: Tensor) -> Shape:
        """Return the shape of the whole parameter."""
        part = self._parts.get(parameter)
        return tuple(parameter.shape) if part is None else part.shape

    def axis(self, parameter: Tensor) -> int | None:
        """Return a parameter's sharded axis, negative, counted from the last.

        None where it is replicated.
        """
        part = self._parts.get(parameter)
        return None if part is None else part.axis - len(part.shape)

    def divides(self, parameter: Tensor, n_axes: int) -> bool:
        """Check whether a variable, the last axes of a parameter, is sharded."""
        axis = self.axis(parameter)
        return axis is not None and axis >= -n_axes

    def whole_norms(
        self, norms: Sequence[Tensor], are_parts: Sequence[bool]
    ) -> Exchanging[list[Tensor]]:
        """Compute L2 norms of variables, replicated or, by ``are_parts``, sharded.

        ``norms``, of any shapes, are of this process's parts. Those of replicated variables are
        returned unchanged.
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
        """Compute the root of the mean square of each variable of ``values``.

        A value has the layout of its parameter, or is a stack of several such. A variable is the
        last ``n_axes`` axes, kept with length 1.
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
        """Run updates; tensors yielded at the same time are summed in one exchange.

        Collective. An update that yields nothing ends, and frees its memory, before the next
        begins. No synchronisation with the device.
        """
        waiting = []
        for update in updates:
            tensors = next(update, None)
            if tensors is not None:
                waiting.append((update, tensors))
        while waiting:
            sums = iter(self._add_up([tensor for _, group in waiting for tensor in group]))
            still = []
            for update, tensors in waiting:
                totals = [next(sums) for _ in tensors]
                with suppress(StopIteration):
                    still.append((update, update.send(totals)))
            waiting = still

    def _add_up(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Sum tensors over all processes, in one exchange."""
        assert self._total is not None, "only divided parameters have parts to add"
        flat = self._total(torch.cat([tensor.flatten() for tensor in tensors]))
        sums = torch.split(flat, [tensor.numel() for tensor in tensors])
        return [total.view(tensor.shape) for total, tensor in zip(sums, tensors, strict=True)]


def _norm(values: Tensor, n_axes: int) -> Tensor:
    """Compute the L2 norm over the last axes, kept with length 1."""
    if n_axes == 0:
        return values.abs()
    norms: Tensor = torch.linalg.vector_norm(values, dim=tuple(range(-n_axes, 0)), keepdim=True)
    return norms


WHOLE = Division()
"""Division in which a process has all of every parameter."""
