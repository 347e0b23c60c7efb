"""Whole copies: every process holds all weights, and gradients are summed over them."""

from contextlib import AbstractContextManager, nullcontext

from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from sublayer.objective.base import Objective
from sublayer.training.processes.data_parallel import DataParallel
from sublayer.training.processes.world import World


class Replicated(DataParallel):
    """An objective of which every process holds all, and computes its part of each batch."""

    def __init__(self, objective: Objective, world: World) -> None:
        super().__init__(objective, world)
        self._replicas = DistributedDataParallel(
            objective,
            gradient_as_bucket_view=True,
            find_unused_parameters=objective.has_unused_parameters,
        )
        self._forward = self._replicas

    def accumulating(self, *, is_last: bool) -> AbstractContextManager[None]:
        """Enter a micro-batch; gradients are summed over processes with the last one's."""
        return nullcontext() if is_last else self._replicas.no_sync()

    def backward(self, share: Tensor) -> None:
        """Add the gradients of this process's share of the loss."""
        # Data parallelism averages gradients over processes; the loss is a sum.
        (share * self._world.size).backward()  # type: ignore[no-untyped-call]
