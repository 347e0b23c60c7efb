"""What was read of a task's files: examples, and what was left out or repaired, with reasons."""

from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from sublayer.counts import count
from sublayer.tasks.example import Example

VERSION = 2
"""Changes whenever equal files would be read otherwise, by the reader of any task."""

SAME_ID = "an id that another row has: its place in the file is its id"
"""What is repaired of such a row."""


class Placed(Protocol):
    """A row of a file."""

    @property
    def place(self) -> str:
        """Return file and line, such as ``train.tsv:12``."""


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
    kept: Counter[str] = field(default_factory=Counter)
    """Rows with something wrong that are kept as they are, so that all are scored, by what it is.
    """
    notes: list[str] = field(default_factory=list)
    """What is said of a whole file, such as how its quotes are read."""
    firsts: dict[str, str] = field(default_factory=dict)
    """For each reason the first place: file and line."""
    _by_id: dict[str, Example] = field(default_factory=dict, repr=False)

    def add(self, example: Example, row: Placed) -> None:
        """Keep the example of a row.

        One that is there already, its id included, is left out. Of another with an id that is there
        already the id is made its own; both are counted.
        """
        earlier = self._by_id.get(example.id)
        if earlier is not None:
            if earlier == example:
                self.skip("the same row again", row.place)
                return
            self.repair(SAME_ID, row.place)
            example = replace(example, id=f"{example.id} at {row.place}")
        self._by_id[example.id] = example
        self.examples.append(example)

    def skip(self, reason: str, place: str) -> None:
        """Leave out the row at a place, such as ``train.tsv:12``, for a reason."""
        self.skipped[reason] += 1
        self.firsts.setdefault(reason, place)

    def repair(self, what: str, place: str) -> None:
        """Count a repair of the row at a place."""
        self.repaired[what] += 1
        self.firsts.setdefault(what, place)

    def keep(self, reason: str, place: str) -> None:
        """Count the row at a place as kept, whatever is wrong with it."""
        self.kept[reason] += 1
        self.firsts.setdefault(reason, place)

    def described(self) -> list[str]:
        """Say which rows were left out, repaired or kept, the first of each by its file's name."""
        notes = [*self.notes]
        for counted, what in (
            (self.skipped, "left out"),
            (self.repaired, "repaired"),
            (self.kept, "kept as it is"),
        ):
            for reason, n in counted.items():
                place = self._in_file(self.firsts[reason])
                first = f" ({place})" if n == 1 else f", first {place}"
                notes.append(f"{count(n, 'row')} {what}: {reason}{first}")
        return notes

    def _in_file(self, place: str) -> str:
        for path in self.paths:
            within = place.removeprefix(str(path))
            if within.startswith(":"):
                return path.name + within
        return place
