"""A setup in a process of its own: built, watched for memory, then asked for steps.

One process each, so that no contestant runs with another's allocator, threads or memory; the parent
interleaves them.
"""

import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any, NamedTuple

import torch
from contestants import Setup, Step

from sublayer.system.machine import PeakMemory, release_freed_memory
from sublayer.training.step import TrainStep

_LOADING_CALLS = 50


class Taken(NamedTuple):
    """Steps that were taken: how long they took, and how many tokens they had, padding not."""

    seconds: float
    tokens: int
    graphs: int
    """Graphs that ``torch.compile`` made meanwhile."""


class Ended(SystemExit):
    """The end of a worker's process before it answered."""


class Worker:
    """The parent's side of a process that takes steps: ``script --serve``, in ``serve``."""

    def __init__(self, setup: Setup, script: Path) -> None:
        self.setup, self.taken = setup, 0
        self.starting_s: float | None = None
        options = {"--serve": json.dumps(asdict(setup)), "--threads": torch.get_num_threads()}
        command = [
            sys.executable,
            str(script),
            *(str(part) for option in options.items() for part in option),
        ]
        environment = dict(os.environ)
        self._compiled_code: tempfile.TemporaryDirectory[str] | None = None
        if setup.is_compiled_on_cpu:
            # An empty cache: all is compiled, as the first time.
            self._compiled_code = tempfile.TemporaryDirectory()
            environment["TORCHINDUCTOR_CACHE_DIR"] = self._compiled_code.name
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self._answer()

    def steps(self, count: int) -> Taken:
        """Take steps and give the time that they took."""
        self.taken += count
        return Taken(*self._ask("steps", count))

    def peak_bytes(self) -> int:
        """Give the peak of memory since the model was built, beyond the memory resident then."""
        return int(self._ask("peak", 0))

    def loading_s(self) -> float | None:
        """Give the seconds that making a global batch takes, where this is our step."""
        answer = self._ask("loading", 0)
        return None if answer is None else float(answer)

    def score(self) -> float:
        """Give the score of the model."""
        return float(self._ask("score", 0))

    def close(self) -> None:
        """End the process."""
        self._process.communicate()
        if self._compiled_code is not None:
            self._compiled_code.cleanup()

    def _ask(self, what: str, count: int) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{what} {count}\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise Ended(
                f"{self.setup.contestant} ({self.setup}) ended with code {self._process.wait()}"
            )
        return json.loads(line)


def serve(step: Step, device: str, *, score: Callable[[], float] | None = None) -> None:
    """Answer the parent: seconds and tokens of steps, peak memory, seconds of loading data.

    ``score`` scores the model, where that is asked for.
    """
    gc.collect()
    # What building freed goes back to the system; else it would hide a part of the peak.
    release_freed_memory()
    taken = n_graphs = 0
    memory = PeakMemory(torch.device(device)).__enter__()
    _say(None)
    for line in sys.stdin:
        what, count = line.split()
        match what:
            case "steps":
                begun = time.perf_counter()
                for index in range(taken, taken + int(count)):
                    step(index)
                if device == "cuda":
                    torch.cuda.synchronize()
                seconds = time.perf_counter() - begun
                n_tokens = sum(map(step.n_tokens, range(taken, taken + int(count))))
                n_known, n_graphs = n_graphs, _graphs_made()
                _say([seconds, n_tokens, n_graphs - n_known])
                taken += int(count)
            case "peak":
                memory.__exit__(None, None, None)
                assert memory.bytes is not None, "this system does not account for peak memory"
                _say(memory.bytes)
            case "loading":
                _say(_loading_seconds(step) if isinstance(step, TrainStep) else None)
            case "score":
                assert score is not None, "nothing is scored"
                _say(score())


def _say(value: float | list[float] | None) -> None:
    print(json.dumps(value), flush=True)


def _graphs_made() -> int:
    """Count the graphs compiled so far, without importing the compiler."""
    if "torch._dynamo.utils" not in sys.modules:
        return 0
    return int(torch._dynamo.utils.counters["stats"]["unique_graphs"])


def _loading_seconds(step: TrainStep) -> float:
    begun = time.perf_counter()
    for index in range(_LOADING_CALLS):
        step.batches.batch(index)
    return (time.perf_counter() - begun) / _LOADING_CALLS
