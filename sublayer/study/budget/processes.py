"""Costs of arms trained by several processes: memory, traffic and time."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sublayer.config.load import vary
from sublayer.config.resolve import batch_sequences, rows_of_example
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.estimate.cluster import (
    DEVICES_PER_MACHINE,
    SHARDS,
    Device,
    Group,
    Shard,
    Traffic,
    process_memory,
    step_traffic,
    units_of,
)
from sublayer.estimate.cost import count_parameters
from sublayer.estimate.memory import TrainingMemory, n_frozen_parameters
from sublayer.model.estimates import FLOAT32_BYTES, Precision
from sublayer.study.arms import Arm
from sublayer.study.budget.expected import (
    PROGRAM_BYTES,
    Resources,
    batches,
    copies_in_memory,
    expected_vocabulary,
    micro_batch,
    tokens_per_step,
)
from sublayer.study.budget.match import apply_match
from sublayer.study.budget.plan import ArmPlan


@dataclass(frozen=True)
class Machine:
    """The devices of planned processes, one each."""

    n_processes: int
    resources: Resources
    """Resources of one device; of this machine's processor, shared by all processes."""
    device: Device | None = None
    """None for this machine, which has no datasheet."""
    share: float = 1.0
    """Assumed compute speed, as a share of the device's peak."""
    given_link: float | None = None
    """One-way bytes per second between devices, if not the datasheet's."""

    @property
    def link_bytes_per_s(self) -> float | None:
        """The send rate of a device; None if unknown."""
        if self.given_link is not None or self.device is None:
            return self.given_link
        is_one_machine = self.n_processes <= DEVICES_PER_MACHINE
        return self.device.link_bytes_per_s if is_one_machine else None

    def fits(self, memory: TrainingMemory, shard: Shard) -> bool | None:
        """Return whether a process fits into its device, or all into this machine's free memory."""
        if self.resources.device == "cuda":
            return self.resources.holds(memory.total)
        first = memory.total + PROGRAM_BYTES
        # With full copies only one process saves.
        other = first - memory.saving if shard == "none" else first
        return self.resources.holds(first + (self.n_processes - 1) * other)


Pair = list[float]
"""Step figures with full and with no overlap of communication and computation."""


@dataclass(frozen=True)
class ShardPlan:
    """The costs of each process under one ``train.shard``; None if unknown."""

    shard: Shard
    memory: TrainingMemory
    fits: bool | None
    """True if it fits into the device, or all processes into this machine's free memory."""
    sent_bytes: Traffic
    computing_seconds: float | None
    sending_seconds: float | None
    """None if the link rate is unknown: communication is left out then."""
    seconds_per_step: Pair | None
    tokens_per_s: Pair | None
    share_of_peak: Pair | None
    """None without a datasheet."""
    hours: Pair | None
    """Hours of a run, without its evaluations."""


@dataclass(frozen=True)
class ProcessPlan:
    """One arm, trained by several processes."""

    name: str
    precision: Precision
    sequences: int
    """Windows in a process's share of a batch."""
    micro_batch_sequences: int
    micro_batches: int
    """Micro-batches of a process in a step."""
    tokens_per_step: int
    """Tokens of all processes."""
    flops_per_step: float
    """Operations of all processes."""
    shards: tuple[ShardPlan, ...]


