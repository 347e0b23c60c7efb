"""The costs of arms that several processes train: memory, traffic and time."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from sublayer.config.layering.layers import LoadedRecipe, vary
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import batch_sequences
from sublayer.config.task_heads import rows_of_example
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.estimate.cluster import (
    DEVICES_PER_MACHINE,
    SHARDS,
    Device,
    Group,
    ProcessMemory,
    Shard,
    StepSeconds,
    Traffic,
    process_memory,
    step_seconds,
    step_traffic,
    units_of,
)
from sublayer.estimate.cost import count_parameters
from sublayer.estimate.memory import n_frozen_parameters
from sublayer.estimate.micro_batch import FLOAT32_BYTES, Precision
from sublayer.study.arms import Arm
from sublayer.study.budget.capacity import (
    PROGRAM_BYTES,
    Resources,
    batches,
    copies_in_memory,
    micro_batch,
)
from sublayer.study.budget.expected import expected_vocabulary, tokens_per_step
from sublayer.study.budget.match import apply_match
from sublayer.study.budget.plan import ArmPlan


@dataclass(frozen=True)
class Machine:
    """The devices that processes are planned for, one each."""

    n_processes: int
    resources: Resources
    """What one device has; of this machine's processor, what all processes share."""
    device: Device | None = None
    """None for what no table knows: this machine's own."""
    share: float = 1.0
    """Of the device's peak, that computing is taken to reach."""
    given_link: float | None = None
    """Bytes a second one way between devices, where they are not the datasheet's."""

    @property
    def link_bytes_per_s(self) -> float | None:
        """The rate at which a device sends; None where nothing says it."""
        if self.given_link is not None or self.device is None:
            return self.given_link
        is_one_machine = self.n_processes <= DEVICES_PER_MACHINE
        return self.device.link_bytes_per_s if is_one_machine else None


