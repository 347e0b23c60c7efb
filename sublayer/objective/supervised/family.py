"""The row of fine-tuning on tasks."""

from typing import Any

from sublayer.config.model import ModelConfig
from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import batch_sequences
from sublayer.data.prepare import Data
from sublayer.data.tasks.prepare import prepare_tasks
from sublayer.data.tasks.task_split import of_tasks
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.extended import ExtendedTokenizer
from sublayer.model.transformer import Transformer
from sublayer.objective.base import Objective
from sublayer.objective.family import Family, Scores
from sublayer.objective.metric import Metric
from sublayer.objective.supervised.batches import epoch_tokens, example_batches, supervised
from sublayer.objective.supervised.evaluation import evaluate_tasks, render_tasks
from sublayer.objective.supervised.loss import Supervised
from sublayer.objective.supervised.scores import task_scores
from sublayer.objective.supervised.span_loss import SpanAnswers
from sublayer.objective.supervised.synthetic import SyntheticExamples
from sublayer.objective.supervised.text import TextAnswers
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


def _describe_task(recipe: Recipe, data: Data) -> TaskSpec:
    objective = supervised(recipe)
    tasks = {part.task.name: part.task for part in of_tasks(data.train).parts}
    first = next(iter(tasks.values()))
    # At even odds, until what is held out chooses another.
    threshold = 0.0 if objective.format == "pair" and first.has_unanswerable else None
    return TaskSpec(
        tasks=tuple(tasks.values()),
        format=objective.format,
        context=recipe.data.context,
        target_length=objective.target_length if objective.format == "text" else 0,
        answer=objective.answer,
        doc_stride=objective.doc_stride,
        max_answer=objective.max_answer,
        threshold=threshold,
        columns=recipe.data.columns or {},
    )


def _shape(recipe: Recipe, data: Data) -> ModelConfig:
    """Return the model with the head that the task needs, and none that it does not."""
    objective = supervised(recipe)
    model = recipe.model
    # A start that answers another task has heads for that.
    changes: dict[str, Any] = {"sentence_classes": 0, "label_outputs": 0, "span_head": "none"}
    changes["vocab_size"] = _rows(model, data.tokenizer)
    if objective.format == "text":
        return model.model_copy(update=changes)
    task = of_tasks(data.train).parts[0].task
    if not objective.language_weight:
        changes.update(head="none", head_activation="ffn", head_bias=False, output_scale="none")
    if task.kind == "span":
        joint = "joint" if task.has_unanswerable else "independent"
        changes.update(span_head=joint, pooler="none")
    else:
        objective.check_head(task)
        changes["label_outputs"] = n_outputs(task, logistic=objective.logistic)
    return model.model_copy(update=changes)


def _rows(model: ModelConfig, tokenizer: Tokenizer) -> int | None:
    """Return the rows of a model's table of tokens, with those of ids that a format has added."""
    rows = model.vocab_size
    if rows is None or not isinstance(tokenizer, ExtendedTokenizer):
        return rows
    if not tokenizer.vocabulary.vocab_size <= rows < tokenizer.vocab_size:
        return rows
    return -(-tokenizer.vocab_size // model.vocab_multiple) * model.vocab_multiple


def n_outputs(task: Task, *, logistic: bool = False) -> int:
    """Count the outputs of a label head: one for each class, or one of a choice or a number.

    ``logistic``: one of two classes, too.
    """
    return len(task.labels) if task.kind == "classes" and not logistic else 1


def _synthetic(recipe: Recipe, vocab_size: int) -> SyntheticExamples:
    objective = supervised(recipe)
    lengths = objective.lengths(recipe.data.context)
    return SyntheticExamples(
        vocab_size,
        context=recipe.data.context,
        target_length=lengths.written,
        n_rows=batch_sequences(recipe),
        predicts_text=objective.language_weight > 0,
        has_encoder=recipe.model.kind == "encoder-decoder",
    )


def _describe(scores: Scores) -> str:
    said = []
    if "score" in scores:
        said.append(f"score {100 * scores['score']:.1f}")
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
    options=("path", "answer", "task"),
    evaluation=evaluate_tasks,
    rendering=render_tasks,
    description=_describe,
)
