"""The micro-batches of a step, prepared: on a GPU by a thread, while the step before computes."""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import torch

from sublayer.data.batches import AnyBatch, Batches
from sublayer.training.processes.alone import Alone, MicroBatch


@dataclass(frozen=True)
class PreparedPart:
    """A micro-batch where it was made, by which losses are counted, and where it is computed."""

    part: MicroBatch
    batch: AnyBatch


@dataclass(frozen=True)
class PreparedStep:
    """What this process computes of a step, and the tokens of all processes."""

    parts: list[PreparedPart]
    n_tokens: int


@dataclass(frozen=True)
class Preparation:
    """How a step is prepared: micro-batches are made, and copied without waiting for the device.

    A pure function of the step: it reads nothing that a step changes.
    """

    parallel: Alone
    batches: Batches
    n_sequences: int
    context: int
    device: torch.device

    def __call__(self, step: int) -> PreparedStep:
        """Prepare a step (0-based)."""
        made = self.parallel.micro_batches(self.batches, step, self.n_sequences, self.context)
        # From pinned memory, in the stream that computes: they stand behind the step before.
        parts = [PreparedPart(part, part.batch.to(self.device)) for part in made]
        return PreparedStep(parts, self.n_tokens(step))

    def n_tokens(self, step: int) -> int:
        """Count the tokens of a step, without padding, of all processes."""
        return self.batches.n_tokens(step)


class Ahead:
    """Prepares each step while the one before computes, in a thread; what comes out is the same.

    That one thread reads all batches, one step after another, as they plan epochs on the way. It
    goes no further than ``steps``. What goes wrong there is raised where the step is taken, as if
    it had been prepared then.
    """

    def __init__(self, preparation: Preparation, steps: int) -> None:
        self.preparation = preparation
        self.steps = steps
        self._thread = ThreadPoolExecutor(1, "batches")
        self._next: tuple[int, Future[PreparedStep]] | None = None

    def __call__(self, step: int) -> PreparedStep:
        """Return a step (0-based), and have the next one begun."""
        expected, self._next = self._next, None
        if expected is not None and expected[0] == step:
            prepared = expected[1].result()
        else:
            prepared = self._thread.submit(self.preparation, step).result()
        if step + 1 < self.steps:
            self._next = step + 1, self._thread.submit(self.preparation, step + 1)
        return prepared

    def n_tokens(self, step: int) -> int:
        """Count the tokens of a step, without padding, of all processes."""
        return self._thread.submit(self.preparation.n_tokens, step).result()


def pays(device: torch.device) -> bool:
    """Check whether to prepare ahead: where the device computes by itself.

    On a CPU it takes cores that compute, and no gain was seen: ``benchmarks/batches_ahead.py``.
    """
    return device.type == "cuda"
