"""Random examples, on which a step takes the time and memory of the longest real ones."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sublayer.config.objectives.base import Lengths
from sublayer.data.arrays import Ints
from sublayer.data.batches import IGNORED
from sublayer.data.packed_batch import PackedBatch
from sublayer.data.packing import PackedSequence, Unpacked, pack_examples


@dataclass(frozen=True)
class SyntheticExamples:
    """Batches of as many tokens as ``n_examples`` have whose sequences are as long as rows.

    Where an example is one sequence, each row has two of half the length, kept apart as real ones.
    """

    lengths_vary: ClassVar[bool] = False

    vocab_size: int
    lengths: Lengths
    n_examples: int
    n_sequences: int = 1
    """Of each example."""
    n_predicted: int = 0
    """Tokens of a sequence, its last ones, that are predicted where they are read."""
    has_encoder: bool = False
    """Whether a decoder beside an encoder writes targets."""

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """Draw a process's share of the batch of a step, at least one of its examples."""
        n_own = max(1, len(range(rank, self.n_examples, world)))
        generator = np.random.Generator(np.random.Philox(step))
        read, written = self.lengths
        examples: list[Unpacked] = []
        for _ in range(n_own):
            if self.n_sequences == 1:
                for part in (0, 1):
                    sequence = self._sequence(generator, (read + part) // 2, (written + part) // 2)
                    examples.append(Unpacked([sequence], 0.0, 1.0, len(examples)))
            else:
                sequences = [
                    self._sequence(generator, read, written) for _ in range(self.n_sequences)
                ]
                examples.append(Unpacked(sequences, 0.0, 1.0, len(examples)))
        return pack_examples(examples, width=read, written_width=written, pad_id=0)

    def _sequence(
        self, generator: np.random.Generator, n_read: int, n_written: int
    ) -> PackedSequence:
        ids = generator.integers(self.vocab_size, size=n_read)
        written: Ints | None = None
        if self.has_encoder:
            written = generator.integers(self.vocab_size, size=n_written)
        targets: Ints | None = None
        if self.n_predicted:
            targets = np.full(len(ids), IGNORED, dtype=np.int64)
            n = min(self.n_predicted * n_read // self.lengths.read, n_read - 1)
            targets[-n - 1 : -1] = ids[-n:]
        return PackedSequence(ids, np.zeros_like(ids), 0, written=written, targets=targets)

    def notes(self) -> list[str]:
        """Nothing is left out."""
        return []

    def n_tokens(self, step: int) -> int:
        """Count the tokens of a batch."""
        n_written = self.lengths.written if self.has_encoder else 0
        return self.n_examples * self.n_sequences * (self.lengths.read + n_written)
