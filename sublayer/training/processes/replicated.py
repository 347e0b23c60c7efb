"""Whole copies: every process holds all weights, and gradients are summed over them."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from sublayer.data.batches import AnyBatch
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
        self._is_arranged = objective.has_unused_parameters or world.size == 2
        """Whether gradients are summed in groups that never change, or whose order is no matter."""

    def begin(self, batches: Sequence[AnyBatch]) -> int:
        """Begin a step; before the first one gradients are grouped."""
        if not self._is_arranged:
            self._arrange(batches[0])
            self._is_arranged = True
        return super().begin(batches)

    def _arrange(self, batch: AnyBatch) -> None:
        """Let data parallelism group gradients anew, as it does after the first pass that it sees.

        By the groups goes the order of a sum of three and more: a run that is resumed has to begin
        with those that an unbroken one has by then. Nothing else comes of the pass.
        """
        totals = self._replicas(batch)
        super().backward(torch.stack(list(totals.values())).sum())
        self._replicas.zero_grad(set_to_none=True)

    def accumulating(self, *, is_last: bool) -> AbstractContextManager[None]:
        """Enter a micro-batch; gradients are summed over processes with the last one's."""
        return nullcontext() if is_last else self._replicas.no_sync()

    def backward(self, share: Tensor) -> None:
        """Add the gradients of this process's share of the loss."""
        # Data parallelism averages gradients over processes; the loss is a sum.
        (share * self._world.size).backward()  # type: ignore[no-untyped-call]
