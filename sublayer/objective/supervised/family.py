"""Family of fine-tuning on tasks."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from sublayer.config.model import ModelConfig
from sublayer.config.objective import Lengths, SupervisedObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import (
    TaskEpoch,
    batch_sequences,
    expected_tasks,
    rows_of_example,
    with_heads,
)
from sublayer.data.batches import (
    IGNORED,
    Batches,
    PackedBatch,
    PackedSequence,
    Unpacked,
    pack_examples,
)
from sublayer.data.prepare import Data
from sublayer.data.store import Split
from sublayer.data.tasks.batches import ExampleBatches, of_tasks
from sublayer.data.tasks.prepare import prepare_tasks
from sublayer.data.tokenizers.base import ExtendedTokenizer, Tokenizer
from sublayer.evaluation.items import Metric, Processes
from sublayer.files.arrays import Ints
from sublayer.model.transformer import Transformer
from sublayer.objective.base import (
    Effort,
    Evaluation,
    Family,
    Objective,
    Scored,
    Scores,
    Synthetic,
    own_objective,
)
from sublayer.objective.supervised.evaluation import evaluate_tasks
from sublayer.objective.supervised.heads import SpanAnswers, Supervised, recipe_rule
from sublayer.objective.supervised.scores import render_tasks, task_scores
from sublayer.objective.supervised.text import TextAnswers
from sublayer.tasks.registry import TaskSpec
from sublayer.tasks.scoring import points
from sublayer.tasks.task import Task
from sublayer.text_model import TextModel


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
        batch_sequences=batch_sequences(recipe),
        seed=recipe.train.seed,
        orders=supervised(recipe).orders,
    )


@dataclass(frozen=True)
class SyntheticExamples(Synthetic):
    """Batches with the tokens of ``n_rows`` examples of full-row sequences.

    Where an example is one sequence, rows hold two of half the length, separated as real ones.
    """

    lengths: Lengths
    n_sequences: int = 1
    """Sequences of each example."""
    n_predicted: int = 0
    """Last tokens of a sequence that are predicted where they are read."""
    has_encoder: bool = False
    """True where an encoder-decoder writes targets."""

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


def _tasks(recipe: Recipe, data: Data | None) -> tuple[Task, ...]:
    if data is None:
        return expected_tasks(recipe.data)
    by_name = {part.task.name: part.task for part in of_tasks(data.train).parts}
    return tuple(by_name.values())


class SupervisedFamily(Family):
    """Fine-tuning on tasks, scored by their metrics."""

    metrics = (
        Metric(
            "score",
            "score",
            is_lower_better=False,
            from_items=None,
            unit="points",
            factor=100.0,
            decimals=1,
        ),
    )
    options = ("path", "answer", "task", "against")

    def build(
        self,
        model: Transformer,
        config: SupervisedObjective,
        seed: int,
        task: TaskSpec | None = None,
    ) -> Objective:
        """Build the objective of a model, by its first task's format."""
        if config.format == "text":
            return TextAnswers(model, config)
        assert task is not None, "a supervised model learns a task"
        kind = SpanAnswers if task.tasks[0].kind == "span" else Supervised
        return kind(model, config, task.tasks[0])

    def prepare(self, recipe: Recipe, tokenizer: Tokenizer | None) -> Data:
        """Prepare the examples of the recipe's tasks."""
        return prepare_tasks(recipe.data, supervised(recipe), tokenizer=tokenizer)

    def shape_model(self, recipe: Recipe, data: Data) -> ModelConfig:
        """Return the model config with exactly the head that the task needs."""
        model = with_heads(recipe.model, supervised(recipe), _tasks(recipe, data)[0])
        rows, tokenizer = model.vocab_size, data.tokenizer
        if (
            rows is not None
            and isinstance(tokenizer, ExtendedTokenizer)
            and tokenizer.vocabulary.vocab_size <= rows < tokenizer.vocab_size
        ):
            # The embedding also has rows for ids added by a format.
            rows = -(-tokenizer.vocab_size // model.vocab_multiple) * model.vocab_multiple
        return model.model_copy(update={"vocab_size": rows})

    def describe_task(self, recipe: Recipe, data: Data | None) -> TaskSpec:
        """Describe the tasks and the format of their answers."""
        objective = supervised(recipe)
        tasks = _tasks(recipe, data)
        first = tasks[0]
        # Probability 1/2, until held-out examples select another.
        threshold = 0.0 if objective.format == "pair" and first.has_unanswerable else None
        return TaskSpec(
            tasks=tasks,
            format=objective.format,
            context=recipe.data.context,
            target_length=objective.target_length if objective.format == "text" else 0,
            answer=objective.answer,
            doc_stride=objective.doc_stride,
            max_answer=objective.max_answer,
            threshold=threshold,
            columns=recipe.data.columns or {},
        )

    def synthetic(self, recipe: Recipe, vocab_size: int) -> SyntheticExamples:
        """Build examples of random tokens, as long as the recipe's."""
        objective = supervised(recipe)
        lengths = objective.lengths(recipe.data.context)
        has_encoder = recipe.model.kind == "encoder-decoder"
        return SyntheticExamples(
            vocab_size,
            batch_sequences(recipe),
            lengths,
            n_sequences=rows_of_example(recipe),
            n_predicted=0 if has_encoder else objective.n_predictions(lengths.written),
            has_encoder=has_encoder,
        )

    def _describe(self, scores: Scores) -> str:
        parts = []
        if "score" in scores:
            parts.append(f"score {points(scores['score'])}")
        if "loss" in scores:
            parts.append(f"loss {scores['loss']:.4f}")
        return ", ".join(parts)

    def batches(self, recipe: Recipe, split: Split) -> Batches:
        """Build the batches of examples of tasks."""
        return example_batches(recipe, split)

    def epoch_tokens(self, recipe: Recipe, split: Split) -> TaskEpoch:
        """Count the tokens of an epoch as a step does: a context per example, or row."""
        batches = example_batches(recipe, split)
        tokens = batches.n_epoch_steps * batch_sequences(recipe) * recipe.data.context
        return TaskEpoch(round(tokens), batches.n_epoch)

    def score(
        self,
        text_model: TextModel,
        split: Split,
        recipe: Recipe,
        effort: Effort,
        processes: Processes,
    ) -> Scored:
        """Score the answers of all tasks of a split."""
        return task_scores(text_model, split, recipe, effort, processes)

    def evaluate(self, request: Evaluation) -> dict[str, Any]:
        """Answer the tasks of ``sublayer evaluate``."""
        return evaluate_tasks(request)

    def render(self, result: Mapping[str, Any]) -> str:
        """Format the scores of tasks for the terminal."""
        return render_tasks(result)
