"""Examples of tasks, as a recipe asks for them."""

from dataclasses import replace

from sublayer.config.epochs import TaskEpoch
from sublayer.config.objectives.supervised import SupervisedObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_train import batch_sequences
from sublayer.data.split import Split
from sublayer.data.tasks.assembly import RowRule
from sublayer.data.tasks.batches import ExampleBatches
from sublayer.data.tasks.task_split import TaskSplit, of_tasks
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
    """Return how a split's texts become what a model of a kind reads."""
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
    """Return how a split's texts become what a model of a recipe reads."""
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
