"""Pairs of random texts, on which the step of an encoder takes what it takes on others."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sublayer.config.objective import ObjectiveConfig
from sublayer.data.packed import PairBatch
from sublayer.model.cost import n_predicting


@dataclass(frozen=True)
class RandomPairs:
    """Batches of ``n_rows`` random pairs of texts, each as long as the context and with the average of predictions."""

    objective: ObjectiveConfig
    vocab_size: int
    context: int
    n_rows: int

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PairBatch:
        """Draw the batch of an optimizer step, for one process alone."""
        assert world == 1, "steps are measured in one process"
        generator = torch.Generator().manual_seed(step)

        def draw(below: int, *shape: int) -> Tensor:
            return torch.randint(below, shape, generator=generator)

        rows, predicted = torch.arange(self.n_rows), torch.arange(n_predicting(self.objective, self.context))
        return PairBatch(
            tokens=draw(self.vocab_size, self.n_rows, self.context),
            segments=draw(2, self.n_rows, self.context),
            numbers=torch.zeros(self.n_rows, self.context, dtype=torch.int64),
            lengths=(self.context,) * self.n_rows,
            masked=torch.cartesian_prod(rows, predicted),
            targets=draw(self.vocab_size, self.n_rows * len(predicted)),
            firsts=torch.stack([rows, torch.zeros_like(rows)], dim=1),
            labels=draw(2, self.n_rows),
        )

    def n_tokens(self, step: int) -> int:
        """Count the tokens of a batch."""
        return self.n_rows * self.context
