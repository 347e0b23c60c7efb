"""Contestants that take turns in one process: their rates, round by round."""

import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

SLOWER = 1.4
"""A setup so much slower than its contestant's best at the first look runs no rounds."""


@dataclass
class Contestant:
    """Contestant; ``run`` does so many pieces of work and returns their number."""

    name: str
    setup: str
    run: Callable[[int], int]
    per_s: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.per_s)

    def turn(self, count: int) -> float:
        """Run and return the rate per second."""
        begun = time.perf_counter()
        done = self.run(count)
        return done / (time.perf_counter() - begun)


def take_turns(
    contestants: Sequence[Contestant],
    rounds: int,
    *,
    pieces: int,
    turn_s: float,
    note: Callable[[str], None],
) -> list[Contestant]:
    """Let all run in turn, shuffled in every round; return each one's best setup, fastest first.

    A first look of so many ``pieces`` of work, after one that warms up, tells how many a turn has
    to last ``turn_s``.
    """
    seconds, speeds = {}, {}
    for each in contestants:
        each.turn(1)
        begun = time.perf_counter()
        speeds[each.name, each.setup] = each.turn(pieces)
        seconds[each.name, each.setup] = (time.perf_counter() - begun) / pieces
        note(f"first look: {each.name} ({each.setup}) {speeds[each.name, each.setup]:,.1f}")
    best = {
        name: max(speed for (other, _), speed in speeds.items() if other == name)
        for name, _ in speeds
    }
    left = [
        each for each in contestants if speeds[each.name, each.setup] * SLOWER >= best[each.name]
    ]
    for index in range(rounds):
        random.Random(index).shuffle(left)
        for each in left:
            each.per_s.append(each.turn(max(1, round(turn_s / seconds[each.name, each.setup]))))
        note(
            f"round {index + 1}: "
            + "; ".join(f"{each.name} ({each.setup}) {each.per_s[-1]:,.1f}" for each in left)
        )
    found: dict[str, Contestant] = {}
    for each in sorted(left, key=lambda each: -each.median):
        found.setdefault(each.name, each)
    return list(found.values())
