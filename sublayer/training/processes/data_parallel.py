"""Data parallelism: each process computes its rows of every batch."""

from collections.abc import Sequence

from torch import Tensor

from sublayer.data.batches import Batches
from sublayer.training.processes.alone import Alone, MicroBatch, divided


class DataParallel(Alone):
    """An objective of whose batches each process computes a part; subclasses add up gradients."""

    def micro_batches(
        self, batches: Batches, step: int, n_sequences: int, context: int
    ) -> list[MicroBatch]:
        """Return what this process computes: rows ``rank``, ``rank + size``, and so on."""
        rank = self._world.rank
        own = batches.batch(step, rank=rank, world=self._world.size)
        return divided(own, n_sequences, context, rank=rank)

    def sum_losses(self, losses: Sequence[Tensor]) -> Tensor:
        """Add the losses of this process's micro-batches, then those of all processes."""
        return self._world.sum(super().sum_losses(losses))
