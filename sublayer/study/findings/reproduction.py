"""Reproduction of a study's numbers: environment, text, date, and machines that differ."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sublayer.study.jobs.run import Outcome
from sublayer.study.results import SIGNATURE, Reproduction, StudyText

_FACTS = ("device", "gpu", "processor", "instructions")
"""Facts of a record's machine that may round sums otherwise."""


def describe_reproduction(
    outcomes: Iterable[Outcome], texts: Sequence[str], command: str
) -> Reproduction:
    """Describe the environment and the text of runs by their records; ``command`` repeats them.

    All is of the first record, but for commits, which are all named, and the date, which is the
    last; ``texts`` are the names of the first arm's. All but the command is empty where no run has
    a record.
    """
    outcomes = list(outcomes)
    records = [outcome.record for outcome in outcomes if outcome.record is not None]
    if not records:
        return Reproduction(command)
    first = records[0]
    facts = {**first["versions"], "commit": first["commit"], **first["machine"]}
    facts |= {"precision": first["precision"], "threads": first["threads"]}
    commits = sorted({str(record["commit"]) for record in records})
    if len(commits) > 1:
        facts["commit"] = ", ".join(commits)
    for outcome in outcomes:  # the signatures of translations' scores, of the first that has them
        if outcome.test is not None and outcome.test.get("signature"):
            signatures: Any = outcome.test["signature"]
            facts |= {f"{SIGNATURE}{measure}": value for measure, value in signatures.items()}
            break
    # Records of earlier versions do not have all splits.
    splits = [split for split in ("train", "valid", "test") if split in first["data"]]
    return Reproduction(
        command,
        {name: str(value) for name, value in facts.items() if value is not None},
        {f"data, {name}": str(value) for name, value in first["data"]["checksums"].items()},
        text=StudyText(tuple(texts), {split: dict(first["data"][split]) for split in splits}),
        date=max(str(record.get("date", "")) for record in records),
    )


def list_differing_machines(outcomes: Mapping[str, Iterable[Outcome]]) -> list[str]:
    """Return a sentence where runs, by arm, had machines that differ; nothing where none did.

    Records of earlier versions name no instructions.
    """
    by_machine: dict[str, dict[str, int]] = {}
    for arm, runs in outcomes.items():
        for outcome in runs:
            if outcome.record is not None:
                machine = outcome.record["machine"]
                name = ", ".join(str(machine[fact]) for fact in _FACTS if machine.get(fact))
                counts = by_machine.setdefault(name, {})
                counts[arm] = counts.get(arm, 0) + 1
    if len(by_machine) < 2:
        return []
    parts = [
        f"{machine}: {', '.join(f'{n} of {arm}' for arm, n in counts.items())}"
        for machine, counts in by_machine.items()
    ]
    return [f"Runs were made on different machines, whose rounding may differ: {'; '.join(parts)}."]
