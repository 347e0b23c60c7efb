"""Data-parallel training of one model: devices, memory, traffic and time of its processes.

From the settings only. Sizes are bytes; ``benchmarks/processes_memory.py`` checks memory against
processes over gloo. Traffic assumes ring algorithms: around a ring of n, all-gather and
reduce-scatter of N bytes send ``N (n - 1) / n``, all-reduce twice that (Patarasuk & Yuan 2009).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sublayer.config.objective import ObjectiveTable
from sublayer.config.optimizers import OptimizerConfig
from sublayer.config.recipe import ResolvedModel, ResolvedRecipe
from sublayer.config.stacks import attention_forms, stacks
from sublayer.errors import ConfigError, nearest_hint
from sublayer.estimate.memory import (
    TrainingMemory,
    block_activations,
    holes,
    n_frozen_parameters,
    n_states,
    step_sizes,
    training_memory,
    whole_copy,
    work_space,
)
from sublayer.model.estimates import (
    FLOAT32_BYTES,
    DeviceKind,
    Precision,
    Workload,
    count_parameters,
    estimate_of,
    n_own_parameters,
)
from sublayer.system.machine import check_memory

_GB = 10**9
_TERA = 10**12

DEVICES_PER_MACHINE = 8
"""Devices of one machine: those joined by the table's links."""


@dataclass(frozen=True)
class Device:
    """A device that runs one process.

    Rates are datasheet peaks, which no program reaches, for dense matrices. Links are one way: half
    of the datasheet's sum.
    """

    title: str
    memory_bytes: int
    """Bytes, of 10**9 per GB, as sold; a driver may leave somewhat more or less."""
    bfloat16_per_s: float
    """Floating-point operations of matrix products."""
    float32_per_s: float
    """Without TF32, which PyTorch disables by default and nothing here enables."""
    link_bytes_per_s: float
    """One-way rate between devices of one machine."""
    source: str

    def peak(self, precision: Precision) -> float:
        """Return the peak rate of matrix products, in operations per second."""
        return self.bfloat16_per_s if precision == "bfloat16" else self.float32_per_s


_QUOTED = "as quoted at glennklockwood.com/garden/processors"
_A100 = f"NVIDIA A100 datasheet and Ampere white paper, {_QUOTED}/A100"

DEVICES = {
    "b200": Device(
        "NVIDIA B200 (HGX)",
        180 * _GB,
        2250 * _TERA,
        75 * _TERA,
        900 * _GB,  # NVLink 5
        "NVIDIA Blackwell datasheet, HGX B200 (half of 4,500 teraflops with sparsity), as quoted "
        "at zdszero.github.io/Computer/Artificial_Intelligence/Hardware.html",
    ),
    "h200": Device(
        "NVIDIA H200 SXM",
        141 * _GB,
        989.4 * _TERA,
        66.9 * _TERA,
        450 * _GB,  # NVLink 4
        f"NVIDIA H200 datasheet, as quoted at aiwiki.ai/wiki/nvidia_h200; operations: {_QUOTED}"
        "/h100",
    ),
    "h100": Device(
        "NVIDIA H100 SXM",
        80 * _GB,
        989.4 * _TERA,
        66.9 * _TERA,
        450 * _GB,  # NVLink 4
        f"NVIDIA H100 datasheet and Hopper white paper, {_QUOTED}/h100",
    ),
    "a100": Device(
        "NVIDIA A100 SXM, 80 GB",
        80 * _GB,
        312 * _TERA,
        19.5 * _TERA,
        300 * _GB,  # NVLink 3
        _A100,
    ),
    "a100-40gb": Device(
        "NVIDIA A100 SXM, 40 GB",
        40 * _GB,
        312 * _TERA,
        19.5 * _TERA,
        300 * _GB,  # NVLink 3
        _A100,
    ),
    "4090": Device(
        "NVIDIA GeForce RTX 4090",
        24 * _GB,
        165.2 * _TERA,
        82.6 * _TERA,
        32 * _GB,  # PCIe 4.0 x16, through host memory, which is slower
        "NVIDIA Ada white paper, as quoted at waredb.com/processor/nvidia-geforce-rtx-4090",
    ),
    "l4": Device(
        "NVIDIA L4",
        24 * _GB,
        121 * _TERA,
        30.3 * _TERA,
        32 * _GB,  # PCIe 4.0 x16
        "NVIDIA L4 datasheet (half of 242 teraflops with sparsity), as quoted at "
        "grokipedia.com/page/NVIDIA_L4_vs_L40S; float32: fpsbench.com",
    ),
}
"""Devices by name, as ``plan --device`` takes them."""

THIS_MACHINE = "cpu"
"""Processes on this machine's processor, which is in no table."""


def check_device(name: str) -> None:
    """Raise ConfigError, with the nearest name, for a name neither in the table nor ``cpu``."""
    names = (*DEVICES, THIS_MACHINE)
    if name not in names:
        raise ConfigError(
            f"device {name!r} is not one of cpu, cuda, cuda:1 and so on, {', '.join(DEVICES)}"
            f"{nearest_hint(name, names)}"
        )


