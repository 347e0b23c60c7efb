"""Batches of examples: those of a recipe, random ones, and ones of similar lengths."""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from sublayer.config.objective import Lengths
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import TaskEpoch, batch_sequences
from sublayer.config.supervised import SupervisedObjective
from sublayer.data.arrays import Ints
from sublayer.data.batches import IGNORED
from sublayer.data.packing import PackedBatch, PackedSequence, Unpacked, pack_examples
from sublayer.data.store import Split
from sublayer.data.tasks.assembly import RowRule
from sublayer.data.tasks.batches import ExampleBatches, TaskSplit, of_tasks
from sublayer.model.transformer import Transformer


def supervised(recipe: Recipe) -> SupervisedObjective:
    """Return the objective of a recipe that answers tasks."""
    assert isinstance(recipe.objective, SupervisedObjective), "the row is of tasks"
    return recipe.objective


def example_batches(recipe: Recipe, split: Split) -> ExampleBatches:
    """Build the batches that a recipe asks for. Raises DataError where there is no example."""
    objective = supervised(recipe)
    examples = of_tasks(split)
    rule = row_rule(
        objective,
        examples,
        context=recipe.data.context,
        kind=recipe.model.kind,
        starts_with_pad=recipe.model.decoder_start == "pad",
    )
    return ExampleBatches(
        examples,
        rule=replace(rule, fills_rows=recipe.train.batch_tokens is not None),
        batch_sequences=batch_sequences(recipe),
        seed=recipe.train.seed,
        orders=objective.orders,
    )


def row_rule(
    objective: SupervisedObjective,
    split: TaskSplit,
    *,
    context: int,
    kind: str,
    starts_with_pad: bool,
) -> RowRule:
    """Return the rule that lays out a split's texts for a model of a kind."""
    first_id = None
    if kind == "encoder-decoder":
        first_id = split.marks.pad if starts_with_pad else split.marks.last
    return RowRule(
        format=objective.format,
        marks=split.marks,
        context=context,
        predicts_text=objective.language_weight > 0,
        target_length=objective.target_length if objective.format == "text" else 0,
        first_id=first_id,
    )


def rule_of_model(model: Transformer, recipe: Recipe, split: TaskSplit) -> RowRule:
    """Return the rule that lays out a split's texts for a model of a recipe."""
    config = model.config
    return row_rule(
        supervised(recipe),
        split,
        context=recipe.data.context,
        kind=config.kind,
        starts_with_pad=config.decoder_start == "pad",
    )


def epoch_tokens(recipe: Recipe, split: Split) -> TaskEpoch:
    """Count the tokens of an epoch as a step counts them: a context for each example, or row."""
    batches = example_batches(recipe, split)
    tokens = batches.n_epoch_steps * batch_sequences(recipe) * recipe.data.context
    return TaskEpoch(round(tokens), batches.n_epoch)


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
    """True where a decoder beside an encoder writes targets."""

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


def similar_batches(tokens: Ints, most_tokens: int) -> list[Ints]:
    """Put examples of similar lengths, ``[N]``, into batches of at most so many tokens."""
    order = np.argsort(tokens, kind="stable")
    batches = []
    first = 0
    total = 0
    for place, number in enumerate(order.tolist()):
        if total + tokens[number] > most_tokens and place > first:
            batches.append(order[first:place])
            first, total = place, 0
        total += int(tokens[number])
    if len(order):
        batches.append(order[first:])
    return batches
