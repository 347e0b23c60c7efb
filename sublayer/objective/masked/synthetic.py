"""Pairs of random texts, on which an encoder's step takes the time and memory of real ones."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sublayer.data.masked.packing import Example, pack
from sublayer.data.packed_batch import PackedBatch


@dataclass(frozen=True)
class SyntheticPairs:
    """Batches of ``n_rows`` random pairs of texts, as long as the context."""

    lengths_vary: ClassVar[bool] = False

    vocab_size: int
    context: int
    n_rows: int
    n_predictions: int
    """Tokens that are hidden in each row."""

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """Draw a process's share of the batch of a step, at least one of its rows."""
        n_own = max(1, len(range(rank, self.n_rows, world)))
        generator = np.random.Generator(np.random.Philox(step))
        predicted = np.arange(self.n_predictions)
        examples = [
            Example(
                ids=generator.integers(self.vocab_size, size=self.context),
                segments=generator.integers(2, size=self.context),
                positions=predicted,
                targets=generator.integers(self.vocab_size, size=len(predicted)),
                label=int(generator.integers(2)),
            )
            for _ in range(n_own)
        ]
        return pack(examples, width=self.context, pad_id=0)

    def notes(self) -> list[str]:
        """Nothing is left out."""
        return []

    def n_tokens(self, step: int) -> int:
        """Count the tokens of a batch."""
        return self.n_rows * self.context
