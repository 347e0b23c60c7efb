"""Which runs of a comparison had another machine: its processor or GPU, or what they may do."""

from collections.abc import Iterable, Mapping
from typing import Any

from sublayer.study.execution.one_run import Outcome

_FACTS = ("device", "gpu", "processor", "instructions")
"""Of a record's machine: what may round sums otherwise."""


def list_differing_machines(outcomes: Mapping[str, Iterable[Outcome]]) -> list[str]:
    """Return a sentence where runs had machines that differ; nothing where all had the same.

    ``outcomes`` are the runs' by arm.
    """
    by_machine: dict[str, dict[str, int]] = {}
    for arm, each in outcomes.items():
        for outcome in each:
            if outcome.record is not None:
                counts = by_machine.setdefault(_describe(outcome.record["machine"]), {})
                counts[arm] = counts.get(arm, 0) + 1
    if len(by_machine) < 2:
        return []
    parts = [
        f"{machine}: {', '.join(f'{n} of {arm}' for arm, n in counts.items())}"
        for machine, counts in by_machine.items()
    ]
    return [f"Runs were made on different machines, whose rounding may differ: {'; '.join(parts)}."]


def _describe(machine: Mapping[str, Any]) -> str:
    """Name a machine by what may change a number; records of before instructions leave those."""
    return ", ".join(str(machine[fact]) for fact in _FACTS if machine.get(fact))
