"""Interleaved timing: every round, every setup takes its steps in turn, in a shuffled order."""

import gc
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from contestants import SIZES, Setup, Step, build_step

from sublayer.train.step import TrainStep

TURN_S = 2.0
"""Seconds that a turn should last, so that waking the caches and the clock does not count for much."""
SLOWER = 1.25
"""A setup that a first look finds so much slower than its contestant's best does not run the rounds."""
_LOADING_CALLS = 50


@dataclass
class Timing:
    """Tokens per second of one setup, one figure for each round; ``loading_s`` is what making a batch takes."""

    setup: Setup
    tokens_per_s: list[float] = field(default_factory=list)
    loading_s: float | None = None

    @property
    def median(self) -> float:
        return statistics.median(self.tokens_per_s)


def run_rounds(setups: Sequence[Setup], rounds: int, note: Callable[[str], None]) -> list[Timing]:
    """Time all setups of one case against each other."""
    runners = _first_look(setups, note)
    for index in range(rounds):
        random.Random(index).shuffle(runners)
        for runner in runners:
            runner.take_turn()
        note(f"round {index + 1} of {rounds}: " + ", ".join(str(runner) for runner in runners))
    for runner in runners:
        if isinstance(runner.step, TrainStep):
            runner.timing.loading_s = _loading_seconds(runner.step)
    return [runner.timing for runner in runners]


class _Runner:
    """A setup with its built step, the number of the next step, and how many make a turn."""

    def __init__(self, setup: Setup, step: Step) -> None:
        self.setup, self.step, self.next = setup, step, 0
        self.timing = Timing(setup)
        self.take(1)
        self.first_s = min(self.take(1), self.take(1))
        self.per_turn = max(1, round(TURN_S / self.first_s))

    def take_turn(self) -> None:
        seconds = self.take(self.per_turn)
        self.timing.tokens_per_s.append(self.per_turn * SIZES[self.setup.size].tokens_per_step / seconds)

    def take(self, n_steps: int) -> float:
        begun = time.perf_counter()
        for _ in range(n_steps):
            self.step(self.next)
            self.next += 1
        if self.setup.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - begun

    def __str__(self) -> str:
        return f"{self.setup.contestant} ({self.setup}) {self.timing.tokens_per_s[-1]:,.0f}"


def _first_look(setups: Sequence[Setup], note: Callable[[str], None]) -> list[_Runner]:
    runners: list[_Runner] = []
    for setup in setups:
        runners.append(_Runner(setup, build_step(setup)))
        note(f"first look: {setup.contestant} ({setup}): {runners[-1].first_s:.2f} s a step")
        best: dict[str, float] = {}
        for runner in runners:
            best[runner.setup.contestant] = min(best.get(runner.setup.contestant, runner.first_s), runner.first_s)
        runners = [runner for runner in runners if runner.first_s <= SLOWER * best[runner.setup.contestant]]
        gc.collect()
    return runners


def _loading_seconds(step: TrainStep) -> float:
    seconds = []
    for index in range(_LOADING_CALLS):
        begun = time.perf_counter()
        step.windows.batch(index)
        seconds.append(time.perf_counter() - begun)
    return statistics.median(seconds)
