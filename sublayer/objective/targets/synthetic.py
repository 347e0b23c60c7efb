"""Random texts, on which the step of an encoder-decoder takes what it takes on others."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sublayer.config.objectives.base import Lengths
from sublayer.data.arrays import Ints
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.packing import pairs_in_rows


@dataclass(frozen=True)
class SyntheticTargets:
    """Batches of ``n_rows`` random texts and targets, each as long as ``lengths`` says."""

    lengths_vary: ClassVar[bool] = False

    vocab_size: int
    lengths: Lengths
    n_rows: int

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """Draw a process's share of the batch of a step, at least one row, without padding."""
        n_own = max(1, len(range(rank, self.n_rows, world)))
        generator = np.random.Generator(np.random.Philox(step))

        def draw(length: int) -> list[Ints]:
            return [generator.integers(self.vocab_size, size=length) for _ in range(n_own)]

        sources, targets = draw(self.lengths.read), draw(self.lengths.written)
        return pairs_in_rows(sources, targets, pad_id=0, first_id=0)

    def notes(self) -> list[str]:
        """Nothing is left out."""
        return []

    def n_tokens(self, step: int) -> int:
        """Count the target's tokens of a batch."""
        return self.n_rows * self.lengths.written
