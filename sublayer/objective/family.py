"""Interface of a kind of objective."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from sublayer.config.model import ModelConfig
from sublayer.config.recipe import Recipe
from sublayer.config.train import PREFIX
from sublayer.data.batches import Batches
from sublayer.data.prepare import Data, prepare
from sublayer.data.store import Split
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.evaluation.items import Items
from sublayer.evaluation.split_work import ALONE, Processes
from sublayer.model.transformer import Transformer
from sublayer.objective.base import Objective
from sublayer.objective.evaluation import Evaluation
from sublayer.objective.metric import Metric
from sublayer.tasks.probes import PROBES
from sublayer.tasks.registry import TaskSpec
from sublayer.tasks.scoring import points
from sublayer.text_model import TextModel

Scores = Mapping[str, Any]
"""Metrics by name, ``loss`` among them, and the counts that they divide by."""
Effort = Literal["training", "test"]
"""Share of a split that is scored: a part, the same at every evaluation of a run, or all of it."""


@dataclass(frozen=True)
class Scored:
    """Scores of a split, and in a test of each item."""

    scores: Scores
    items: Items | None
    """Items from which the metrics of a test follow (``Metric.from_items``). None: none
    are kept, and nothing can be judged later but the scores themselves."""


TEXT_OPTIONS = ("path", "corpus", "documents", "text_field")
"""Options of ``sublayer evaluate`` that name another text than the run's own, or how to read it."""


class Family(ABC):
    """A kind of objective: building, data, batches, scores, and evaluation."""

    metrics: ClassVar[tuple[Metric, ...]]
    """Measures by which models are compared on the test split; the first decides."""
    options: ClassVar[Collection[str]] = TEXT_OPTIONS
    """Options of ``sublayer evaluate`` with an effect."""

    @abstractmethod
    def build(
        self, model: Transformer, config: Any, seed: int, task: TaskSpec | None = None
    ) -> Objective:
        """Build the objective of a config and model; ``seed`` draws training-only heads.

        ``task`` is the task that it learns to answer.
        """

    @abstractmethod
    def batches(self, recipe: Recipe, split: Split) -> Batches:
        """Build a recipe's batches of a split."""

    @abstractmethod
    def synthetic(self, recipe: Recipe, vocab_size: int) -> Batches:
        """Build batches of random tokens of a vocabulary, with the same step time."""

    @abstractmethod
    def score(
        self,
        text_model: TextModel,
        split: Split,
        recipe: Recipe,
        effort: Effort,
        processes: Processes,
    ) -> Scored:
        """Score a model on a split; the work is divided among processes, and all return the same.

        In training the scores are the ``evaluations`` of the objective's table, where possible; a
        test also scores items.
        """

    @abstractmethod
    def render(self, result: Mapping[str, Any]) -> str:
        """Format the result of ``evaluate`` for the terminal."""

    def epoch_tokens(self, recipe: Recipe, split: Split) -> int:
        """Count the tokens of a split's epoch, as stored."""
        return len(split.ids)

    def prepare(self, recipe: Recipe, tokenizer: Tokenizer | None) -> Data:
        """Prepare the data of a recipe; ``tokenizer`` is the start model's."""
        return prepare(recipe.data, tokenizer=tokenizer)

    def shape_model(self, recipe: Recipe, data: Data) -> ModelConfig:
        """Add the heads that the data requires to a recipe's model config."""
        return recipe.model

    def describe_task(self, recipe: Recipe, data: Data | None) -> TaskSpec | None:
        """Describe the task to save with a trained model; the expected one without data."""
        return None

    def check_text(self, recipe: Recipe, split: Split) -> None:  # noqa: B027
        """Raise DataError where the training split is too short for a batch."""

    def check_scoring(self, recipe: Recipe) -> None:  # noqa: B027
        """Raise ConfigError where a package required for scoring is not installed."""

    def score_at_stride(
        self, model: Transformer, split: Split, recipe: Recipe, stride: int, max_tokens: int | None
    ) -> Scored:
        """Score a split as in a test, in windows a stride apart, at most ``max_tokens``.

        Only where the objective's table ``is_scored_in_windows``.
        """
        raise NotImplementedError

    def claims(self, text_model: TextModel) -> bool:
        """Check whether this objective scores a model outside a run.

        Otherwise the first kind of objective that trains such models scores it.
        """
        return False

    def evaluate(self, asked: Evaluation) -> dict[str, Any]:
        """Answer ``sublayer evaluate``: score a text as in a test.

        Returns the fields of a result, as JSON: scores by name, and the scored text.

        Raises ConfigError where a recipe is required, and the model belongs to no run.
        """
        if asked.recipe is None:
            raise ConfigError(
                f"{asked.run} does not belong to a run, whose recipe says how it is scored"
            )
        text = asked.read_text(asked.sentence_rule())
        scores = self.score(asked.text_model, text, asked.recipe, "test", ALONE).scores
        return {**scores, **asked.describe_text(text)}

    def tables(self) -> dict[str, str]:
        """Return the table of each metric that is computed from a test's items."""
        tables = {}
        for metric in self.metrics:
            if metric.from_items is not None:
                tables[metric.name] = metric.from_items.table
        return tables

    def describe(self, scores: Scores) -> str:
        """Format the scores of training as one line; raise CheckpointError where one is missing."""
        try:
            return self._describe(scores)
        except KeyError as missing:
            raise CheckpointError(
                f"an evaluation lacks {missing}: the run's record.json or metrics.jsonl is damaged"
            ) from None

    def _describe(self, scores: Scores) -> str:
        return f"loss {scores['loss']:.4f} nats"


def describe_watched(family: Family, scores: Scores) -> list[str]:
    """Describe the scores of watched texts in an evaluation, a line each.

    Probes add a line.
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
    """Describe the scores of a run's evaluation: validation, or else watched texts.

    Empty where nothing was evaluated.
    """
    if "loss" in scores:
        return f"valid {family.describe(scores)}"
    return "; ".join(describe_watched(family, scores))
