"""Pairs of random texts, on which an encoder's step takes the time and memory of real ones."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from sublayer.data.masked.packing import MaskedBatch


@dataclass(frozen=True)
class SyntheticPairs:
    """Batches of ``n_rows`` random pairs of texts, as long as the context."""

    lengths_vary: ClassVar[bool] = False

    vocab_size: int
    context: int
    n_rows: int
    n_predictions: int
    """Tokens that are hidden in each row."""

    def batch(self, step: int, rank: int = 0, world: int = 1) -> MaskedBatch:
        """Draw the batch of an optimizer step, for one process alone."""
        assert world == 1, "steps are measured in one process"
        generator = torch.Generator().manual_seed(step)

        def draw(below: int, *shape: int) -> Tensor:
            return torch.randint(below, shape, generator=generator)

        rows = torch.arange(self.n_rows)
        predicted = torch.arange(self.n_predictions)
        return MaskedBatch(
            tokens=draw(self.vocab_size, self.n_rows, self.context),
            segments=draw(2, self.n_rows, self.context),
            example_ids=torch.zeros(self.n_rows, self.context, dtype=torch.int64),
            lengths=(self.context,) * self.n_rows,
            masked_positions=torch.cartesian_prod(rows, predicted),
            targets=draw(self.vocab_size, self.n_rows * len(predicted)),
            cls_positions=torch.stack([rows, torch.zeros_like(rows)], dim=1),
            labels=draw(2, self.n_rows),
        )

    def notes(self) -> list[str]:
        """Nothing is left out."""
        return []

    def n_tokens(self, step: int) -> int:
        """Count the tokens of a batch."""
        return self.n_rows * self.context
