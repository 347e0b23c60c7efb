"""Replicated objectives: a single process, data parallelism, and sums exact to the bit.

Floating-point sums depend on their order. For the same bits on any number of processes, the order
is a binary tree over parts 0, 1, 2, ...: 0 with 1, 2 with 3, then the sums of pairs, and so on; a
node without a partner is passed up. A process sums the subtrees within its consecutive parts; the
remaining additions complete the same tree.
"""

import copy
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from itertools import accumulate, compress
from pathlib import Path
from typing import Generic, TypeVar

import torch
import torch.distributed as dist
from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from sublayer.data.batches import AnyBatch, Batches
from sublayer.errors import CheckpointError
from sublayer.files.tensors import StoredTensors
from sublayer.model.parameters import named_parameters, parameter_roles
from sublayer.objective.base import Objective
from sublayer.training.optimizers import WHOLE, Division
from sublayer.training.world import World


@dataclass(frozen=True)
class MicroBatch:
    """Micro-batch: the part of a step that one forward and backward pass computes."""

    batch: AnyBatch
    index: int
    """Number, from 0, among those of its process or, if micro-batches belong to no process, of the
    step."""
    rank: int = 0
    """Rank that seeds its dropout."""


@dataclass(frozen=True)
class Owner:
    """Parameter that a checkpoint's tensor belongs to."""

    parameter: str
    """Persistent name of the parameter in the objective."""
    state: str = ""
    """Name of the optimizer's state of the parameter; empty: the tensor is the parameter."""


Owners = Callable[[str], Owner]
"""Function that returns the owner of a file's tensor, by its name in the file."""


RunPasses = Callable[[Iterable[int], nn.Module], list[Tensor]]
"""Runs passes of a step, by number, on an objective or its wrapper; returns their losses."""