def plan_processes(arm: Arm, plan: ArmPlan, machine: Machine) -> ProcessPlan:
    """Plan an arm of a plan for several processes, under each supported ``train.shard``.

    Raises ConfigError if a batch is smaller than the number of processes.
    """
    loaded = apply_match(arm, plan.match)
    recipe, n, device = loaded.recipe, machine.n_processes, machine.device
    vocab_size = expected_vocabulary(recipe).size
    if batch_sequences(recipe) < n:
        raise ConfigError(
            f"--processes {n} is more than a batch has windows, {batch_sequences(recipe)}: give "
            f"fewer, or train.batch_sequences={n} or more"
        )
    # Each process has its part of the cores, which sets its micro-batches.
    resources = replace(machine.resources, cores=max(1, machine.resources.cores // n))
    train = batches(recipe, resources)
    if recipe.train.exact:
        if train.n_micro_batches < n:
            raise ConfigError(
                f"train.exact divides a step into {count(train.n_micro_batches, 'micro-batch')}, "
                f"less than --processes {n}: give "
                f"train.micro_batch_sequences={train.batch_sequences // n}"
            )
        micro = train.micro_batch_sequences
        n_passes = math.ceil(train.n_micro_batches / n)
        sequences = n_passes * micro
    else:
        sequences = math.ceil(train.batch_sequences / n)
        micro = min(sequences, train.micro_batch_sequences)
        step = micro_batch(recipe, vocab_size, resources, micro)
        n_passes = math.ceil(sequences * rows_of_example(recipe) / step.sequences)
    tokens = tokens_per_step(recipe)
    operations = float(plan.flops_per_token * tokens)
    # Processes of this machine share the cores of one, and are assumed as fast in total.
    computing = plan.seconds_per_step
    if device is not None:
        # The slowest process has a full share of an unevenly divided batch.
        most = operations * min(1.0, sequences / train.batch_sequences)
        computing = most / (machine.share * device.peak(plan.precision))
    shards = []
    for shard in SHARDS[:1] if recipe.train.exact else SHARDS:
        try:
            sharded = vary(loaded, [f"train.shard={shard}"]).recipe
        except ConfigError:  # an optimizer that needs full matrices
            continue
        group = Group(n, shard, recipe.train.exact, begins_whole=sharded.init.run is not None)
        step = micro_batch(sharded, vocab_size, resources, micro)
        step = replace(step, caches_casts=not group.is_divided)
        memory = process_memory(step, sharded.optimizer, n_passes=n_passes, group=group)
        if copies_in_memory(sharded, resources):
            memory = memory.beside_saving()
        n_trained = count_parameters(step.config, step.objective).training
        n_trained -= n_frozen_parameters(step.config, step.frozen)
        units = units_of(step.config, step.objective)
        traffic = step_traffic(units, FLOAT32_BYTES * n_trained, n_passes=n_passes, group=group)
        rate, sending = machine.link_bytes_per_s, None
        if device is not None and rate is not None:
            sending = traffic.total / rate
        pair = hours = peak = None
        if computing is not None:
            pair = [max(computing, sending or 0.0), computing + (sending or 0.0)]
            if device is not None:
                ideal = operations / n / device.peak(plan.precision)
                peak = [ideal / seconds for seconds in pair]
        if recipe.train.minutes is not None:
            hours = 2 * [recipe.train.minutes / 60]
        elif plan.steps is not None and pair is not None:
            hours = [plan.steps * seconds / 3600 for seconds in pair]
        shards.append(
            ShardPlan(
                shard=shard,
                memory=memory,
                fits=machine.fits(memory, shard),
                sent_bytes=traffic,
                computing_seconds=computing,
                sending_seconds=sending,
                seconds_per_step=pair,
                tokens_per_s=pair and [tokens / seconds for seconds in pair],
                share_of_peak=peak,
                hours=hours,
            )
        )
    return ProcessPlan(
        name=plan.name,
        precision=plan.precision,
        sequences=sequences,
        micro_batch_sequences=micro,
        micro_batches=n_passes,
        tokens_per_step=tokens,
        flops_per_step=operations,
        shards=tuple(shards),
    )


def processes_to_json(
    plans: Sequence[ProcessPlan], machine: Machine, name: str, n_runs: int
) -> dict[str, Any]:
    """Write the plans of arms, with ``n_runs`` runs each."""
    device = machine.device
    arms = [{**asdict(plan), "shards": list(map(asdict, plan.shards))} for plan in plans]
    for plan, arm in zip(plans, arms, strict=True):
        for shard, written in zip(plan.shards, arm["shards"], strict=True):
            written["sent_bytes"]["total"] = shard.sent_bytes.total
            written["hours"] = shard.hours and [n_runs * hours for hours in shard.hours]
    return {
        "number": machine.n_processes,
        "device": name,
        "datasheet": None if device is None else asdict(device),
        "memory_bytes": machine.resources.memory_bytes,
        "share": None if device is None else machine.share,
        "link_bytes_per_s": machine.link_bytes_per_s,
        "runs": n_runs,
        "arms": arms,
    }
