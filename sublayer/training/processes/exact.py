"""The same bits on any number of processes: every sum in one fixed tree over micro-batches."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from sublayer.data.batches import AnyBatch, Batches
from sublayer.objective.base import Objective
from sublayer.training.processes.alone import Alone, MicroBatch
from sublayer.training.processes.exchange import Gradients, add_gradients, exchange
from sublayer.training.processes.tree import Node, TreeSum, part_range
from sublayer.training.processes.world import World


class Exact(Alone):
    """An objective of which every process holds all, with sums that no number of them changes.

    A step is divided into ``n_parts`` micro-batches, whoever computes them: number k has rows k,
    k + n_parts, and so on. A process has consecutive ones. Their gradients and losses are added in
    the order of a tree over all of them (``tree.py``), across processes too: each process receives
    all others' sums of its part of the parameters, adds them, and gives the result to all.
    """

    def __init__(self, objective: Objective, world: World, *, n_parts: int) -> None:
        super().__init__(objective, world)
        self._n_parts = n_parts
        self._parameters = list(self.parameters.values())
        self._own = part_range(world.rank, world.size, n_parts)
        self._next = iter(self._own)
        self._sum = TreeSum[Gradients](add_gradients)

    def micro_batches(
        self, batches: Batches, step: int, n_sequences: int, context: int
    ) -> list[MicroBatch]:
        """Return this process's micro-batches, by their number among all of the step."""
        return [
            MicroBatch(batches.batch(step, rank=part, world=self._n_parts), part)
            for part in self._own
        ]

    def begin(self, batches: Sequence[AnyBatch]) -> int:
        """Begin a step, with the tree empty."""
        self._next = iter(self._own)
        self._sum = TreeSum[Gradients](add_gradients)
        return super().begin(batches)

    @contextmanager
    def accumulating(self, *, is_last: bool) -> Iterator[None]:
        """Enter a micro-batch; its gradients go into the tree, and the last one's end it."""
        yield
        gradients = [each.grad for each in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        self._sum.push(Node(0, next(self._next)), gradients)
        if is_last:
            for parameter, gradient in zip(self._parameters, self._total(), strict=True):
                parameter.grad = gradient

    def sum_losses(self, losses: Sequence[Tensor]) -> Tensor:
        """Add the losses of all micro-batches of the step in the order of the tree."""
        total = TreeSum[Tensor](Tensor.add)
        for part, loss in enumerate(self._all_losses(losses)):
            total.push(Node(0, part), loss)
        return total.total()

    def _total(self) -> Gradients:
        if self._world.size == 1:
            return self._sum.total()
        return exchange(self._world, self._parameters, self._sum.nodes, self._n_parts)

    def _all_losses(self, losses: Sequence[Tensor]) -> list[Tensor]:
        """Return the losses of all micro-batches, in their order."""
        size = self._world.size
        if size == 1:
            return list(losses)
        most = -(-self._n_parts // size)
        own = losses[0].new_zeros(most)
        own[: len(losses)] = torch.stack(list(losses))
        gathered = []
        for rank, row in enumerate(self._world.gather_equal(own)):
            n_parts = len(part_range(rank, size, self._n_parts))
            gathered += list(row[:n_parts].unbind())
        return gathered