Shard = Literal["none", "optimizer", "full"]
SHARDS: Sequence[Shard] = ("none", "optimizer", "full")


@dataclass(frozen=True)
class Group:
    """A group of processes that train together, and the part of a model that each keeps."""

    size: int
    shard: Shard = "none"
    exact: bool = False
    """True if sums over micro-batches form one tree, as with ``train.exact``."""
    begins_whole: bool = False
    """True if each process holds the full weights of another model before they are sharded."""

    @property
    def is_divided(self) -> bool:
        """Return whether each process keeps only a part of the weights."""
        return self.shard != "none" and self.size > 1


def units_of(config: ResolvedModel, objective: ObjectiveTable) -> tuple[list[int], int]:
    """Return the bytes of float32 weights that are gathered together, of each block and the rest.

    Of an executed block they are the weights that it shares with no other; the rest lies outside
    the blocks, or is shared by several. Training-only heads count.
    """
    blocks = []
    for stack in stacks(config):
        unshared = FLOAT32_BYTES * n_own_parameters(config, stack)
        if unshared:
            blocks += [unshared] * stack.n_layers
    total = FLOAT32_BYTES * count_parameters(config, objective).training
    return blocks, total - sum(blocks)


_EXCHANGED = 1 << 24
"""Bytes of gradients that ``exact`` exchanges at a time, at least."""


def process_memory(
    step: Workload, optimizer: OptimizerConfig, *, n_passes: int, group: Group
) -> TrainingMemory:
    """Estimate the memory of each process of a group with ``n_passes`` micro-batches per step.

    ``step`` describes one micro-batch.
    """
    if group.size == 1 and not group.exact:
        return training_memory(step, optimizer, n_passes=n_passes)
    n = group.size
    sizes = step_sizes(step, optimizer, n_parts=n if group.is_divided else 1)
    gradients = sizes.gradients
    stack = stacks(step.config)[-1]
    matrix = FLOAT32_BYTES * step.config.vocab_size * step.config.d_embed
    if group.exact:
        # A full copy, with a gradient sum for each level of the tree.
        most, left = tree_sums(n_passes)
        backward = (most - 1) * gradients + max(sizes.activations, sizes.last_block + gradients)
        exchange = 0
        if n > 1:
            part = min(gradients, max(_EXCHANGED, matrix))
            exchange = (left + 1) * gradients + 3 * left * part
        moving = max(backward, exchange, gradients + sizes.update)
        return whole_copy(step, sizes, n_passes, moving=moving, gradients=most * gradients)
    blocks, root = units_of(step.config, step.objective)
    # The blocks' backward pass, with the gradients that stay to its end. These are the root's: the
    # output matrix's from the loss on, and shared weights' from the first block backwards on, the
    # last executed. Gradient sums in a sub-layer's work belong to its unit, and are counted there.
    estimates = [estimate_of(step.config, entry) for entry in stack.block]
    summed = max(estimate.n_backward for estimate in estimates)
    in_blocks = sizes.in_blocks - FLOAT32_BYTES * summed
    later = in_blocks + root
    if stack.n_layers > 1 and not step.recomputes:
        later -= block_activations(step, stack, attention_forms(step.config, stack)[-1])
    backward = max(in_blocks + matrix, later)
    if not group.is_divided:
        # A full copy: gradients stay in the buckets that sum them. Gradients of earlier
        # micro-batches, and of weights with several uses until the last use, are summed outside
        # the buckets.
        beside = gradients if n_passes > 1 else 0
        moving = max(beside + max(sizes.activations, backward), sizes.update)
        return whole_copy(
            step, sizes, n_passes, moving=moving, gradients=gradients + beside, kept=gradients
        )
    # A sharded model, whose weights are gathered as needed.
    total, block = sum(blocks) + root, max(blocks, default=0)
    held = gradients if n_passes > 1 else 0
    gathered_in_loss = gathered_in_blocks = total
    if group.shard == "full":
        gathered_in_loss = root
        gathered_in_blocks = root + 2 * block  # the next one is gathered ahead
    # Gradients of a block, and of the previous one in transit.
    gathered_in_blocks += 2 * block
    # The root comes last, with its gradients as computed and in transit.
    of_blocks = max(0, gradients - root)
    end = 2 * root + (root + of_blocks) // n + block
    in_loss = held + gathered_in_loss + sizes.in_loss
    update = gradients // n + sizes.update
    moving = max(in_loss, held + gathered_in_blocks + backward, end, update)
    staying = (sizes.weights + sizes.states) // n
    building = total // n + max(root, block)
    if group.begins_whole:
        building = total + max(root, block) // n
    evaluating = staying + total
    between = round(holes(step, n_passes, is_returned=True) * moving) + work_space(step)
    return TrainingMemory(
        weights=sizes.weights // n,
        gradients=held or gradients // n,
        optimizer=sizes.states // n,
        gathered=max(gathered_in_loss, gathered_in_blocks),
        activations=sizes.activations,
        step=staying + moving,
        building=building,
        evaluating=evaluating,
        total=max(staying + moving + between, building, evaluating),
    )


