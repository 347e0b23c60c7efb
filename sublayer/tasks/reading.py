"""What was read of a task's files: examples, and what was left out or repaired, with reasons."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from sublayer.tasks.example import Example


@dataclass
class ReadSplit:
    """A split of a task as it was read."""

    name: str
    """One of the task's ``splits``."""
    paths: tuple[Path, ...]
    """The files, in the order in which they were read."""
    examples: list[Example] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    """Rows that were left out, by the reason."""
    repaired: Counter[str] = field(default_factory=Counter)
    """Rows that were read otherwise than they are written, by what was done."""
    firsts: dict[str, str] = field(default_factory=dict)
    """For each reason the first place: file and line."""

    def skip(self, reason: str, place: str) -> None:
        """Leave out the row at a place, such as ``train.tsv:12``, for a reason."""
        self.skipped[reason] += 1
        self.firsts.setdefault(reason, place)

    def repair(self, what: str, place: str) -> None:
        """Count a repair of the row at a place."""
        self.repaired[what] += 1
        self.firsts.setdefault(what, place)
