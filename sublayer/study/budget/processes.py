"""The costs of arms that several processes train: memory, traffic and time."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sublayer.config.load import vary
from sublayer.config.resolve_train import batch_sequences
from sublayer.config.task_heads import rows_of_example
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.estimate.cluster import (
    DEVICES_PER_MACHINE,
    SHARDS,
    Device,
    Group,
    Shard,
    StepSeconds,
    Traffic,
    process_memory,
    step_traffic,
    units_of,
)
from sublayer.estimate.cost import count_parameters
from sublayer.estimate.memory import TrainingMemory, n_frozen_parameters
from sublayer.estimate.micro_batch import FLOAT32_BYTES, Precision
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
    """The devices that processes are planned for, one each."""

    n_processes: int
    resources: Resources
    """Of one device; of this machine's processor, which all processes share."""
    device: Device | None = None
    """None for this machine's own, of which there is no datasheet."""
    share: float = 1.0
    """Of the device's peak, that computing is taken to reach."""
    given_link: float | None = None
    """Bytes a second one way between devices, where they are not the datasheet's."""

    @property
    def link_bytes_per_s(self) -> float | None:
        """The rate at which a device sends; None where it is unknown."""
        if self.given_link is not None or self.device is None:
            return self.given_link
        is_one_machine = self.n_processes <= DEVICES_PER_MACHINE
        return self.device.link_bytes_per_s if is_one_machine else None


@dataclass(frozen=True)
class ShardPlan:
    """The costs of each process under one ``train.shard``; None where they are unknown."""

    shard: Shard
    memory: TrainingMemory
    fits: bool | None
    """True where it fits into the device, or all processes into this machine's free memory."""
    traffic: Traffic
    seconds: StepSeconds | None
    hours: tuple[float, float] | None
    """Of a run, without its evaluations: all sent beside computing, and nothing."""


@dataclass(frozen=True)
class ProcessPlan:
    """One arm, trained by several processes."""

    name: str
    precision: Precision
    sequences: int
    """Windows of a process's share of a batch."""
    micro_batch_sequences: int
    n_passes: int
    tokens: int
    """Of a step, of all processes."""
    operations: float
    """Of a step, of all processes."""
    shards: tuple[ShardPlan, ...]


def plan_processes(arm: Arm, plan: ArmPlan, machine: Machine) -> ProcessPlan:
    """Plan an arm of a plan for several processes, under each ``train.shard`` that it may have.

    Raises ConfigError where a batch is less than the processes.
    """
    loaded = apply_match(arm, plan.match)
    recipe = loaded.recipe
    vocab_size = expected_vocabulary(recipe).size
    n = machine.n_processes
    if batch_sequences(recipe) < n:
        raise ConfigError(
            f"--processes {n} is more than a batch has windows, {batch_sequences(recipe)}: give "
            f"fewer, or train.batch_sequences={n} or more"
        )
    # Each process has its part of the cores, by which its micro-batches are made.
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
    # The slowest process has a whole share where a batch is not divided evenly.
    most_operations = operations * min(1.0, sequences / train.batch_sequences)
    shards = []
    for shard in SHARDS[:1] if recipe.train.exact else SHARDS:
        try:
            sharded = vary(loaded, [f"train.shard={shard}"]).recipe
        except ConfigError:  # an optimizer that goes by whole matrices
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
        seconds = _seconds(plan, machine, most_operations, traffic)
        hours = None
        if recipe.train.minutes is not None:
            hours = (recipe.train.minutes / 60, recipe.train.minutes / 60)
        elif plan.steps is not None and seconds is not None:
            hours = (plan.steps * seconds.overlapped / 3600, plan.steps * seconds.in_turn / 3600)
        fits = _fits(memory, shard, machine)
        shards.append(ShardPlan(shard, memory, fits, traffic, seconds, hours))
    return ProcessPlan(
        name=plan.name,
        precision=plan.precision,
        sequences=sequences,
        micro_batch_sequences=micro,
        n_passes=n_passes,
        tokens=tokens,
        operations=operations,
        shards=tuple(shards),
    )


def _seconds(
    plan: ArmPlan, machine: Machine, operations: float, traffic: Traffic
) -> StepSeconds | None:
    """Estimate a step's time; ``operations`` are those of the process that has most."""
    if machine.device is None:
        # Processes of this machine have the cores of one alone, and are taken to be as fast.
        time = plan.step_time
        return None if time is None else StepSeconds(time.seconds, None)
    rate = machine.link_bytes_per_s
    return StepSeconds(
        computing=operations / (machine.share * machine.device.peak(plan.precision)),
        sending=None if rate is None else traffic.total / rate,
    )


def _fits(memory: TrainingMemory, shard: Shard, machine: Machine) -> bool | None:
    free = machine.resources.memory_bytes
    if free is None:
        return None
    if machine.resources.device == "cuda":
        return memory.total <= free
    first = memory.total + PROGRAM_BYTES
    # Of whole copies one process alone saves.
    other = first - memory.saving if shard == "none" else first
    return first + (machine.n_processes - 1) * other <= free


def processes_to_json(
    plans: Sequence[ProcessPlan], machine: Machine, name: str, n_runs: int
) -> dict[str, Any]:
    """Write the plans of arms, of each of which there are ``n_runs`` runs.

    Pairs are of a step that sends all beside computing, and of one that sends nothing beside it.
    """
    device = machine.device
    return {
        "number": machine.n_processes,
        "device": name,
        "datasheet": None if device is None else asdict(device),
        "memory_bytes": machine.resources.memory_bytes,
        "share": None if device is None else machine.share,
        "link_bytes_per_s": machine.link_bytes_per_s,
        "runs": n_runs,
        "arms": [
            {
                "name": plan.name,
                "precision": plan.precision,
                "sequences": plan.sequences,
                "micro_batch_sequences": plan.micro_batch_sequences,
                "micro_batches": plan.n_passes,
                "tokens_per_step": plan.tokens,
                "flops_per_step": plan.operations,
                "shards": [_shard_to_json(shard, plan, machine, n_runs) for shard in plan.shards],
            }
            for plan in plans
        ],
    }


def _shard_to_json(
    shard: ShardPlan, plan: ProcessPlan, machine: Machine, n_runs: int
) -> dict[str, Any]:
    content: dict[str, Any] = {
        "shard": shard.shard,
        "memory": asdict(shard.memory),
        "fits": shard.fits,
        "sent_bytes": {**asdict(shard.traffic), "total": shard.traffic.total},
        "computing_seconds": None,
        "sending_seconds": None,
        "seconds_per_step": None,
        "tokens_per_s": None,
        "share_of_peak": None,
        "hours": None if shard.hours is None else [n_runs * hours for hours in shard.hours],
    }
    if shard.seconds is not None:
        pair = [shard.seconds.overlapped, shard.seconds.in_turn]
        content["computing_seconds"] = shard.seconds.computing
        content["sending_seconds"] = shard.seconds.sending
        content["seconds_per_step"] = pair
        content["tokens_per_s"] = [plan.tokens / seconds for seconds in pair]
        if machine.device is not None:
            peak = machine.device.peak(plan.precision)
            ideal = plan.operations / machine.n_processes / peak
            content["share_of_peak"] = [ideal / seconds for seconds in pair]
    return content
