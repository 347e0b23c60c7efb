"""A kind of objective: all that the program needs to know of it, in one row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from sublayer.config.model import ModelConfig
from sublayer.config.recipe import Recipe
from sublayer.config.train import PREFIX
from sublayer.data.batches import Batches
from sublayer.data.prepare import Data, prepare
from sublayer.data.split import Split
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError
from sublayer.evaluation.items import Items
from sublayer.evaluation.probes import PROBES
from sublayer.evaluation.split_work import ALONE, Processes
from sublayer.model.transformer import Transformer
from sublayer.objective.base import Objective
from sublayer.objective.evaluation import Evaluation, need_recipe
from sublayer.objective.metric import Metric
from sublayer.tasks.scoring import points
from sublayer.tasks.spec import TaskSpec

Scores = Mapping[str, Any]
"""Metrics by name, ``loss`` among them, and what they count."""
Effort = Literal["training", "test"]
"""How much is scored: part of a split, the same at every evaluation of a run, or all of it."""


@dataclass(frozen=True)
class Scored:
    """The scores of a split, and in a test those of each item."""

    scores: Scores
    items: Items | None
    """What the metrics of a test follow from (``Metric.from_items``). None: none are kept, which in
    a test says that nothing can be judged later but the scores themselves."""


TEXT_OPTIONS = ("path", "corpus", "documents", "text_field")
"""Options of ``sublayer evaluate`` that name another text than the run's own, or how to read it."""


def check_nothing(recipe: Recipe) -> None:
    """Ask for no further package."""


def take_any_text(recipe: Recipe, split: Split) -> None:
    """Take a training split of any length: its batches raise where it is too short."""


def prepare_text(recipe: Recipe, tokenizer: Tokenizer | None) -> Data:
    """Prepare the text that ``[data]`` names."""
    return prepare(recipe.data, tokenizer=tokenizer)


def keep_model(recipe: Recipe, data: Data) -> ModelConfig:
    """Take the model as the recipe says it."""
    return recipe.model


def answer_nothing(recipe: Recipe, data: Data | None) -> TaskSpec | None:
    """Answer no task."""
    return None


def claim_nothing(model: Transformer) -> bool:
    """Leave every model outside a run to the first row for its kind."""
    return False


@dataclass(frozen=True)
class Family:
    """A row of the table of objectives: building, data, batches and scores."""

    build: Callable[[Transformer, Any, int], Objective]
    """Puts a model into the objective of a config; the last argument is the seed of heads that
    training alone needs."""
    batches: Callable[[Recipe, Split], Batches]
    """Makes a recipe's batches of a split."""
    synthetic: Callable[[Recipe, int], Batches]
    """Makes batches of random tokens of a vocabulary of a size, on which a step takes as long."""
    epoch_tokens: Callable[[Recipe, Split], int]
    """Counts the tokens of an epoch of a split."""
    score: Callable[[Transformer, Split, Recipe, Effort, Processes], Scored]
    """Scores a model on a split, the work divided among processes, of which all return the same.

    In training the scores are the ``evaluations`` of the objective's table, where it can; in a
    test the items are scored one by one too.
    """
    metrics: tuple[Metric, ...]
    """What models are compared by on the test split; the first decides."""
    render: Callable[[Mapping[str, Any]], str]
    """Formats for the terminal what ``evaluate`` returned."""
    prepare: Callable[[Recipe, Tokenizer | None], Data] = prepare_text
    """Prepares what a recipe learns from; the tokenizer is that of the model that it starts from.
    """
    shape_model: Callable[[Recipe, Data], ModelConfig] = keep_model
    """Gives a recipe's model the heads that the data asks for."""
    describe_task: Callable[[Recipe, Data | None], TaskSpec | None] = answer_nothing
    """Says what a trained model answers, which is saved with it; without data what is expected."""
    check_text: Callable[[Recipe, Split], None] = take_any_text
    """Raises DataError where the training split is too short for a batch, before a run is begun."""
    check_scoring: Callable[[Recipe], None] = check_nothing
    """Raises ConfigError where what scoring needs is not installed."""
    score_at_stride: Callable[[Transformer, Split, Recipe, int, int | None], Scored] | None = None
    """Scores a split as a test does, in windows a stride apart and of at most so many tokens, if
    any number is given; None where the objective's table is not ``is_scored_in_windows``."""
    claims: Callable[[Transformer], bool] = claim_nothing
    """Tells whether a model that belongs to no run is scored as this objective's, and not as that
    of the first row for its kind of model."""
    options: tuple[str, ...] = TEXT_OPTIONS
    """Those of ``sublayer evaluate`` that mean something."""
    evaluation: Callable[[Evaluation], dict[str, Any]] | None = None
    """What ``sublayer evaluate`` does; None: no more than a test."""
    description: Callable[[Scores], str] | None = None
    """Says the scores of training in a line; None: the loss alone."""

    def evaluate(self, asked: Evaluation) -> dict[str, Any]:
        """Answer ``sublayer evaluate``: score a text as in a test, unless the row says more.

        Returns the fields of a result, as JSON: scores by name, and the scored text.

        Raises ConfigError where the recipe must say how, and the model belongs to no run; and
        whatever the row's own evaluation raises.
        """
        if self.evaluation is not None:
            return self.evaluation(asked)
        recipe = need_recipe(asked)
        text = asked.read_text(asked.sentence_rule())
        scores = self.score(asked.model, text, recipe, "test", ALONE).scores
        return {**scores, **asked.describe_text(text)}

    def tables(self) -> dict[str, str]:
        """Return the table of each metric that follows from the items of a test."""
        tables = {}
        for metric in self.metrics:
            if metric.from_items is not None:
                tables[metric.name] = metric.from_items.table
        return tables

    def describe(self, scores: Scores) -> str:
        """Format the scores of training as one line; raise CheckpointError where one is missing."""
        try:
            if self.description is not None:
                return self.description(scores)
            return f"loss {scores['loss']:.4f} nats"
        except KeyError as missing:
            raise CheckpointError(
                f"an evaluation lacks {missing}: the run's record.json or metrics.jsonl is damaged"
            ) from None


def stored_tokens(recipe: Recipe, split: Split) -> int:
    """Count the tokens of a split as they are stored."""
    return len(split.ids)


def describe_watched(family: Family, scores: Scores) -> list[str]:
    """Describe the scores of each watched text in an evaluation, a line each.

    What probes found is one line more.
    """
    by_text: dict[str, dict[str, Any]] = {}
    for key, value in scores.items():
        text, slash, name = key.rpartition("/")
        if slash:
            by_text.setdefault(text, {})[name] = value
    probes = by_text.pop(PREFIX, {})
    lines = [f"{text}: {family.describe(values)}" for text, values in by_text.items()]
    asked = [f"{PROBES[name].title} {points(value)}" for name, value in probes.items()]
    return [*lines, *([f"probes: {', '.join(asked)}"] if asked else [])]


def describe_valid(family: Family, scores: Scores) -> str:
    """Describe the scores of a run's evaluation: of validation, or else of watched texts.

    Empty where nothing was evaluated.
    """
    if "loss" in scores:
        return f"valid {family.describe(scores)}"
    return "; ".join(describe_watched(family, scores))
