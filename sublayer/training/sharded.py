"""Sharded objectives: each process holds a part of every parameter, gradient and moment.

Sharding is PyTorch's ``fully_shard`` (FSDP2). Zhao et al. 2023 (2304.11277), Rajbhandari et al.
2020 (1910.02054): ``optimizer`` is the second stage of ZeRO, ``full`` its third.
``torch.distributed.checkpoint`` writes a safetensors file per process, without pickle; any number
of processes can read them.
"""

import logging
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.hf_storage import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard, distribute_tensor

from sublayer.config.optimizers import Axes, OptimizerConfig, Shape, all_axes
from sublayer.data.batches import AnyBatch
from sublayer.errors import CheckpointError
from sublayer.files.tensors import StoredTensors
from sublayer.model.parameters import named_parameters, parameter_roles
from sublayer.objective.base import Objective
from sublayer.training.optimizers import Division
from sublayer.training.parallel import Alone, DataParallel, Owner, Owners
from sublayer.training.world import World

# Silences the library's log of every step, and of the missing index.
logging.getLogger("torch.distributed.checkpoint").setLevel(logging.ERROR)


def write_parts(
    tensors: Mapping[str, Tensor], folder: Path, group: dist.ProcessGroup | None = None
) -> None:
    """Write the parts of distributed tensors, from each process, and replicated tensors once.

    Collective. Raises CheckpointError in all processes if one cannot write.
    """
    writer = HuggingFaceStorageWriter(str(folder), save_distributed=True)
    try:
        save(dict(tensors), storage_writer=writer, process_group=group)
    except CheckpointException as error:
        raise CheckpointError(
            f"cannot write {folder}: {_reason(error)}: free some space, then --resume"
        ) from None


def read_parts(tensors: Mapping[str, Tensor], stored: StoredTensors) -> None:
    """Read stored values into distributed tensors, in place.

    Collective. Raises CheckpointError in all processes if one cannot read.
    """
    folder = stored.whole.parent if stored.is_whole else stored.folder
    # All files of the folder are read, so that the last would win.
    others = {*folder.glob("*.safetensors")} - {*stored.files()}
    if others:
        raise CheckpointError(
            f"{folder} has {min(others).name} besides {stored.files()[0].name}, but one of them "
            "belongs to another checkpoint: remove it"
        )
    reader = HuggingFaceStorageReader(str(folder))
    try:
        load(dict(tensors), storage_reader=reader)
    except CheckpointException as error:
        raise CheckpointError(f"{folder} cannot be read: {_reason(error)}") from None


def _reason(error: CheckpointException) -> str:
    """Return the message of the first process that failed."""
    _, (cause, _) = min(error.failures.items())
    return str(cause)


# The warning does not apply, since outputs of sub-layers are not changed in place.
warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")

Sharding = Literal["optimizer", "full"]


