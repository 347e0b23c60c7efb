"""The row of fine-tuning on tasks."""

from collections.abc import Mapping
from typing import Any

from sublayer.config.model import ModelConfig
from sublayer.config.objective import SupervisedObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import (
    TaskEpoch,
    batch_sequences,
    expected_tasks,
    rows_of_example,
    with_heads,
)
from sublayer.data.batches import Batches
from sublayer.data.prepare import Data
from sublayer.data.store import Split
from sublayer.data.tasks.batches import of_tasks
from sublayer.data.tasks.prepare import prepare_tasks
from sublayer.data.tokenizers.base import ExtendedTokenizer, Tokenizer
from sublayer.evaluation.split_work import Processes
from sublayer.model.transformer import Transformer
from sublayer.objective.base import Objective
from sublayer.objective.evaluation import Evaluation
from sublayer.objective.family import Effort, Family, Scored, Scores
from sublayer.objective.metric import Metric
from sublayer.objective.supervised.batches import (
    SyntheticExamples,
    example_batches,
    supervised,
)
from sublayer.objective.supervised.evaluation import evaluate_tasks
from sublayer.objective.supervised.loss import SpanAnswers, Supervised
from sublayer.objective.supervised.rendering import render_tasks
from sublayer.objective.supervised.scores import task_scores
from sublayer.objective.supervised.text import TextAnswers
from sublayer.tasks.scoring import points
from sublayer.tasks.spec import TaskSpec
from sublayer.tasks.task import Task
from sublayer.text_model import TextModel


def _tasks(recipe: Recipe, data: Data | None) -> tuple[Task, ...]:
    if data is None:
        return expected_tasks(recipe.data)
    by_name = {part.task.name: part.task for part in of_tasks(data.train).parts}
    return tuple(by_name.values())


def token_rows(model: ModelConfig, tokenizer: Tokenizer) -> int | None:
    """Return the rows of a model's token table, with ids added by a format."""
    rows = model.vocab_size
    if rows is None or not isinstance(tokenizer, ExtendedTokenizer):
        return rows
    if not tokenizer.vocabulary.vocab_size <= rows < tokenizer.vocab_size:
        return rows
    return -(-tokenizer.vocab_size // model.vocab_multiple) * model.vocab_multiple


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
        return model.model_copy(update={"vocab_size": token_rows(model, data.tokenizer)})

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

    def evaluate(self, asked: Evaluation) -> dict[str, Any]:
        """Answer the tasks of ``sublayer evaluate``."""
        return evaluate_tasks(asked)

    def render(self, result: Mapping[str, Any]) -> str:
        """Format the scores of tasks for the terminal."""
        return render_tasks(result)
