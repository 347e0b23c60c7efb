"""Gradients of several processes added up in one fixed tree, a part of them by each process."""

import math
from collections.abc import Iterator, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from sublayer.training.processes.tree import Node, TreeSum, part_range, subtrees
from sublayer.training.processes.world import World

Gradients = list[Tensor | None]
"""A gradient for each parameter; None where nothing of it was used."""
Sums = Sequence[tuple[Node, Gradients]]
"""A process's sums of gradients: of the largest whole subtrees of its parts."""

_ALIGNED = 16
"""Numbers of 4 bytes in 64, at which each gradient begins, so that kernels treat all alike."""
_BUCKET = 1 << 22
"""Numbers that are exchanged at a time, at least, where there are as many: of 16 MiB."""
_NOTHING = -0.0
"""What leaves every number that it is added to as it is, zeros of either sign too."""


def add_gradients(left: Gradients, right: Gradients) -> Gradients:
    """Add gradients to ``left``, in place; what one side did not use has the other's."""
    both = [(a, b) for a, b in zip(left, right, strict=True) if a is not None and b is not None]
    if both:
        torch._foreach_add_([a for a, _ in both], [b for _, b in both])
    return [b if a is None else a for a, b in zip(left, right, strict=True)]


def exchange(world: World, parameters: Sequence[Tensor], sums: Sums, n_parts: int) -> Gradients:
    """Return the gradients of all ``n_parts`` micro-batches, the same bits in every process.

    ``sums`` are this process's. All processes enter. A parameter that none of them used has None.
    """
    is_used = _used(world, sums)
    totals: Gradients = [None] * len(parameters)
    for bucket in _buckets(parameters, is_used):
        shapes = [parameters[index].shape for index in bucket]
        own = [[gradients[index] for index in bucket] for _, gradients in sums]
        for index, total in zip(bucket, _exchanged(world, shapes, own, n_parts), strict=True):
            totals[index] = total
    return totals


def _used(world: World, sums: Sums) -> list[bool]:
    """Return for each parameter whether any process has a gradient of it."""
    gradients = [each for _, each in sums]
    own = [any(each is not None for each in column) for column in zip(*gradients, strict=True)]
    # Between the processors, for which another device is not waited for.
    n_using = world.sum(torch.tensor(own, dtype=torch.float32))
    return (n_using > 0).tolist()


def _buckets(parameters: Sequence[Tensor], is_used: Sequence[bool]) -> Iterator[list[int]]:
    bucket: list[int] = []
    size = 0
    for index, parameter in enumerate(parameters):
        if not is_used[index]:
            continue
        bucket.append(index)
        size += parameter.numel()
        if size >= _BUCKET:
            yield bucket
            bucket, size = [], 0
    if bucket:
        yield bucket


def _exchanged(
    world: World, shapes: Sequence[torch.Size], own: Sequence[Gradients], n_parts: int
) -> list[Tensor]:
    """Add up some parameters' gradients; ``own`` has this process's, by subtree."""
    starts = [0]
    for shape in shapes:
        starts.append(starts[-1] + _rounded(shape.numel()))
    each = _rounded(math.ceil(starts[-1] / world.size))
    # What a process adds up is one after another for it: [size, subtrees, each].
    flat = torch.empty(len(own), world.size * each, device=world.device)
    for row, gradients in zip(flat, own, strict=True):
        _lay_out(gradients, starts, row)
    sent = flat.view(len(own), world.size, each).transpose(0, 1).flatten()
    nodes = [subtrees(part_range(rank, world.size, n_parts)) for rank in range(world.size)]
    lengths = [len(of_rank) * each for of_rank in nodes]
    received = sent.new_empty(sum(lengths))
    dist.all_to_all_single(received, sent, lengths, [len(own) * each] * world.size)
    total = TreeSum[Tensor](Tensor.add_)
    ordered = [node for of_rank in nodes for node in of_rank]
    for node, numbers in zip(ordered, received.view(-1, each), strict=True):
        total.push(node, numbers)
    summed = sent.new_empty(world.size * each)
    dist.all_gather(list(summed.view(world.size, each).unbind()), total.total())
    return [
        summed[start : start + shape.numel()].view(shape)
        for start, shape in zip(starts, shapes, strict=False)
    ]


def _lay_out(gradients: Gradients, starts: Sequence[int], row: Tensor) -> None:
    """Write gradients behind each other, from ``starts`` on; what is between them adds nothing."""
    end = 0
    for start, gradient in zip(starts, gradients, strict=False):
        if gradient is not None:
            row[end:start] = _NOTHING
            end = start + gradient.numel()
            row[start:end] = gradient.flatten()
    row[end:] = _NOTHING


def _rounded(n: int) -> int:
    """Round up to where a gradient may begin."""
    return -(-n // _ALIGNED) * _ALIGNED
