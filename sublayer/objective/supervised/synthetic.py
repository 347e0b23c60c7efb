"""Random examples, on which a step takes the time and memory of the longest real ones."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from sublayer.data.batches import IGNORED
from sublayer.data.packing import PackedBatch, PackedSequence, Unpacked, pack_examples


@dataclass(frozen=True)
class SyntheticExamples:
    """Batches of ``n_rows`` random examples, as long as the context."""

    lengths_vary: ClassVar[bool] = False

    vocab_size: int
    context: int
    target_length: int
    n_rows: int
    predicts_text: bool = False
    has_encoder: bool = False
    """Whether a decoder beside an encoder writes targets."""

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """Draw the batch of an optimizer step, for one process alone."""
        assert world == 1, "steps are measured in one process"
        generator = np.random.Generator(np.random.Philox(step))
        examples = []
        for number in range(self.n_rows):
            ids = generator.integers(self.vocab_size, size=self.context)
            targets = np.append(ids[1:], IGNORED) if self.predicts_text else None
            written = None
            if self.has_encoder:
                written = generator.integers(self.vocab_size, size=self.target_length)
            sequence = PackedSequence(ids, np.zeros_like(ids), 0, written=written, targets=targets)
            examples.append(Unpacked([sequence], 0.0, 1.0, number))
        width = max(self.target_length, 1)
        return pack_examples(examples, width=self.context, written_width=width, pad_id=0)

    def notes(self) -> list[str]:
        """Nothing is left out."""
        return []

    def n_tokens(self, step: int) -> int:
        """Count the tokens of a batch."""
        return self.n_rows * self.context
