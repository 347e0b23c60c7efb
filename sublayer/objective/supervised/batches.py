"""Batches of examples: those of a recipe, random ones, and ones of similar lengths."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.objective import Lengths, SupervisedObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import batch_sequences as trained_sequences
from sublayer.data.arrays import Ints
from sublayer.data.batches import IGNORED, PackedBatch, PackedSequence, Unpacked, pack_examples
from sublayer.data.store import Split
from sublayer.data.tasks.batches import Assembler, ExampleBatches, RowRule, TaskSplit, of_tasks
from sublayer.data.tasks.encoded import EncodedExamples
from sublayer.evaluation.split_work import (
    ALONE,
    Processes,
    Progress,
    Result,
    compute_each,
    silent,
)
from sublayer.model.transformer import Transformer, evaluating
from sublayer.objective.base import Synthetic
from sublayer.objective.evaluation import batch_sequences, own_objective
from sublayer.tasks.spec import TaskSpec


def supervised(recipe: Recipe) -> SupervisedObjective:
    """Return a recipe's supervised objective."""
    return own_objective(recipe, SupervisedObjective)


def example_batches(recipe: Recipe, split: Split) -> ExampleBatches:
    """Build the batches of a recipe. Raises DataError without examples."""
    examples = of_tasks(split)
    rule = recipe_rule(recipe, examples)
    return ExampleBatches(
        examples,
        rule=replace(rule, fills_rows=recipe.train.batch_tokens is not None),
        batch_sequences=trained_sequences(recipe),
        seed=recipe.train.seed,
        orders=supervised(recipe).orders,
    )


def recipe_rule(recipe: Recipe, split: TaskSplit) -> RowRule:
    """Return the layout rule of a split's texts for a recipe's model."""
    return row_rule(supervised(recipe), split, recipe.data.context, recipe.model)


def row_rule(
    objective: SupervisedObjective, split: TaskSplit, context: int, model: ModelConfig
) -> RowRule:
    """Return the layout rule of a split's texts for a kind of model."""
    first_id = None
    if model.kind == "encoder-decoder":
        first_id = split.marks.pad if model.decoder_start == "pad" else split.marks.last
    return RowRule(
        format=objective.format,
        marks=split.marks,
        context=context,
        predicts_text=objective.language_weight > 0,
        target_length=objective.target_length if objective.format == "text" else 0,
        first_id=first_id,
    )


@dataclass(frozen=True)
class SyntheticExamples(Synthetic):
    """Batches with the tokens of ``n_rows`` examples of full-row sequences.

    Where an example is one sequence, rows hold two of half the length, separated as real ones.
    """

    lengths: Lengths
    n_sequences: int = 1
    """Of each example."""
    n_predicted: int = 0
    """Tokens of a sequence, its last ones, that are predicted where they are read."""
    has_encoder: bool = False
    """True where a decoder beside an encoder writes targets."""

    def draw(self, generator: np.random.Generator, n_rows: int) -> PackedBatch:
        """Draw a batch of ``n_rows`` examples."""
        read, written = self.lengths
        halves = [((read + part) // 2, (written + part) // 2) for part in (0, 1)]
        examples: list[Unpacked] = []
        for _ in range(n_rows):
            if self.n_sequences == 1:
                drawn = [[self._sequence(generator, *half)] for half in halves]
            else:
                wholes = range(self.n_sequences)
                drawn = [[self._sequence(generator, read, written) for _ in wholes]]
            for sequences in drawn:
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

    def n_tokens(self, step: int) -> int:
        """Count the tokens of a batch."""
        n_written = self.lengths.written if self.has_encoder else 0
        return self.n_rows * self.n_sequences * (self.lengths.read + n_written)


@dataclass(frozen=True)
class AskedSplit:
    """A split with the model that answers it."""

    model: Transformer
    split: TaskSplit
    rule: RowRule
    """Layout of the split's texts for the model."""
    spec: TaskSpec
    processes: Processes = ALONE
    """Those that divide the work, of which all return the same."""
    progress: Progress = silent
    """Hears of batches."""

    def each_batch(
        self, encoded: EncodedExamples, work: Callable[[PackedBatch], Result]
    ) -> list[Result]:
        """Compute ``work`` of batches of examples of similar lengths.

        Without dropout and gradients.
        """
        model, rule = self.model, self.rule
        assembler = Assembler(encoded, rule)
        n_rows = rule.n_rows or batch_sequences(model, rule.context)
        batches = similar_batches(assembler.tokens(np.arange(len(encoded))), n_rows * rule.context)
        device = model.embedding.weight.device

        def of_batch(index: int) -> Result:
            return work(assembler.pack(batches[index]).to(device))

        with evaluating(model), torch.inference_mode():
            return compute_each(of_batch, len(batches), self.processes, self.progress)


def similar_batches(tokens: Ints, most_tokens: int) -> list[Ints]:
    """Group examples of similar lengths, ``[N]``, into batches of at most ``most_tokens``."""
    order = np.argsort(tokens, kind="stable")
    batches = []
    first = 0
    total = 0
    for index, number in enumerate(order.tolist()):
        if total + tokens[number] > most_tokens and index > first:
            batches.append(order[first:index])
            first, total = index, 0
        total += int(tokens[number])
    if len(order):
        batches.append(order[first:])
    return batches
