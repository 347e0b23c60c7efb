"""Sharding: each process holds a part of every parameter, of its gradient and of its moments.

By PyTorch's ``fully_shard`` (FSDP2). Zhao et al. 2023 (2304.11277), Rajbhandari et al. 2020
(1910.02054): ``optimizer`` is the second stage of ZeRO, ``full`` its third.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Literal

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, Shard

from sublayer.config.optimizers.kinds import OptimizerConfig
from sublayer.config.optimizers.lamb import LambConfig
from sublayer.data.batches import Batches
from sublayer.errors import ConfigError
from sublayer.files.tensor_parts import StoredTensors, read_stored_headers
from sublayer.model.layers.stack import Stack
from sublayer.model.roles import Role, parameter_roles
from sublayer.objective.base import Objective
from sublayer.training.optimizers.norms import Norms
from sublayer.training.processes.alone import Held, MicroBatch
from sublayer.training.processes.data_parallel import DataParallel
from sublayer.training.processes.part_files import read_parts, write_parts
from sublayer.training.processes.world import World

Sharding = Literal["optimizer", "full"]


class Sharded(DataParallel):
    """An objective of which each process holds a part, and gathers the weights as it needs them.

    A block is gathered before it is computed. With ``full`` it is given up behind it and gathered
    again for its backward pass, with ``optimizer`` kept in between. What several blocks share, and
    all that is outside them, is gathered once a micro-batch.
    """

    caches_casts = False
    """A cast of gathered weights would outlive them, and hold the graph of another micro-batch."""

    def __init__(self, objective: Objective, world: World, shard: Sharding) -> None:
        # First: what the objective has before would be kept whole.
        self._units = _shard(objective, world, gives_up=shard == "full")
        super().__init__(objective, world)
        self._shard = shard
        self._all: dict[str, DTensor] = {
            name: each for name, each in objective.named_parameters() if isinstance(each, DTensor)
        }
        roles = parameter_roles(objective)
        self._uneven = [
            name
            for name in self.parameters
            if roles[name] == "stacked" and self._all[name].placements == (Shard(0),)
        ]
        # Views of this process's parts, which the optimizer changes.
        self.parameters = {
            name: nn.Parameter(self._all[name].to_local().detach()) for name in self.parameters
        }

    def micro_batches(
        self, batches: Batches, step: int, n_sequences: int, context: int
    ) -> list[MicroBatch]:
        """Return what this process computes: as many micro-batches as any other.

        Weights are gathered for each, by all. Who has fewer computes its last one again, which
        does not count.
        """
        own = super().micro_batches(batches, step, n_sequences, context)
        numbers = self._world.gather_equal(torch.tensor([len(own)]))
        for index in range(len(own), max(int(each) for each in numbers)):
            own.append(replace(own[-1], index=index, counts=False))
        return own

    @contextmanager
    def accumulating(self, *, is_last: bool) -> Iterator[None]:
        """Enter a micro-batch; gradients are summed and divided among processes with the last."""
        root = self._units[-1]
        root.set_requires_gradient_sync(is_last)
        root.set_is_last_backward(is_last)
        yield
        if is_last:
            for name, own in self.parameters.items():
                gradient = self._all[name].grad
                self._all[name].grad = None
                own.grad = gradient.to_local() if isinstance(gradient, DTensor) else None

    def norms(self, optimizer: OptimizerConfig) -> Norms:
        """Return the norms of whole parameters, from those of all processes' parts.

        Raises ConfigError where an optimizer goes by maps that a process has no part of.
        """
        if self._uneven and isinstance(optimizer, LambConfig):
            raise ConfigError(
                "optimizer.kind = lamb adapts each map that is stored with others, and "
                f"{self._world.size} processes do not divide those of {self._uneven[0]} evenly: "
                "start another number of processes"
            )
        return Norms(self._world.sum)

    def gradient_norm(self, gradients: Iterable[Tensor]) -> Tensor:
        """Compute the L2 norm of the whole gradient from those of all parts."""
        square = super().gradient_norm(gradients).square()
        return self._world.sum(square).sqrt()

    def local(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this process's parts of weights, by name: views, which change them."""
        return {
            name: each.to_local().detach() if isinstance(each, DTensor) else each.detach()
            for name, each in tensors.items()
        }

    def write(self, tensors: Sequence[Held], stored: StoredTensors) -> None:
        """Write this process's parts of tensors to a file of its own; all enter.

        Raises CheckpointError in all where one cannot write.
        """
        self._world.by_first(lambda: stored.folder.mkdir(exist_ok=True))
        write_parts({each.name: self._whole(each) for each in tensors}, stored.folder)

    def read(self, owner: Callable[[str], str], stored: StoredTensors) -> dict[str, Tensor]:
        """Read this process's parts of stored tensors, whoever wrote them; all enter.

        Raises CheckpointError, OSError and SafetensorError.
        """
        targets = {}
        for name, header in read_stored_headers(stored).items():
            parameter = self._all[owner(name)]
            shape = header.shape
            if shape == list(parameter.shape):
                shape = list(parameter.to_local().shape)
            value = torch.empty(shape, dtype=header.torch_dtype, device=self._world.device)
            targets[name] = self._whole(Held(name, owner(name), value))
        read_parts(targets, stored)
        return self.local(targets)

    def _whole(self, held: Held) -> Tensor:
        """Return a part of a tensor as one of a whole that is divided as its parameter is."""
        value = held.value.detach()
        parameter = self._all[held.parameter]
        if isinstance(value, DTensor) or value.shape != parameter.to_local().shape:
            return value
        return DTensor.from_local(
            value,
            parameter.device_mesh,
            parameter.placements,
            run_check=False,
            shape=parameter.shape,
            stride=parameter.stride(),
        )

    @contextmanager
    def whole_weights(self) -> Iterator[None]:
        """Gather all weights for what every process computes at its own pace, such as scores."""
        root = self._units[-1]
        # Before the first step a block would take itself for the root. There is no public name.
        root._get_fsdp_state()._lazy_init()
        root.set_reshard_after_forward(False)
        for unit in self._units:
            unit.unshard()
        try:
            yield
        finally:
            # Weights are given up; what was computed is no part of a step, by whose order blocks
            # are gathered ahead.
            root.reset_iter_state()
            for unit in self._units[:-1]:
                unit.set_reshard_after_forward(self._shard == "full", recurse=False)


