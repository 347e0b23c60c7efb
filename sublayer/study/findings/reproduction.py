"""Reproduction of a study's numbers: environment, text, date, and machines that differ."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sublayer.study.execution.one_run import Outcome
from sublayer.study.results import SIGNATURE, Reproduction, StudyText


def describe_reproduction(
    outcomes: Iterable[Outcome], texts: Sequence[str], command: str
) -> Reproduction:
    """Return what the runs ran on and read, from their records; ``command`` makes them again.

    The first record speaks for all, but for commits, which are all named, and the date, which is
    the last; ``texts`` name the first arm's texts. All but the command is empty where
    no run has a record.
    """
    outcomes = list(outcomes)
    records = [each.record for each in outcomes if each.record is not None]
    if not records:
        return Reproduction(command)
    first = records[0]
    checksums = {}
    for name, value in first["data"]["checksums"].items():
        checksums[f"data, {name}"] = str(value)
    return Reproduction(
        command,
        {**_environment(records), **_signatures(outcomes)},
        checksums,
        text=_text(first, texts),
        date=max(str(record.get("date", "")) for record in records),
    )


def _environment(records: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    first = records[0]
    facts = {**first["versions"], "commit": first["commit"], **first["machine"]}
    facts |= {"precision": first["precision"], "threads": first["threads"]}
    commits = sorted({str(record["commit"]) for record in records})
    if len(commits) > 1:
        facts["commit"] = ", ".join(commits)
    return {name: str(value) for name, value in facts.items() if value is not None}


def _signatures(outcomes: Sequence[Outcome]) -> dict[str, str]:
    """Return how translations were scored, by measure, as the first that was scored says."""
    tests: list[Mapping[str, Any]] = [each.test for each in outcomes if each.test is not None]
    written = (test["signature"] for test in tests if test.get("signature"))
    found: dict[str, str] = next(written, {})
    return {f"{SIGNATURE}{name}": str(value) for name, value in found.items()}


def _text(record: Mapping[str, Any], texts: Sequence[str]) -> StudyText:
    sizes = {}
    for split in ("train", "valid", "test"):
        # Records of earlier versions do not say.
        if split in record["data"]:
            sizes[split] = dict(record["data"][split])
    return StudyText(tuple(texts), sizes)


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
