"""Training in one process, and what several do otherwise."""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from sublayer.data.batches import AnyBatch, Batches
from sublayer.objective.base import Objective


@dataclass(frozen=True)
class MicroBatch:
    """What one forward and backward pass computes of a step."""

    batch: AnyBatch
    index: int
    """Its number, from 0, among those of its process or, where that is nobody's, of the step."""
    rank: int = 0
    """The process by which its dropout is drawn."""


class Alone:
    """An objective that one process trains; subclasses change what several do otherwise."""

    def __init__(self, objective: Objective) -> None:
        self._forward: nn.Module = objective

    def micro_batches(
        self, batches: Batches, step: int, n_sequences: int, context: int
    ) -> list[MicroBatch]:
        """Return what this process computes of step ``step`` (0-based).

        A micro-batch has the tokens of ``n_sequences`` windows of ``context``.
        """
        return divided(batches.batch(step), n_sequences, context)

    def totals(self, batch: object) -> dict[str, Tensor]:
        """Compute each term's total, in nats, of this process's micro-batch."""
        totals: dict[str, Tensor] = self._forward(batch)
        return totals

    def accumulating(self, *, is_last: bool) -> AbstractContextManager[None]:
        """Enter a micro-batch of a step; after the last, gradients are those of all processes.

        Both passes are within; processes exchange gradients in the backward pass of the last.
        """
        return nullcontext()

    def backward(self, share: Tensor) -> None:
        """Add the gradients of this process's share of the loss, which is a sum over processes."""
        share.backward()  # type: ignore[no-untyped-call]

    def sum_losses(self, losses: Sequence[Tensor]) -> Tensor:
        """Add the shares of the loss of this process's micro-batches, and those of all others."""
        total = losses[0]
        for loss in losses[1:]:
            total = total + loss
        return total

    def gradient_norm(self, gradients: Iterable[Tensor]) -> Tensor:
        """Compute the L2 norm of the whole gradient, the same in every process."""
        return torch.nn.utils.get_total_norm(gradients)

    def full(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return whole tensors of weights or optimizer state, as files hold them.

        All processes enter.
        """
        return dict(tensors)

    def own(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this process's part of whole tensors, as files hold them."""
        return dict(tensors)


def divided(batch: AnyBatch, n_sequences: int, context: int, *, rank: int = 0) -> list[MicroBatch]:
    """Divide a process's rows into micro-batches, in their order."""
    size = batch.micro_rows(n_sequences, context)
    starts = range(0, len(batch), size)
    return [
        MicroBatch(batch[start : start + size], index, rank) for index, start in enumerate(starts)
    ]