@dataclass(frozen=True)
class ShardPlan:
    """What each process takes under one ``train.shard``; None where that is not known."""

    shard: Shard
    memory: ProcessMemory
    fits: bool | None
    """Whether it fits into the device, or all processes into this machine's free memory."""
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
    _check_batch(recipe, n)
    # Each process has its part of the cores, by which its micro-batches are made.
    cores = max(1, machine.resources.cores // n)
    own = replace(machine.resources, cores=cores)
    train = batches(recipe, own)
    if recipe.train.exact:
        n_parts = train.n_micro_batches
        _check_parts(n_parts, n, train.batch_sequences)
        micro = train.micro_batch_sequences
        n_passes = math.ceil(n_parts / n)
        sequences = n_passes * micro
    else:
        sequences = math.ceil(train.batch_sequences / n)
        micro = min(sequences, train.micro_batch_sequences)
        step = micro_batch(recipe, vocab_size, own, micro)
        n_passes = math.ceil(sequences * rows_of_example(recipe) / step.sequences)
    tokens = tokens_per_step(recipe)
    operations = float(plan.flops_per_token * tokens)
    # The slowest process has a whole share where a batch is not divided evenly.
    most_operations = operations * min(1.0, sequences / train.batch_sequences)
    shards = []
    for each, group in _groups(loaded, n):
        step = micro_batch(each, vocab_size, own, micro)
        step = replace(step, caches_casts=not group.is_divided)
        memory = process_memory(step, each.optimizer, n_passes=n_passes, group=group)
        if copies_in_memory(each, own):
            memory = memory.beside_saving()
        n_parameters = count_parameters(step.config, step.objective).training
        n_trained = n_parameters - n_frozen_parameters(step.config, step.frozen)
        units = units_of(step.config, step.objective)
        traffic = step_traffic(units, FLOAT32_BYTES * n_trained, n_passes=n_passes, group=group)
        seconds = _seconds(plan, machine, most_operations, traffic)
        hours = _hours(plan, recipe, seconds)
        fits = _fits(memory, group.shard, machine)
        shards.append(ShardPlan(group.shard, memory, fits, traffic, seconds, hours))
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


def _groups(loaded: LoadedRecipe, n: int) -> Iterator[tuple[Recipe, Group]]:
    """Generate what each ``train.shard`` makes of a recipe; one that it contradicts is left out."""
    is_exact = loaded.recipe.train.exact
    for shard in SHARDS[:1] if is_exact else SHARDS:
        try:
            recipe = vary(loaded, [f"train.shard={shard}"]).recipe
        except ConfigError:  # an optimizer that goes by whole matrices
            continue
        begins_whole = recipe.init.run is not None
        yield recipe, Group(n, shard, is_exact, begins_whole)


def _check_batch(recipe: Recipe, n: int) -> None:
    sequences = batch_sequences(recipe)
    if sequences < n:
        raise ConfigError(
            f"--processes {n} is more than a batch has windows, {sequences}: give fewer, or "
            f"train.batch_sequences={n} or more"
        )


def _check_parts(n_parts: int, n: int, sequences: int) -> None:
    if n_parts < n:
        raise ConfigError(
            f"train.exact divides a step into {count(n_parts, 'micro-batch')}, less than "
            f"--processes {n}: give train.micro_batch_sequences={sequences // n}"
        )


def _seconds(
    plan: ArmPlan, machine: Machine, operations: float, traffic: Traffic
) -> StepSeconds | None:
    """Estimate a step's time; ``operations`` are those of the process that has most."""
    device = machine.device
    if device is None:
        # Processes of this machine have the cores of one alone, and are taken to be as fast.
        time = plan.step_time
        return None if time is None else StepSeconds(time.seconds, None)
    return step_seconds(
        operations,
        traffic.total,
        operations_per_s=machine.share * device.peak(plan.precision),
        bytes_per_s=machine.link_bytes_per_s,
    )


def _hours(
    plan: ArmPlan, recipe: Recipe, seconds: StepSeconds | None
) -> tuple[float, float] | None:
    minutes = recipe.train.minutes
    if minutes is not None:
        return minutes / 60, minutes / 60
    if plan.steps is None or seconds is None:
        return None
    return plan.steps * seconds.overlapped / 3600, plan.steps * seconds.in_turn / 3600


def _fits(memory: ProcessMemory, shard: Shard, machine: Machine) -> bool | None:
    free = machine.resources.memory_bytes
    if free is None:
        return None
    if machine.resources.device == "cuda":
        return memory.total <= free
    n, each = machine.n_processes, memory.total + PROGRAM_BYTES
    # Of whole copies one process alone saves.
    others = each - memory.saving if shard == "none" else each
    return each + (n - 1) * others <= free


def process_notes(plans: Sequence[ProcessPlan], machine: Machine) -> Iterator[str]:
    """Yield what the figures of several processes take for granted."""
    device = machine.device
    if device is None:
        if plans[0].shards[0].seconds is not None:
            yield (
                "time: that of one process on all cores, as which the processes together are taken "
                "to compute; what they send is not in it"
            )
    else:
        found = _of_time(machine, device)
        yield f"time: {found}; without evaluations, optimizer, or waiting for text"
        if machine.link_bytes_per_s is None:
            yield (
                f"{machine.n_processes} processes are more than the {DEVICES_PER_MACHINE} devices "
                "of one machine, and no datasheet says what goes between machines: give --link"
            )
        yield "no figure of a GPU has been held against one: those of memory were, on processors"
    if len(plans[0].shards) == 1:
        yield "train.shard divides nothing here: with train.exact, or this optimizer, it cannot"
    if machine.n_processes == 1:
        yield "train.shard divides nothing: there is one process"


def _of_time(machine: Machine, device: Device) -> str:
    at_peak = f"{_of_peak(machine.share)} of {device.title}"
    rate = machine.link_bytes_per_s
    if rate is None:
        return f"{at_peak}, nothing sent"
    return (
        f"from {at_peak}, sending at {rate / 1e9:g} GB/s one way, all of it beside computing, to "
        "nothing of it"
    )


def _of_peak(share: float) -> str:
    return "the peak" if share == 1.0 else f"{100 * share:g} % of the peak"


def processes_to_json(
    plans: Sequence[ProcessPlan], machine: Machine, name: str, n_runs: int
) -> dict[str, Any]:
    """Write the plans of arms, of each of which there are ``n_runs`` runs.

    Pairs are of a step that sends all beside computing, and of one that sends nothing beside it.
    """
    device = machine.device
    peak = None if device is None else asdict(device)
    return {
        "number": machine.n_processes,
        "device": name,
        "datasheet": peak,
        "memory_bytes": machine.resources.memory_bytes,
        "share": None if device is None else machine.share,
        "link_bytes_per_s": machine.link_bytes_per_s,
        "runs": n_runs,
        "arms": [_arm(each, machine, n_runs) for each in plans],
        "notes": list(process_notes(plans, machine)),
    }


def _arm(plan: ProcessPlan, machine: Machine, n_runs: int) -> dict[str, Any]:
    return {
        "name": plan.name,
        "precision": plan.precision,
        "sequences": plan.sequences,
        "micro_batch_sequences": plan.micro_batch_sequences,
        "micro_batches": plan.n_passes,
        "tokens_per_step": plan.tokens,
        "flops_per_step": plan.operations,
        "shards": [_shard(each, plan, machine, n_runs) for each in plan.shards],
    }


def _shard(shard: ShardPlan, plan: ProcessPlan, machine: Machine, n_runs: int) -> dict[str, Any]:
    seconds = shard.seconds
    found: dict[str, Any] = {
        "shard": shard.shard,
        "memory": asdict(shard.memory),
        "fits": shard.fits,
        "sent_bytes": {**asdict(shard.traffic), "total": shard.traffic.total},
        "computing_seconds": None,
        "sending_seconds": None,
        "seconds_per_step": None,
        "tokens_per_s": None,
        "share_of_peak": None,
        "hours": None if shard.hours is None else [n_runs * each for each in shard.hours],
    }
    if seconds is not None:
        pair = (seconds.overlapped, seconds.in_turn)
        found["computing_seconds"] = seconds.computing
        found["sending_seconds"] = seconds.sending
        found["seconds_per_step"] = list(pair)
        found["tokens_per_s"] = [plan.tokens / each for each in pair]
        if machine.device is not None:
            rate = machine.device.peak(plan.precision)
            ideal = plan.operations / machine.n_processes / rate
            found["share_of_peak"] = [ideal / each for each in pair]
    return found
