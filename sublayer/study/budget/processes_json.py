"""Plans of several processes as plain values: the ``processes`` of ``sublayer plan --json``."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sublayer.study.budget.processes import Machine, ProcessPlan, ShardPlan, process_notes


def processes_to_json(
    plans: Sequence[ProcessPlan], machine: Machine, name: str, *, price: float | None, n_runs: int
) -> dict[str, Any]:
    """Write the plans of arms; ``price`` is of a device for an hour, ``n_runs`` those of each arm.

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
        "price": price,
        "runs": n_runs,
        "arms": [_arm(each, machine, price, n_runs) for each in plans],
        "notes": list(process_notes(plans, machine)),
    }


def _arm(plan: ProcessPlan, machine: Machine, price: float | None, n_runs: int) -> dict[str, Any]:
    return {
        "name": plan.name,
        "precision": plan.precision,
        "sequences": plan.sequences,
        "micro_batch_sequences": plan.micro_batch_sequences,
        "micro_batches": plan.n_passes,
        "tokens_per_step": plan.tokens,
        "flops_per_step": plan.operations,
        "shards": [_shard(each, plan, machine, price, n_runs) for each in plan.shards],
    }


def _shard(
    shard: ShardPlan, plan: ProcessPlan, machine: Machine, price: float | None, n_runs: int
) -> dict[str, Any]:
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
        "cost": None,
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
    if shard.hours is not None and price is not None:
        each_hour = n_runs * machine.n_processes * price
        found["cost"] = [each_hour * each for each in shard.hours]
    return found
