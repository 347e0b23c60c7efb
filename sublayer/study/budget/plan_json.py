"""A plan as plain values: what ``sublayer plan --json`` prints."""

import heapq
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from sublayer.study.budget.excess import budget_to_json
from sublayer.study.budget.plan import ArmPlan, Plan
from sublayer.study.budget.resources import PROGRAM_BYTES, Resources


def plan_to_json(
    plan: Plan, resources: Resources, n_seeds: int, n_trials: int = 0, jobs: int = 1
) -> dict[str, Any]:
    """Write a plan, and what all its runs take together, as plain values.

    Each arm has ``n_trials`` runs that tune it, and one with each of ``n_seeds`` seeds. ``jobs``
    runs are made at a time.
    """
    hours = [arm.hours for arm in plan.arms if arm.hours is not None]
    n_runs = n_trials + n_seeds
    at_once = min(jobs, n_runs * len(plan.arms))
    disk = _disk(plan, n_runs, at_once)
    memory = at_once * _process_memory(plan, resources)
    free = resources.memory_bytes
    is_single = len(plan.arms) == 1
    return {
        "arms": [_arm_to_json(arm, is_single=is_single) for arm in plan.arms],
        "match": None if is_single else plan.rule,
        "total": {
            "runs": n_runs * len(plan.arms),
            "jobs": at_once,
            "hours": _hours(hours, n_runs, at_once) if len(hours) == len(plan.arms) else None,
            "memory_bytes": memory,
            "fits_memory": None if free is None else memory <= free,
            "disk_bytes": disk,
            "fits_disk": None if resources.disk_bytes is None else disk <= resources.disk_bytes,
        },
        "available": {
            "device": resources.device,
            "memory_bytes": resources.memory_bytes,
            "disk_bytes": resources.disk_bytes,
        },
        "notes": list(plan.notes),
    }


def _hours(hours: Sequence[float], n_runs: int, jobs: int) -> float:
    """Add up the hours of all runs; of several at a time each begins where one has ended."""
    if jobs == 1:
        return n_runs * sum(hours)
    ends = [0.0] * jobs
    for _ in range(n_runs):
        for each in hours:
            heapq.heapreplace(ends, ends[0] + each)
    return max(ends)


def _process_memory(plan: Plan, resources: Resources) -> int:
    """Return the bytes of the largest arm's process."""
    program_bytes = PROGRAM_BYTES if resources.device == "cpu" else 0
    return max(arm.memory_bytes for arm in plan.arms) + program_bytes


def _disk(plan: Plan, n_runs: int, jobs: int) -> int:
    if len(plan.arms) == 1:
        return n_runs * plan.arms[0].disk_bytes
    # The runs of a comparison keep their models, and what train.keep_steps names; only those that
    # are being trained have other checkpoints.
    kept = n_runs * sum(arm.scored_bytes for arm in plan.arms)
    return kept + jobs * max(arm.disk_bytes for arm in plan.arms)


def _arm_to_json(arm: ArmPlan, *, is_single: bool) -> dict[str, Any]:
    match = None
    if arm.match is not None and not is_single:
        match = {
            "overrides": list(arm.match.overrides),
            "mismatch": arm.match.mismatch,
            "is_unequal": arm.match.is_unequal,
        }
    return {
        "name": arm.name,
        "parameters": asdict(arm.parameters),
        "flops_per_token": arm.flops_per_token,
        "memory_bytes": arm.memory_bytes,
        "seconds_per_step": arm.step_time.seconds if arm.step_time else None,
        "is_extrapolated": not arm.step_time.is_measured if arm.step_time else None,
        "match": match,
        "excess": budget_to_json(arm.budget),
        "steps": arm.steps,
        "tokens": arm.tokens,
        "hours": arm.hours,
        "disk_bytes": arm.disk_bytes,
        "precision": arm.precision,
        "micro_batch_sequences": arm.micro_batch_sequences,
        "fits": {"memory": arm.fits_memory, "disk": arm.fits_disk},
        "change": None if arm.change is None else list(arm.change),
    }
