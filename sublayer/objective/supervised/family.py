"""The row of fine-tuning on tasks."""

from sublayer.config.model import ModelConfig
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import batch_sequences
from sublayer.config.supervised import SupervisedObjective
from sublayer.config.task_heads import expected_tasks, rows_of_example, with_heads
from sublayer.data.prepare import Data
from sublayer.data.tasks.prepare import prepare_tasks
from sublayer.data.tasks.task_split import of_tasks
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.extended import ExtendedTokenizer
from sublayer.model.transformer import Transformer
from sublayer.objective.base import Objective
from sublayer.objective.family import Family, Scores
from sublayer.objective.metric import Metric
from sublayer.objective.supervised.batches import (
    SyntheticExamples,
    epoch_tokens,
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


def _build(model: Transformer, config: SupervisedObjective, seed: int) -> Objective:
    spec: TaskSpec = model.task
    if config.format == "text":
        return TextAnswers(model, config)
    if spec.tasks[0].kind == "span":
        return SpanAnswers(model, config)
    return Supervised(model, config, spec.tasks[0])


def _prepare(recipe: Recipe, tokenizer: Tokenizer | None) -> Data:
    return prepare_tasks(recipe.data, supervised(recipe), tokenizer=tokenizer)


def _describe_task(recipe: Recipe, data: Data | None) -> TaskSpec:
    objective = supervised(recipe)
    tasks = _tasks(recipe, data)
    first = tasks[0]
    # At even odds, until held-out examples choose another.
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


def _tasks(recipe: Recipe, data: Data | None) -> tuple[Task, ...]:
    if data is None:
        return expected_tasks(recipe.data)
    found = {part.task.name: part.task for part in of_tasks(data.train).parts}
    return tuple(found.values())


def _shape(recipe: Recipe, data: Data) -> ModelConfig:
    """Return the model with the head that the task needs, and none that it does not."""
    model = with_heads(recipe.model, supervised(recipe), _tasks(recipe, data)[0])
    return model.model_copy(update={"vocab_size": token_rows(model, data.tokenizer)})


def token_rows(model: ModelConfig, tokenizer: Tokenizer) -> int | None:
    """Return the rows of a model's table of tokens, with those of ids that a format has added."""
    rows = model.vocab_size
    if rows is None or not isinstance(tokenizer, ExtendedTokenizer):
        return rows
    if not tokenizer.vocabulary.vocab_size <= rows < tokenizer.vocab_size:
        return rows
    return -(-tokenizer.vocab_size // model.vocab_multiple) * model.vocab_multiple


def _synthetic(recipe: Recipe, vocab_size: int) -> SyntheticExamples:
    objective = supervised(recipe)
    lengths = objective.lengths(recipe.data.context)
    has_encoder = recipe.model.kind == "encoder-decoder"
    return SyntheticExamples(
        vocab_size,
        lengths,
        n_examples=batch_sequences(recipe),
        n_sequences=rows_of_example(recipe),
        n_predicted=0 if has_encoder else objective.n_predictions(lengths.written),
        has_encoder=has_encoder,
    )


def _describe(scores: Scores) -> str:
    said = []
    if "score" in scores:
        said.append(f"score {points(scores['score'])}")
    if "loss" in scores:
        said.append(f"loss {scores['loss']:.4f}")
    return ", ".join(said)


SUPERVISED = Family(
    build=_build,
    batches=example_batches,
    synthetic=_synthetic,
    epoch_tokens=epoch_tokens,
    score=task_scores,
    prepare=_prepare,
    shape_model=_shape,
    describe_task=_describe_task,
    metrics=(
        Metric(
            "score",
            "score",
            is_lower_better=False,
            from_items=None,
            unit="points",
            factor=100.0,
            decimals=1,
        ),
    ),
    options=("path", "answer", "task", "against"),
    evaluation=evaluate_tasks,
    render=render_tasks,
    description=_describe,
)