class Alone:
    """Objective trained by one process; subclasses distribute it."""

    caches_casts = True
    """Whether casts of weights to bfloat16 may be kept for a step."""

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
        """Sharding of those parameters."""

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
        """Begin a step of micro-batches, and return its number of passes.

        Collective. Passes beyond the number of micro-batches repeat the last one, without counting
        it.
        """
        return len(batches)

    def prepare(self, step: int, steps: int) -> None:
        """Prepare the objective for step ``step`` (0-based) of ``steps``, in training mode."""
        self._objective.train()
        self._objective.begin(step, steps)

    def run(self, n_passes: int, run: RunPasses) -> list[Tensor]:
        """Run the passes of a step, in order, and return their losses."""
        return run(range(n_passes), self._forward)

    def accumulating(self, *, is_last: bool) -> AbstractContextManager[None]:
        """Enter a micro-batch; after the last one, gradients are summed over processes.

        The context contains forward and backward pass; gradients are exchanged in the last backward
        pass.
        """
        return nullcontext()

    def backward(self, share: Tensor) -> None:
        """Add the gradients of this process's share of the loss, which is a sum over processes."""
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
        """Gather all weights into the model, for work without synchronization.

        Entering and leaving the context are collective.
        """
        return nullcontext()

    def local(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return this process's parts of weights, by name, as writable views."""
        return {name: tensor.detach() for name, tensor in tensors.items()}

    def to_write(self, tensors: Mapping[str, Tensor], owner: Owners) -> dict[str, Tensor]:
        """Return the tensors that this process writes to a file: all on rank 0, else none.

        ``tensors`` are this process's tensors, by name in the file.
        """
        if not self._world.is_main:
            return {}
        return {name: value.detach().contiguous() for name, value in tensors.items()}

    @staticmethod
    def write(tensors: Mapping[str, Tensor], stored: StoredTensors, world: World) -> None:
        """Write the tensors of ``to_write``, or copies; collective over ``world``, in any thread.

        Raises CheckpointError in all processes if one cannot write.
        """
        world.by_first(lambda: _write_whole(tensors, stored.whole))

    def read(self, owner: Owners, stored: StoredTensors) -> dict[str, Tensor]:
        """Read this process's parts of stored tensors; collective.

        Raises CheckpointError, OSError and SafetensorError.
        """
        return stored.read()


def _write_whole(tensors: Mapping[str, Tensor], path: Path) -> None:
    try:
        save_file(dict(tensors), path)
    except SafetensorError as error:
        raise CheckpointError(
            f"cannot write {path}: {error}: free some space, then --resume"
        ) from None


def divided(batch: AnyBatch, n_sequences: int, context: int, *, rank: int = 0) -> list[MicroBatch]:
    """Divide a process's rows into micro-batches, in order."""
    size = batch.micro_rows(n_sequences, context)
    starts = range(0, len(batch), size)
    return [
        MicroBatch(batch[start : start + size], index, rank) for index, start in enumerate(starts)
    ]


class Replicas(Alone):
    """Objective of one process, and replicas on its weights, each with a share of the threads.

    A replica runs its part of the passes in a thread of its own, without waiting for the others in
    every operation, and has gradients of its own. Nothing may be drawn at random.
    """

    def __init__(self, objective: Objective, world: World, n_replicas: int) -> None:
        super().__init__(objective, world)
        own = [*objective.parameters(), *objective.buffers()]
        self._replicas = []
        for _ in range(n_replicas - 1):
            # Each parameter is a tensor of its own, on the same storage.
            shared = {
                id(each): nn.Parameter(each.detach(), requires_grad=each.requires_grad)
                if isinstance(each, nn.Parameter)
                else each
                for each in own
            }
            self._replicas.append(copy.deepcopy(objective, dict[int, object](shared)))
        # A parameter of the objective, and that of a replica on its storage.
        self._pairs = [
            pair
            for replica in self._replicas
            for pair in zip(objective.parameters(), replica.parameters(), strict=True)
        ]
        self._threads = ThreadPoolExecutor(n_replicas - 1, "replica")

    def micro_batches(
        self, batches: Batches, step: int, n_sequences: int, context: int
    ) -> list[MicroBatch]:
        """Divide the step so that all replicas together compute ``n_sequences`` at a time."""
        each = n_sequences // (1 + len(self._replicas))
        return divided(batches.batch(step), each, context)

    def prepare(self, step: int, steps: int) -> None:
        """Prepare all replicas, with the weights of the objective."""
        super().prepare(step, steps)
        for replica in self._replicas:
            replica.train()
            replica.begin(step, steps)
        for own, shared in self._pairs:
            shared.data = own.data

    def run(self, n_passes: int, run: RunPasses) -> list[Tensor]:
        """Run the passes in turn by replica, then sum gradients in the order of replicas."""
        n = 1 + len(self._replicas)
        n_threads = torch.get_num_threads()

        def run_part(number: int, forward: nn.Module) -> list[Tensor]:
            torch.set_num_threads(max(1, n_threads // n))
            return run(range(number, n_passes, n), forward)

        started = [
            self._threads.submit(run_part, number, replica)
            for number, replica in enumerate(self._replicas, start=1)
        ]
        try:
            losses = run_part(0, self._objective)
        finally:
            wait(started)
            torch.set_num_threads(n_threads)
        parts = [losses, *(each.result() for each in started)]
        for own, shared in self._pairs:
            if own.grad is None:
                own.grad = shared.grad
            elif shared.grad is not None:
                own.grad.add_(shared.grad)
            shared.grad = None
        return [parts[number % n][number // n] for number in range(n_passes)]


class DataParallel(Alone):
    """Data parallelism: processes compute parts of batches; subclasses sum gradients."""

    def micro_batches(
        self, batches: Batches, step: int, n_sequences: int, context: int
    ) -> list[MicroBatch]:
        """Return this process's micro-batches, from rows ``rank``, ``rank + size``, and so on."""
        rank = self._world.rank
        batch = batches.batch(step, rank=rank, world=self._world.size)
        return divided(batch, n_sequences, context, rank=rank)

    def sum_losses(self, losses: Sequence[Tensor]) -> Tensor:
        """Sum losses over this process's micro-batches, then over processes."""
        return self._world.sum(super().sum_losses(losses))


class Replicated(DataParallel):
    """Data parallelism with a replicated objective, by PyTorch's DDP."""

    def __init__(self, objective: Objective, world: World) -> None:
        super().__init__(objective, world)
        self._replicas = DistributedDataParallel(
            objective,
            gradient_as_bucket_view=True,
            find_unused_parameters=objective.has_unused_parameters,
        )
        self._forward = self._replicas
        self._is_arranged = objective.has_unused_parameters or world.size == 2
        """Whether the order of gradient sums is fixed, or does not matter."""

    def begin(self, batches: Sequence[AnyBatch]) -> int:
        """Begin a step; before the first one, gradients are grouped into buckets."""
        if not self._is_arranged:
            # Make DDP rebuild its gradient buckets, as it does after its first pass: buckets
            # determine the order of sums over three or more processes, and a resumed run must start
            # with those of an uninterrupted run. The pass has no other effect.
            totals = self._replicas(batches[0])
            super().backward(torch.stack(list(totals.values())).sum())
            self._replicas.zero_grad(set_to_none=True)
            self._is_arranged = True
        return super().begin(batches)

    def accumulating(self, *, is_last: bool) -> AbstractContextManager[None]:
        """Enter a micro-batch; gradients are summed over processes in the last one."""
        return nullcontext() if is_last else self._replicas.no_sync()

    def backward(self, share: Tensor) -> None:
        """Add the gradients of this process's share of the loss."""
        # DDP averages gradients over processes, but the loss is a sum.
        (share * self._world.size).backward()  # type: ignore[no-untyped-call]


T = TypeVar("T")


Node = tuple[int, int]
"""Root of a subtree, ``(level, index)``: ``2**level`` parts from ``index * 2**level`` on."""


class TreeSum(Generic[T]):
    """Sum of parts in the order of a tree, with at most one intermediate sum per level.

    ``add`` may change its first argument, which is not reused.
    """

    def __init__(self, add: Callable[[T, T], T]) -> None:
        self._add = add
        self._stack: list[tuple[Node, T]] = []

    def push(self, node: Node, value: T) -> None:
        """Add the sum of the next subtree."""
        level, index = node
        # An odd index is the right half of a larger subtree.
        while index % 2 and self._stack and self._stack[-1][0] == (level, index - 1):
            _, left = self._stack.pop()
            value = self._add(left, value)
            level, index = level + 1, index // 2
        self._stack.append(((level, index), value))

    @property
    def nodes(self) -> list[tuple[Node, T]]:
        """Sums of the largest complete subtrees, in order."""
        return list(self._stack)

    def total(self) -> T:
        """Return the sum of all parts; a node without a partner is passed up."""
        (_, value), *others = reversed(self._stack)
        for _, left in others:
            value = self._add(left, value)
        return value


def part_range(rank: int, size: int, n_parts: int) -> range:
    """Return the consecutive parts of process ``rank`` of ``size``."""
    return range(rank * n_parts // size, (rank + 1) * n_parts // size)


def subtrees(parts: range) -> list[Node]:
    """Return the largest complete subtrees of consecutive parts, in order."""
    tree = TreeSum[None](lambda left, right: None)
    for part in parts:
        tree.push((0, part), None)
    return [node for node, _ in tree.nodes]


Gradients = list[Tensor | None]
"""Gradient of each parameter; None if the parameter was not used."""
Sums = Sequence[tuple[Node, Gradients]]
"""A process's sums of gradients, over the largest complete subtrees of its parts."""

_ALIGNED = 16
"""Alignment of gradients in elements, 64 bytes, so that kernels treat all gradients alike."""
_BUCKET = 1 << 22
"""Minimum number of elements to exchange at a time, 16 MiB, if there are as many."""
_NOTHING = -0.0
"""Number whose addition leaves every number unchanged, even zeros of either sign."""


def add_gradients(left: Gradients, right: Gradients) -> Gradients:
    """Add gradients to ``left`` in place; for a parameter unused on one side, take the other's."""
    both = [(a, b) for a, b in zip(left, right, strict=True) if a is not None and b is not None]
    if both:
        torch._foreach_add_([a for a, _ in both], [b for _, b in both])
    return [b if a is None else a for a, b in zip(left, right, strict=True)]


def exchange(world: World, parameters: Sequence[Tensor], sums: Sums, n_parts: int) -> Gradients:
    """Return the gradients of all ``n_parts`` micro-batches, bit-identical in all processes.

    ``sums`` are this process's sums. Collective. A parameter that no process used has None.
    """
    partials = [partial for _, partial in sums]
    used = [any(grad is not None for grad in column) for column in zip(*partials, strict=True)]
    # On the CPU, without synchronizing another device.
    n_using = world.sum(torch.tensor(used, dtype=torch.float32))
    totals: Gradients = [None] * len(parameters)
    bucket: list[int] = []
    size = 0
    indices = list(compress(range(len(parameters)), (n_using > 0).tolist()))
    for index in indices:
        bucket.append(index)
        size += parameters[index].numel()
        if size >= _BUCKET or index == indices[-1]:
            shapes = [parameters[index].shape for index in bucket]
            of_bucket = [[gradients[index] for index in bucket] for gradients in partials]
            summed = _exchanged(world, shapes, of_bucket, n_parts)
            for place, total in zip(bucket, summed, strict=True):
                totals[place] = total
            bucket, size = [], 0
    return totals


def _exchanged(
    world: World, shapes: Sequence[torch.Size], partials: Sequence[Gradients], n_parts: int
) -> list[Tensor]:
    """Sum the gradients of some parameters; ``partials`` are this process's sums, by subtree."""
    starts = list(accumulate((_rounded(shape.numel()) for shape in shapes), initial=0))
    chunk_size = _rounded(math.ceil(starts[-1] / world.size))
    # The elements summed by one process are contiguous: [size, subtrees, share].
    flat = torch.empty(len(partials), world.size * chunk_size, device=world.device)
    for row, gradients in zip(flat, partials, strict=True):
        # Gradients are placed at aligned starts, and gaps add nothing.
        end = 0
        for start, gradient in zip(starts, gradients, strict=False):
            if gradient is not None:
                row[end:start] = _NOTHING
                end = start + gradient.numel()
                row[start:end] = gradient.flatten()
        row[end:] = _NOTHING
    sent = flat.view(len(partials), world.size, chunk_size).transpose(0, 1).flatten()
    nodes = [subtrees(part_range(rank, world.size, n_parts)) for rank in range(world.size)]
    lengths = [len(of_rank) * chunk_size for of_rank in nodes]
    received = sent.new_empty(sum(lengths))
    dist.all_to_all_single(received, sent, lengths, [len(partials) * chunk_size] * world.size)
    total = TreeSum[Tensor](Tensor.add_)
    ordered = [node for of_rank in nodes for node in of_rank]
    for node, numbers in zip(ordered, received.view(-1, chunk_size), strict=True):
        total.push(node, numbers)
    summed = sent.new_empty(world.size * chunk_size)
    dist.all_gather(list(summed.view(world.size, chunk_size).unbind()), total.total())
    return [
        summed[start : start + shape.numel()].view(shape)
        for start, shape in zip(starts, shapes, strict=False)
    ]


def _rounded(n: int) -> int:
    """Round up to the alignment of gradients."""
    return -(-n // _ALIGNED) * _ALIGNED


class Exact(Alone):
    """Replicated objective with sums independent of the number of processes.

    A step is divided into ``n_parts`` micro-batches: number k has rows k, k + n_parts, and so on. A
    process computes consecutive micro-batches. Gradients and losses are summed in the order of one
    tree (``TreeSum``), also across processes: a process receives all sums for its part of the
    parameters, adds them, and distributes the result.
    """

    def __init__(self, objective: Objective, world: World, *, n_parts: int) -> None:
        super().__init__(objective, world)
        self._n_parts = n_parts
        self._parameters = list(self.parameters.values())
        self._own = part_range(world.rank, world.size, n_parts)

    def micro_batches(
        self, batches: Batches, step: int, n_sequences: int, context: int
    ) -> list[MicroBatch]:
        """Return this process's micro-batches, numbered within the step."""
        return [
            MicroBatch(batches.batch(step, rank=part, world=self._n_parts), part)
            for part in self._own
        ]

    def begin(self, batches: Sequence[AnyBatch]) -> int:
        """Begin a step with an empty tree."""
        self._next = iter(self._own)
        self._sum = TreeSum[Gradients](add_gradients)
        return super().begin(batches)

    @contextmanager
    def accumulating(self, *, is_last: bool) -> Iterator[None]:
        """Enter a micro-batch, and add its gradients to the tree, which the last one completes."""
        yield
        gradients = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None
        self._sum.push((0, next(self._next)), gradients)
        if is_last:
            total = (
                self._sum.total()
                if self._world.size == 1
                else exchange(self._world, self._parameters, self._sum.nodes, self._n_parts)
            )
            for parameter, gradient in zip(self._parameters, total, strict=True):
                parameter.grad = gradient

    def sum_losses(self, losses: Sequence[Tensor]) -> Tensor:
        """Add the losses of all micro-batches of the step in the order of the tree."""
        size, all_losses = self._world.size, list(losses)
        if size > 1:
            padded = losses[0].new_zeros(-(-self._n_parts // size))
            padded[: len(losses)] = torch.stack(all_losses)
            all_losses = [
                loss
                for rank, row in enumerate(self._world.gather_equal(padded))
                for loss in row[: len(part_range(rank, size, self._n_parts))].unbind()
            ]
        total = TreeSum[Tensor](Tensor.add)
        for part, loss in enumerate(all_losses):
            total.push((0, part), loss)
        return total.total()
