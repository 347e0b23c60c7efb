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
    """A micro-batch: the part of a step in one forward and backward pass."""

    batch: AnyBatch
    index: int
    """Its number, from 0, among those of its process or, where that is nobody's, of the step."""
    rank: int = 0
    """The process by which its dropout is drawn."""


@dataclass(frozen=True)
class Owner:
    """The parameter that a checkpoint's tensor belongs to."""

    parameter: str
    """Its persistent name in the objective."""
    state: str = ""
    """Name of the state that the optimizer keeps of it; empty: the tensor is the parameter."""


Owners = Callable[[str], Owner]
"""The owner of a tensor of a file, by its name there."""


class Alone:
    """An objective trained by one process; subclasses distribute it."""

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
        """Compile the training passes, at the first batch of each shape."""
        self._objective.compile()

    def micro_batches(
        self, batches: Batches, step: int, n_sequences: int, context: int
    ) -> list[MicroBatch]:
        """Return this process's micro-batches of step ``step`` (0-based); pure.

        A micro-batch has the tokens of ``n_sequences`` windows of ``context``.
        """
        return divided(batches.batch(step), n_sequences, context)

    def begin(self, batches: Sequence[AnyBatch]) -> int:
        """Begin a step of these micro-batches; return its number of passes.

        Collective. Passes beyond the micro-batches repeat the last one, without counting it.
        """
        return len(batches)

    def totals(self, batch: object) -> dict[str, Tensor]:
        """Compute the terms' totals, in nats, of a micro-batch."""
        totals: dict[str, Tensor] = self._forward(batch)
        return totals

    def accumulating(self, *, is_last: bool) -> AbstractContextManager[None]:
        """Enter a micro-batch; after the last, gradients are summed over processes.

        Contains forward and backward pass; gradients are exchanged in the last backward pass.
        """
        return nullcontext()

    def backward(self, share: Tensor) -> None:
        """Add the gradients of this process's share of the loss, a sum over processes."""
        share.backward()  # type: ignore[no-untyped-call]

    def sum_losses(self, losses: Sequence[Tensor]) -> Tensor:
        """Sum the shares of the loss over micro-batches and processes."""
        total = losses[0]
        for loss in losses[1:]:
            total = total + loss
        return total

    def gradient_norm(self, gradients: Iterable[Tensor]) -> Tensor:
        """Compute the global L2 norm of the gradient, equal in every process."""
        return torch.nn.utils.get_total_norm(gradients)

    def whole_weights(self) -> AbstractContextManager[None]:
        """Gather all weights into the model, for work without synchronisation.

        Entering and leaving are collective.
        """
        return nullcontext()

    def local(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this process's parts of weights, by name, as writable views."""
        return {name: tensor.detach() for name, tensor in tensors.items()}

    def to_write(self, tensors: Mapping[str, Tensor], owner: Owners) -> dict[str, Tensor]:
        """Return the tensors that this process writes to a file: on rank 0 all.

        ``tensors`` are this process's, by name in the file.
        """
        if not self._world.is_main:
            return {}
        return {name: value.detach().contiguous() for name, value in tensors.items()}

    @staticmethod
    def write(tensors: Mapping[str, Tensor], stored: StoredTensors, world: World) -> None:
        """Write the tensors of ``to_write``, or copies; collective over ``world``, in any thread.

        Raises CheckpointError in all where one cannot write.
        """
        world.by_first(lambda: _write_whole(tensors, stored.whole))

    def read(self, owner: Owners, stored: StoredTensors) -> dict[str, Tensor]:
        """Read this process's parts of stored tensors; collective.

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
    """Divide a process's rows into micro-batches, in order."""
    size = batch.micro_rows(n_sequences, context)
    starts = range(0, len(batch), size)
    return [
        MicroBatch(batch[start : start + size], index, rank) for index, start in enumerate(starts)
    ]


class DataParallel(Alone):
    """Data parallelism: processes compute parts of batches; subclasses sum gradients."""

    def micro_batches(
        self, batches: Batches, step: int, n_sequences: int, context: int
    ) -> list[MicroBatch]:
        """Return this process's micro-batches: rows ``rank``, ``rank + size``, and so on."""
        rank = self._world.rank
        batch = batches.batch(step, rank=rank, world=self._world.size)
        return divided(batch, n_sequences, context, rank=rank)

    def sum_losses(self, losses: Sequence[Tensor]) -> Tensor:
        """Sum losses over this process's micro-batches, then over processes."""
        return self._world.sum(super().sum_losses(losses))


class Replicated(DataParallel):
    """Data parallelism with a replicated objective."""

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
        """Make DDP rebuild its gradient buckets, as it does after its first pass.

        Buckets determine the order of sums over three or more processes: a resumed run must start
        with the buckets of an uninterrupted one. The pass has no other effect.
        """
        totals = self._replicas(batch)
        super().backward(torch.stack(list(totals.values())).sum())
        self._replicas.zero_grad(set_to_none=True)

    def accumulating(self, *, is_last: bool) -> AbstractContextManager[None]:
        """Enter a micro-batch; gradients are summed over processes in the last one."""
        return nullcontext() if is_last else self._replicas.no_sync()

    def backward(self, share: Tensor) -> None:
        """Add the gradients of this process's share of the loss."""
        # DDP averages gradients over processes; the loss is a sum.
        (share * self._world.size).backward()  # type: ignore[no-untyped-call]