class Sharded(DataParallel):
    """Sharded objective, whose weights are gathered when needed.

    A block is gathered before it is computed. With ``full`` it is freed afterwards, and gathered
    again for its backward pass; with ``optimizer`` it is kept until the step's last backward pass.
    Shared weights and weights outside blocks are kept so in both.
    """

    caches_casts = False
    """Whether casts may be kept: they would outlive the gathered weights, and hold the graph of
    another micro-batch."""

    def __init__(
        self,
        objective: Objective,
        world: World,
        shard: Sharding,
        optimizer: OptimizerConfig,
        seed: int,
    ) -> None:
        """Shard an objective in place; one on the meta device is initialized shard by shard."""
        # Sharding comes first, since earlier tensors of the objective would remain unsharded.
        self._units = _shard(objective, world, gives_up=shard == "full")
        if next(objective.parameters()).is_meta:
            objective.to_empty(device=world.device)
            _draw_parts(objective, seed)
        # Initialized before the first step, when a block would become its own root; this also
        # allocates unevenly sharded parameters. There is no public API.
        self._units[-1]._get_fsdp_state()._lazy_init()
        super().__init__(objective, world)
        self._shard = shard
        self._optimizer = optimizer
        self._all: dict[str, DTensor] = {
            name: value for name, value in named_parameters(objective) if isinstance(value, DTensor)
        }
        # Views of this process's shards, updated by the optimizer.
        self.parameters = {
            name: nn.Parameter(self._all[name].to_local().detach()) for name in self.parameters
        }
        parts: dict[Tensor, tuple[Shape, int]] = {
            parameter: (tuple(self._all[name].shape), _axis_of(self._all[name]))
            for name, parameter in self.parameters.items()
        }
        self.division = Division(parts, world.sum, world.rank, world.size)

    def compile(self) -> None:
        """Compile the training passes: each sub-layer separately, and the code between them.

        The gathering of weights at a block's start breaks graphs. Without separate graphs the
        sub-layers of a recomputed block would not be compiled at all.
        """
        super().compile()
        for stack in self._objective.model.stacks:
            stack.map_slots(nn.Module.compile)

    def begin(self, batches: Sequence[AnyBatch]) -> int:
        """Begin a step; all processes need equally many passes, since they gather together."""
        # On the CPU, without synchronizing another device.
        numbers = self._world.gather_equal(torch.tensor([super().begin(batches)]))
        return max(int(number) for number in numbers)

    @contextmanager
    def accumulating(self, *, is_last: bool) -> Iterator[None]:
        """Enter a micro-batch; gradients are reduced and scattered in the last one."""
        root = self._units[-1]
        root.set_requires_gradient_sync(is_last)
        root.set_is_last_backward(is_last)
        # Weights that are kept through a pass are kept for the step's next pass, too.
        root.set_reshard_after_backward(is_last, recurse=self._shard == "optimizer")
        yield
        if is_last:
            for name, parameter in self.parameters.items():
                gradient = self._all[name].grad
                self._all[name].grad = None
                parameter.grad = gradient.to_local() if isinstance(gradient, DTensor) else None

    def gradient_norm(self, gradients: Iterable[Tensor]) -> Tensor:
        """Compute the global L2 norm of the gradient from the norms of shards."""
        square = super().gradient_norm(gradients).square()
        return self._world.sum(square).sqrt()

    def local(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this process's parts of weights, by name, as writable views."""
        return {
            name: tensor.to_local().detach() if isinstance(tensor, DTensor) else tensor.detach()
            for name, tensor in tensors.items()
        }

    def to_write(self, tensors: Mapping[str, Tensor], owner: Owners) -> dict[str, Tensor]:
        """Return the tensors that this process writes to a file: its shards."""
        return {name: self._whole(value, owner(name)) for name, value in tensors.items()}

    @staticmethod
    def write(tensors: Mapping[str, Tensor], stored: StoredTensors, world: World) -> None:
        """Write the processes' shards, a file per process.

        Collective over ``world``, in any thread. Raises CheckpointError in all processes if one
        cannot write.
        """
        if not tensors:
            # Without any part, missing parts would go unnoticed.
            Alone.write(tensors, stored, world)
            return
        world.by_first(lambda: stored.folder.mkdir(exist_ok=True))
        write_parts(tensors, stored.folder, world.group)

    def read(self, owner: Owners, stored: StoredTensors) -> dict[str, Tensor]:
        """Read this process's shards of stored tensors, however sharded; collective.

        Raises CheckpointError, OSError and SafetensorError.
        """
        targets = {}
        for name, header in stored.headers().items():
            part = self._all[owner(name).parameter].to_local()
            shape = [part.shape[axis] for axis in self._axes(owner(name))]
            value = torch.empty(shape, dtype=header.torch_dtype, device=self._world.device)
            targets[name] = self._whole(value, owner(name))
        read_parts(targets, stored)
        return self.local(targets)

    def _whole(self, value: Tensor, owner: Owner) -> Tensor:
        """Return a shard as a distributed tensor with its parameter's sharding.

        A tensor without the sharded axis is replicated.
        """
        value = value.detach()
        parameter = self._all[owner.parameter]
        axes = self._axes(owner)
        if isinstance(value, DTensor) or _axis_of(parameter) not in axes:
            return value
        shape = torch.Size([parameter.shape[axis] for axis in axes])
        return DTensor.from_local(
            value,
            parameter.device_mesh,
            [Shard(axes.index(_axis_of(parameter)))],
            run_check=False,
            shape=shape,
            stride=torch.empty(shape, device="meta").stride(),
        )

    def _axes(self, owner: Owner) -> Axes:
        """Return the axes of its parameter that a tensor has."""
        shape, role = tuple(self._all[owner.parameter].shape), self.roles[owner.parameter]
        if not owner.state:
            return all_axes(shape)
        return self._optimizer.state_axes(shape, role)[owner.state]

    @contextmanager
    def whole_weights(self) -> Iterator[None]:
        """Gather all weights for work without synchronization, such as scoring."""
        root = self._units[-1]

        root.set_reshard_after_forward(False)
        for unit in self._units:
            unit.unshard()
        try:
            # Eager, since sub-layers are compiled for the shapes of training.
            with torch.compiler.set_stance("force_eager"):
                yield
        finally:
            # Weights are freed without a record of the order, which is only learned in training.
            root.reset_iter_state()
            for unit in self._units[:-1]:
                unit.set_reshard_after_forward(self._shard == "full", recurse=False)


def _shard(objective: Objective, world: World, *, gives_up: bool) -> list[FSDPModule]:
    """Shard an objective in place; return its units, the root with all other weights last."""
    mesh = init_device_mesh(world.device.type, (world.size,))
    by_name = parameter_roles(objective)
    roles = {id(parameter): by_name[name] for name, parameter in named_parameters(objective)}

    def shard(parameter: nn.Parameter) -> Shard:
        """Choose the first axis that divides evenly, for stacked maps one within a map.

        If there is none, it is the first axis, the only one that may be sharded unevenly.
        """
        axes = list(range(parameter.dim()))
        if roles[id(parameter)] == "stacked":
            axes = [*axes[1:], 0]
        return Shard(next((axis for axis in axes if parameter.shape[axis] % world.size == 0), 0))

    units: list[FSDPModule] = []
    for stack in objective.model.stacks:
        blocks = [stack.block(layer) for layer in range(len(stack.slots))]
        n_uses = Counter(id(sublayer) for block in blocks for sublayer in block)
        for block in blocks:
            unshared: list[nn.Module] = [part for part in block if n_uses[id(part)] == 1]
            if unshared:
                fully_shard(
                    unshared, mesh=mesh, reshard_after_forward=gives_up, shard_placement_fn=shard
                )
                units.append(_as_unit(unshared[0]))
    fully_shard(objective, mesh=mesh, reshard_after_forward=False, shard_placement_fn=shard)
    units.append(_as_unit(objective))
    for unit in units:
        # The loss is a sum over processes, not a mean.
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
    return units


@torch.no_grad()
def _draw_parts(objective: Objective, seed: int) -> None:
    for parameter, value in objective.initial_values(seed):
        if isinstance(parameter, DTensor):
            # Without a source rank, since every process has the value.
            mesh, placements = parameter.device_mesh, parameter.placements
            divided = distribute_tensor(value, mesh, placements, src_data_rank=None)
            parameter.to_local().copy_(divided.to_local())
        else:
            parameter.copy_(value)


def _axis_of(parameter: DTensor) -> int:
    """Return a parameter's sharded axis."""
    (placement,) = parameter.placements
    assert isinstance(placement, Shard), "every parameter must be sharded"
    return placement.dim


def _as_unit(module: nn.Module) -> FSDPModule:
    """Return a module as the ``FSDPModule`` that it is after ``fully_shard``."""
    assert isinstance(module, FSDPModule), "the module must be sharded"
    return module
