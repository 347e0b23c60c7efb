"""Training in one process, or in several that each hold all weights."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sublayer.data.batches import AnyBatch, Batches
from sublayer.errors import CheckpointError
from sublayer.files.tensors import StoredTensors, read_stored
from sublayer.model.names import named_parameters, parameter_roles
from sublayer.objective.base import Objective
from sublayer.training.optimizers.division import WHOLE, Division
from sublayer.training.processes.world import World


@dataclass(frozen=True)
class MicroBatch:
    """The part of a step that one forward and backward pass computes."""

    batch: AnyBatch
    index: int
    """Its number, from 0, among those of its process or, where that is nobody's, of the step."""
    rank: int = 0
    """The process by which its dropout is drawn."""


@dataclass(frozen=True)
class Owner:
    """The parameter that a tensor of a checkpoint is, or says something of."""

    parameter: str
    """Its persistent name in the objective."""
    state: str = ""
    """Name of the state that the optimizer keeps of it; empty: the tensor is the parameter."""


Owners = Callable[[str], Owner]
"""The owner of a tensor of a file, by its name there."""


class Alone:
    """An objective that one process trains; subclasses change what several do otherwise."""

    caches_casts = True
    """True where casts of the weights to bfloat16 may be kept for a step."""

    def __init__(self, objective: Objective, world: World) -> None:
        self._world = world
        self._objective = objective
        self._forward: nn.Module = objective
        self.parameters: dict[str, nn.Parameter] = {
            name: value for name, value in named_parameters(objective) if value.requires_grad
        }
        """Parameters that this process updates, by name."""
        self.roles = parameter_roles(objective)
        """Role of every parameter, by name."""
        self.division: Division = WHOLE
        """Of which whole parameters these are parts."""

    def compile(self) -> None:
        """Have the passes of training compiled, each with the first batch of its shape."""
        self._objective.compile()

    def micro_batches(
        self, batches: Batches, step: int, n_sequences: int, context: int
    ) -> list[MicroBatch]:
        """Return this process's micro-batches of step ``step`` (0-based), and change nothing.

        A micro-batch has the tokens of ``n_sequences`` windows of ``context``.
        """
        return divided(batches.batch(step), n_sequences, context)

    def begin(self, batches: Sequence[AnyBatch]) -> int:
        """Begin a step that computes these micro-batches; return how many passes it takes.

        All processes enter. In passes beyond the micro-batches the last of them is computed again,
        and does not count.
        """
        return len(batches)

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

    def whole_weights(self) -> AbstractContextManager[None]:
        """Have all weights in the model, for work that each process does at its own pace.

        All processes enter and leave.
        """
        return nullcontext()

    def local(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this process's parts of weights, by name: views, which change them."""
        return {name: tensor.detach() for name, tensor in tensors.items()}

    def to_write(self, tensors: Mapping[str, Tensor], owner: Owners) -> dict[str, Tensor]:
        """Return the tensors of a file that this process writes: the first one all, whole.

        ``tensors`` are this process's, by their names in the file.
        """
        if not self._world.is_main:
            return {}
        return {name: value.detach().contiguous() for name, value in tensors.items()}

    @staticmethod
    def write(tensors: Mapping[str, Tensor], stored: StoredTensors, world: World) -> None:
        """Write what ``to_write`` returned, or a copy; all of ``world`` enter, in any thread.

        Raises CheckpointError in all where one cannot write.
        """
        world.by_first(lambda: _write_whole(tensors, stored.whole))

    def read(self, owner: Owners, stored: StoredTensors) -> dict[str, Tensor]:
        """Read this process's parts of stored tensors; all enter.

        Raises CheckpointError, OSError and SafetensorError.
        """
        return read_stored(stored)


def _write_whole(tensors: Mapping[str, Tensor], path: Path) -> None:
    try:
        save_file(dict(tensors), path)
    except SafetensorError as error:
        raise CheckpointError(
            f"cannot write {path}: {error}; free some space, then --resume"
        ) from None


def divided(batch: AnyBatch, n_sequences: int, context: int, *, rank: int = 0) -> list[MicroBatch]:
    """Divide a process's rows into micro-batches, in their order."""
    size = batch.micro_rows(n_sequences, context)
    starts = range(0, len(batch), size)
    return [
        MicroBatch(batch[start : start + size], index, rank) for index, start in enumerate(starts)
    ]


class DataParallel(Alone):
    """An objective of whose batches each process computes a part; subclasses add up gradients."""

    def micro_batches(
        self, batches: Batches, step: int, n_sequences: int, context: int
    ) -> list[MicroBatch]:
        """Return this process's micro-batches: rows ``rank``, ``rank + size``, and so on."""
        rank = self._world.rank
        batch = batches.batch(step, rank=rank, world=self._world.size)
        return divided(batch, n_sequences, context, rank=rank)

    def sum_losses(self, losses: Sequence[Tensor]) -> Tensor:
        """Add the losses of this process's micro-batches, then those of all processes."""
        return self._world.sum(super().sum_losses(losses))


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
        """True where gradients are summed in groups that never change, or whose order is no matter.
        """

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
