"""Interleaved timing: every round, every setup takes its steps in turn, in a shuffled order."""

import random
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contestants import Setup
from worker import Worker

TURN_S = 2.0
"""Seconds that a turn should last, so that waking the caches and the clock does not count for much."""
SLOWER = 1.4
"""A setup that a first look finds so much slower than its contestant's best does not run the rounds."""
_FIRST_STEPS = 4


@dataclass
class Timing:
    """One setup: tokens a second and seconds a step, a figure for each round; peak memory; seconds of making a batch.

    ``loading_s`` is None where batches stand ready.
    """

    setup: Setup
    peak_bytes: int
    loading_s: float | None
    tokens_per_s: list[float] = field(default_factory=list)
    s_per_step: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.tokens_per_s)

    @property
    def step_s(self) -> float:
        return statistics.median(self.s_per_step)


def run_rounds(
    setups: Sequence[Setup], *, script: Path, rounds: int, peak_steps: int, note: Callable[[str], None]
) -> list[Timing]:
    """Time all setups of one case against each other; memory is the peak over the first ``peak_steps`` steps.

    ``script`` is what serves a setup.
    """
    looked_at = _first_look(setups, script, note)
    timings: dict[Setup, Timing] = {}
    for worker in looked_at:
        worker.steps(peak_steps - _FIRST_STEPS)
        timings[worker.setup] = Timing(worker.setup, worker.peak_bytes(), worker.loading_s())
    order = list(looked_at)
    for index in range(rounds):
        random.Random(index).shuffle(order)
        for worker in order:
            n_steps = max(1, round(TURN_S / looked_at[worker]))
            taken = worker.steps(n_steps)
            timings[worker.setup].tokens_per_s.append(taken.tokens / taken.seconds)
            timings[worker.setup].s_per_step.append(taken.seconds / n_steps)
        speeds = (f"{setup.contestant} ({setup}) {timing.tokens_per_s[-1]:,.0f}" for setup, timing in timings.items())
        note(f"round {index + 1} of {rounds}: {'; '.join(speeds)}")
    for worker in order:
        worker.close()
    return list(timings.values())


def _first_look(setups: Sequence[Setup], script: Path, note: Callable[[str], None]) -> dict[Worker, float]:
    """Find the seconds of each setup's step, in a worker; keep the workers that may be their contestant's best."""
    looked_at: dict[Worker, float] = {}
    for setup in setups:
        worker = Worker(setup, script)
        worker.steps(1)
        looked_at[worker] = min(worker.steps(1).seconds for _ in range(1, _FIRST_STEPS))
        note(f"first look: {setup.contestant} ({setup}) takes {looked_at[worker]:.2f} s a step")
        rivals = {each: seconds for each, seconds in looked_at.items() if each.setup.contestant == setup.contestant}
        for rival, seconds in rivals.items():
            if seconds > SLOWER * min(rivals.values()):
                rival.close()
                del looked_at[rival]
    return looked_at
