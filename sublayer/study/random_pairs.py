"""Pairs of random texts, on which the step of an encoder or a translator takes what it takes on others."""

from dataclasses import dataclass

import torch
from torch import Tensor

from sublayer.config.objective import ObjectiveConfig
from sublayer.data.packed import PairBatch
from sublayer.data.translation_batches import TranslationBatch
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


@dataclass(frozen=True)
class RandomTranslations:
    """Batches of ``n_rows`` random texts and translations, each as long as the context."""

    vocab_size: int
    context: int
    n_rows: int

    def batch(self, step: int, rank: int = 0, world: int = 1) -> TranslationBatch:
        """Draw the batch of an optimizer step, for one process alone."""
        assert world == 1, "steps are measured in one process"
        generator, shape = torch.Generator().manual_seed(step), (self.n_rows, self.context)
        source, target, labels = (torch.randint(self.vocab_size, shape, generator=generator) for _ in range(3))
        return TranslationBatch(source, None, target, labels, labels.numel())

    def n_tokens(self, step: int) -> int:
        """Count the target's tokens of a batch."""
        return self.n_rows * self.context