def _shard(objective: Objective, world: World, *, gives_up: bool) -> list[FSDPModule]:
    """Shard an objective in place; return its units, the root, which has all the rest, last."""
    mesh = init_device_mesh(world.device.type, (world.size,))
    roles = {id(each): role for each, role in _with_roles(objective)}

    def place(parameter: nn.Parameter) -> Shard:
        return Shard(_sharded_axis(parameter, roles[id(parameter)], world.size))

    units: list[FSDPModule] = []
    for stack in objective.model.stacks:
        for block in _own_blocks(stack):
            fully_shard(block, mesh=mesh, reshard_after_forward=gives_up, shard_placement_fn=place)
            units.append(_as_unit(block[0]))
    fully_shard(objective, mesh=mesh, reshard_after_forward=False, shard_placement_fn=place)
    units.append(_as_unit(objective))
    for unit in units:
        # The loss is a sum over processes, not a mean.
        unit.set_gradient_divide_factor(1.0)
        unit.set_force_sum_reduction_for_comms(True)
    return units


def _as_unit(module: nn.Module) -> FSDPModule:
    """Return a module as what ``fully_shard`` has made of it, in place."""
    assert isinstance(module, FSDPModule), "it has been sharded"
    return module


def _own_blocks(stack: Stack) -> Iterator[list[nn.Module]]:
    """Generate the sub-layers of each block that are its alone."""
    blocks = [stack.block(layer) for layer in range(len(stack.slots))]
    n_uses: dict[int, int] = {}
    for block in blocks:
        for sublayer in block:
            n_uses[id(sublayer)] = n_uses.get(id(sublayer), 0) + 1
    for block in blocks:
        own: list[nn.Module] = [each for each in block if n_uses[id(each)] == 1]
        if own:
            yield own


def _with_roles(objective: Objective) -> Iterator[tuple[nn.Parameter, Role]]:
    roles = parameter_roles(objective)
    for name, parameter in objective.named_parameters():
        yield parameter, roles[name]


def _sharded_axis(parameter: Tensor, role: Role, size: int) -> int:
    """Return the axis that is divided: the first that is even, of maps stored together one of each.

    The first axis alone may be divided unevenly.
    """
    axes = list(range(parameter.dim()))
    if role == "stacked":
        axes = [*axes[1:], 0]
    for axis in axes:
        if parameter.shape[axis] % size == 0:
            return axis
    return 0
