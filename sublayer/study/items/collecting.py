"""Collect the items of a comparison's runs from their folders."""

from collections.abc import Sequence

from sublayer.runs.items import read_items
from sublayer.study.arm_runs import ArmRuns
from sublayer.study.items.file_header import RunItems


def collect_items(arms: Sequence[ArmRuns]) -> tuple[list[RunItems], list[str]]:
    """Read the items of each run's test, and return them with the names of runs that kept none.

    Runs that failed are in neither. Raises CheckpointError where items are damaged.
    """
    kept = []
    missing = []
    for runs in arms:
        arm = runs.matched_arm.arm.name
        for seed, outcome in runs.outcomes.items():
            if outcome.test is None:
                continue
            items = read_items(outcome.path)
            if items is None:
                missing.append(f"{arm}, seed {seed}")
                continue
            added = dict.fromkeys(items.tables, 1)  # each stands for itself
            kept.append(RunItems(arm, seed, items, added))
    return kept, missing
