"""Data parallelism: every process holds all weights, and computes its rows of each batch."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from sublayer.data.batches import Batches
from sublayer.objective.base import Objective
from sublayer.training.processes.alone import Alone, MicroBatch, divided
from sublayer.training.processes.world import World


class Replicated(Alone):
    """An objective of which every process holds all, and computes its part of each batch."""

    def __init__(self, objective: Objective, world: World) -> None:
        super().__init__(objective)
        self._world = world
        self._replicas = DistributedDataParallel(
            objective,
            gradient_as_bucket_view=True,
            find_unused_parameters=objective.has_unused_parameters,
        )
        self._forward = self._replicas

    def micro_batches(
        self, batches: Batches, step: int, n_sequences: int, context: int
    ) -> list[MicroBatch]:
        """Return what this process computes: rows ``rank``, ``rank + size``, and so on."""
        rank = self._world.rank
        own = batches.batch(step, rank=rank, world=self._world.size)
        return divided(own, n_sequences, context, rank=rank)

    def accumulating(self, *, is_last: bool) -> AbstractContextManager[None]:
        """Enter a micro-batch; gradients are summed over processes with the last one's."""
        return nullcontext() if is_last else self._replicas.no_sync()

    def backward(self, share: Tensor) -> None:
        """Add the gradients of this process's share of the loss."""
        # Data parallelism averages gradients over processes; the loss is a sum.
        (share * self._world.size).backward()  # type: ignore[no-untyped-call]

    def sum_losses(self, losses: Sequence[Tensor]) -> Tensor:
        """Add the losses of this process's micro-batches, then those of all processes."""
        return self._world.sum(super().sum_losses(losses))