def tree_sums(n_parts: int) -> tuple[int, int]:
    """Count a process's gradient sums in a binary tree: at most, with the newest; at the end.

    Sums of ``2**level`` parts are joined in pairs. Parts begin at a multiple of their number, as
    for equal counts in all processes.
    """
    most = max(bin(n_before).count("1") + 1 for n_before in range(n_parts))
    return most, bin(n_parts).count("1")


def step_traffic(
    blocks: Sequence[int],
    root: int,
    gradients: int,
    *,
    n_passes: int,
    group: Group,
    maps: int = 0,
) -> tuple[int, int]:
    """Count the bytes that each process sends in a step of ``n_passes`` micro-batches.

    Returns the bytes of weights, by all-gather, and of gradients, by all-reduce, reduce-scatter, or
    with ``exact`` all-to-all and all-gather. ``blocks`` and ``root`` are the model's by `units_of`,
    ``gradients`` are the bytes of all gradients, summed once a step. Sharded weights are gathered
    once, too; with ``full``, block weights for both passes of every micro-batch. ``maps`` are the
    bytes of those whose sharded momentum Muon gathers, by a sum.
    """
    n = group.size
    if n == 1:
        return 0, 0
    if group.exact:
        _, n_sums = tree_sums(n_passes)
        return 0, _ring((n_sums + 1) * gradients, n)
    if group.shard == "none":
        return 0, _ring(2 * gradients, n)
    n_gathered = 2 * n_passes if group.shard == "full" else 1
    gathered = root + n_gathered * sum(blocks)
    return _ring(gathered, n), _ring(gradients + 2 * maps, n)


def _ring(size: int, n: int) -> int:
    return size * (n - 1) // n


_REMEDY = "make model.d_model, model.n_layers or the vocabulary smaller"
_ID_BYTES = 8
_COPIES_OF_IDS = 4
"""Ids of a batch under construction: positions, the ids read there, tokens and targets."""


def check_training(
    recipe: ResolvedRecipe, *, device: DeviceKind = "cpu", n_processes: int = 1
) -> None:
    """Raise ConfigError if a recipe's training cannot fit into this machine's memory.

    Only certain sizes count: weights, gradients, optimizer states, batch ids if as long as the
    windows, and tensors of a pass if every window is full. For a GPU, only the weights count, which
    are first built in host memory, unless in parts. The batch is divided among ``n_processes``, as
    are weights and states by ``train.shard``; each process is assumed to have all of the memory.
    """
    train, model, frozen = recipe.train, recipe.model, recipe.init.frozen
    group = Group(n_processes, train.shard, train.exact)
    weights = FLOAT32_BYTES * count_parameters(model, recipe.objective).training
    if device == "cuda":
        # The GPU holds gradients, states and the tensors of a pass; the model is built on the host.
        if not group.is_divided:
            check_memory(weights, "the model", _REMEDY)
        return
    states = FLOAT32_BYTES * n_states(model, recipe.objective, recipe.optimizer, frozen)
    if group.is_divided:
        # All weights are gathered for an evaluation.
        state = weights + (weights + states) // n_processes
        what = "the model with this process's part of the optimizer's states"
    else:
        state = 2 * weights + states - FLOAT32_BYTES * n_frozen_parameters(model, frozen)
        what = "the model with its gradients and the optimizer's states"
    check_memory(state, what, _REMEDY)
    sequences = math.ceil(train.batch_sequences / n_processes)
    n_ids = sequences * recipe.objective.n_ids(recipe.data.context)
    ids = n_ids * _COPIES_OF_IDS * _ID_BYTES
    check_memory(state + ids, "a batch", "make train.batch_sequences smaller")
    if recipe.objective.text != "windows":
        return
    micro = min(sequences, train.micro_batch_sequences)
    step = Workload(
        model,
        sequences=micro,
        context=recipe.data.context,
        precision="float32" if train.precision == "float32" else "bfloat16",
        objective=recipe.objective,
        recomputes=train.recompute == "blocks",
        keeps_documents_apart=recipe.data.boundaries == "respect",
        frozen=frozen,
        replicas=train.replicas,
    )
    # Full copies need at least the memory of one process.
    counted = group if group.is_divided else Group(1)
    n_passes = math.ceil(sequences / micro)
    memory = process_memory(step, recipe.optimizer, n_passes=n_passes, group=counted)
    # Only certain sizes count: fragmentation is not.
    check_memory(
        memory.step,
        f"a training step of {micro:,} windows of {recipe.data.context:,} tokens at a time",
        "make train.micro_batch_sequences, data.context or the model smaller",
    )
