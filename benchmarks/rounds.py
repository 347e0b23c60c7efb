"""Interleaved timing: every round, every setup takes its steps in turn, in a shuffled order.

Setups are compiled in the first look; a turn in which another shape is compiled is repeated.
"""

import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from contestants import OURS, Setup
from products import Products
from worker import Ended, Taken, Worker

TURN_S = 2.0
"""Seconds that a turn should last, so that waking the caches and the clock counts little."""
SLOWER = 1.4
"""A setup so much slower than its contestant's best at the first look runs no rounds."""
_FIRST_STEPS = 3
"""Steps of the first look, after one that warms up; fewer where they take long."""
_FIRST_S = 8.0
_STEADY_STEPS = 3
"""Steps in a row that compile nothing, by which a compiled setup is warm."""
_FEWEST_ROUNDS = 3


class Budget:
    """Wall clock for all cases of a run: each has an equal part of what those before it left."""

    def __init__(self, minutes: float, n_cases: int) -> None:
        self._ends, self._n_left = time.monotonic() + 60 * minutes, n_cases

    def next_case(self) -> float:
        """Return when the case that begins now has to end, on the monotonic clock."""
        now = time.monotonic()
        ends = now + max(0.0, self._ends - now) / self._n_left
        self._n_left -= 1
        return ends


@dataclass
class Timing:
    """The figures of one setup: for each round, its peak memory, and the seconds of making a batch.

    The peak is over its first steps; ``loading_s`` is None where batches stand ready.
    """

    setup: Setup
    peak_steps: int
    peak_bytes: int
    loading_s: float | None
    starting_s: float | None
    """Seconds of a compiled setup's first steps beyond those of as many steady ones."""
    tokens_per_s: list[float] = field(default_factory=list)
    s_per_step: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.tokens_per_s)

    @property
    def step_s(self) -> float:
        return statistics.median(self.s_per_step)


@dataclass(frozen=True)
class Rounds:
    """Results of the rounds of a case: each setup's figures, and the products' in each round."""

    timings: list[Timing]
    product_flops_per_s: list[float]
    not_compiled: Mapping[str, str]
    """Reasons why setups were not compiled, by name."""


def run_rounds(
    setups: Sequence[Setup],
    *,
    script: Path,
    rounds: int,
    peak_steps: int,
    ends: float,
    products: Callable[[Setup], Products],
    note: Callable[[str], None],
) -> Rounds:
    """Time all setups of one case against each other.

    Memory is the peak over the first ``peak_steps`` steps.
    ``script`` is what serves a setup; ``products`` makes those of our best setup, which have their
    turn in each round. After three rounds none begins that would end past ``ends``, and memory is
    watched over fewer steps where they take more than a quarter of the time.
    """
    looked_at, not_compiled = _first_look(setups, script, ends, note)
    seconds = sum(looked_at.values())
    peak_steps = max(
        _FIRST_STEPS, min(peak_steps, round(0.25 * (ends - time.monotonic()) / seconds))
    )
    timings: dict[Setup, Timing] = {}
    for worker in looked_at:
        worker.steps(max(0, peak_steps - worker.taken))
        timings[worker.setup] = Timing(
            worker.setup,
            worker.taken,
            worker.peak_bytes(),
            worker.loading_s(),
            worker.starting_s,
        )
    ours = min(
        (worker for worker in looked_at if worker.setup.name == OURS),
        key=lambda each: looked_at[each],
    )
    multiplied, speeds = products(ours.setup), list[float]()
    order = list(looked_at)
    begun, n_done = time.monotonic(), 0
    while n_done < rounds:
        now = time.monotonic()
        if n_done >= _FEWEST_ROUNDS and now + (now - begun) / n_done > ends:
            note(f"{n_done} rounds: the time for this case is over")
            break
        random.Random(n_done).shuffle(order)
        for worker in order:
            n_steps = max(1, round(TURN_S / looked_at[worker]))
            taken = _turn(worker, n_steps)
            timings[worker.setup].tokens_per_s.append(taken.tokens / taken.seconds)
            timings[worker.setup].s_per_step.append(taken.seconds / n_steps)
        speeds.append(multiplied.speed())
        n_done += 1
        told = (
            f"{setup.name} ({setup}) {timing.tokens_per_s[-1]:,.0f}"
            for setup, timing in timings.items()
        )
        note(
            f"round {n_done} of {rounds}: {'; '.join(told)}; "
            f"products {speeds[-1] / 1e9:,.0f} GFLOP/s"
        )
    for worker in order:
        worker.close()
    return Rounds(list(timings.values()), speeds, not_compiled)


def _turn(worker: Worker, n_steps: int) -> Taken:
    """Take the steps of a turn, again where one of them was of a shape not yet compiled."""
    taken = worker.steps(n_steps)
    while taken.graphs:
        taken = worker.steps(n_steps)
    return taken


def _first_look(
    setups: Sequence[Setup], script: Path, ends: float, note: Callable[[str], None]
) -> tuple[dict[Worker, float], dict[str, str]]:
    """Find the seconds of each setup's step; keep the workers that may be a row's best.

    Of compiled setups, which come last, only those in their contestant's best precision are tried,
    and none after ``ends``; also return why some took no part, by their names.
    """
    looked_at: dict[Worker, float] = {}
    not_compiled: dict[str, str] = {}
    for setup in setups:
        if setup.is_compiled_on_cpu:
            if setup.precision != _best_precision(looked_at, setup.contestant):
                continue
            if time.monotonic() > ends:
                not_compiled[f"{setup.name} ({setup})"] = "the time for this case is over"
                continue
        try:
            worker = Worker(setup, script)
            look = _compile if setup.is_compiled_on_cpu else _look
            looked_at[worker] = look(worker)
        except Ended as ended:
            if not setup.is_compiled_on_cpu:
                raise
            note(str(ended))
            not_compiled[f"{setup.name} ({setup})"] = "its process failed"
            continue
        note(f"first look: {setup.name} ({setup}) takes {looked_at[worker]:.2f} s a step")
        rivals = {
            each: seconds for each, seconds in looked_at.items() if each.setup.name == setup.name
        }
        for rival, seconds in rivals.items():
            if seconds > SLOWER * min(rivals.values()):
                rival.close()
                del looked_at[rival]
    return looked_at, not_compiled


def _best_precision(looked_at: Mapping[Worker, float], contestant: str) -> str:
    plain = [worker for worker in looked_at if worker.setup.name == contestant]
    return min(plain, key=lambda worker: looked_at[worker]).setup.precision


def _look(worker: Worker) -> float:
    """Return the seconds of a step, after one that warms up."""
    spent = worker.steps(1).seconds
    found: list[float] = []
    while not found or (len(found) < _FIRST_STEPS and spent + found[-1] < _FIRST_S):
        found.append(worker.steps(1).seconds)
        spent += found[-1]
    return min(found)


def _compile(worker: Worker) -> float:
    """Return the seconds of a step that compiles nothing, after those that do."""
    taken: list[Taken] = []
    while len(taken) <= _STEADY_STEPS or any(each.graphs for each in taken[-_STEADY_STEPS:]):
        taken.append(worker.steps(1))
    seconds = [each.seconds for each in taken]
    steady = min(seconds)
    worker.starting_s = sum(seconds) - len(seconds) * steady
    return steady
