"""Random texts, on which the step of an encoder-decoder takes what it takes on others."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sublayer.config.objectives.base import Lengths
from sublayer.data.parallel.batches import Seq2SeqBatch


@dataclass(frozen=True)
class SyntheticTargets:
    """Batches of ``n_rows`` random texts and targets, each as long as ``lengths`` says."""

    lengths_vary: ClassVar[bool] = False

    vocab_size: int
    lengths: Lengths
    n_rows: int

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Seq2SeqBatch:
        """Draw the batch of an optimizer step, for one process alone; no row has padding."""
        assert world == 1, "steps are measured in one process"
        generator = torch.Generator().manual_seed(step)

        def draw(length: int) -> Tensor:
            shape = (self.n_rows, length)
            return torch.randint(self.vocab_size, shape, generator=generator)

        source = draw(self.lengths.read)
        target = draw(self.lengths.written)
        labels = draw(self.lengths.written)
        return Seq2SeqBatch(source, None, target, labels, labels.numel())

    def notes(self) -> list[str]:
        """Nothing is left out."""
        return []

    def n_tokens(self, step: int) -> int:
        """Count the target's tokens of a batch."""
        return self.n_rows * self.lengths.written
