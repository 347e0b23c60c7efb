"""Interface of a kind of objective, the kinds by name, and requests for evaluation."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeVar

from sublayer.config.data import INTRINSIC, SentenceRule
from sublayer.config.model import ModelConfig
from sublayer.config.objective import ObjectiveTable
from sublayer.config.recipe import OBJECTIVES, Recipe
from sublayer.config.train import PREFIX
from sublayer.data.batches import Batches
from sublayer.data.prepare import Data, prepare
from sublayer.data.store import Split
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.evaluation.items import Items, Metric
from sublayer.evaluation.split_work import ALONE, Processes, Progress, silent
from sublayer.files.storage import as_typed
from sublayer.model.transformer import Transformer
from sublayer.objective.base import Objective
from sublayer.tasks.probes import PROBES
from sublayer.tasks.registry import TaskSpec
from sublayer.tasks.scoring import points
from sublayer.text_model import TextModel

if TYPE_CHECKING:
    from sublayer.config.recipe import Recipe
    from sublayer.data.store import Split
    from sublayer.model.transformer import Transformer
    from sublayer.text_model import TextModel

Table = TypeVar("Table")
_CPU_BATCH_TOKENS = 4096
_GPU_BATCH_TOKENS = 32768
"""Tokens of a batch that is scored: enough to fill the device, and little of its memory."""


def _no_text(*rule: object) -> Any:
    raise AssertionError("tasks are no text")


@dataclass(frozen=True)
class Evaluation:
    """An evaluation request: a model, its run's recipe, a text, and options."""

    run: Path
    """The folder of the run, of a checkpoint or of a model."""
    text_model: "TextModel"
    recipe: "Recipe | None"
    """The recipe of the run that the model belongs to; None outside a run."""
    options: Mapping[str, Any]
    """The options that were given, by their names; the others are not there."""
    split: Literal["valid", "test"] = "test"
    batch: int | None = None
    """Rows that are computed at a time; None: what the device is quick with."""
    average: int | None = None
    """Number of checkpoints whose mean the model is."""
    read_text: Callable[[SentenceRule], "Split"] = _no_text
    """Reads the text that was asked for, cut into sentences by a rule."""
    own_text: Callable[[], "Split"] = _no_text
    """Reads the split of the run's own text that is named ``split``."""
    progress: Callable[[str, str], Progress] = lambda done, unit: silent
    """Makes a display from the verb of the work, such as ``scored``, and its unit."""

    @property
    def model(self) -> "Transformer":
        """The model, without tokenizer and task."""
        return self.text_model.model

    def describe_text(self, text: "Split") -> dict[str, Any]:
        """Return the fields of a result that identify the scored text."""
        return {
            "split": None if "path" in self.options else text.name,
            "sources": list(text.sources),
            "sha256": text.store.sha256,
            "run": str(self.run),
        }

    def sentence_rule(self) -> SentenceRule:
        """Return the sentence rule for another text: the training's, by default prose."""
        if self.recipe is None:
            return "prose"
        rule = self.recipe.data.sentences
        is_passages = self.options.get("corpus") == INTRINSIC
        if is_passages and rule == "lines":
            # Passages are prose, whose lines are no sentences.
            return "prose"
        return rule


def own_objective(recipe: "Recipe", table: type[Table]) -> Table:
    """Return the objective of a recipe of a known kind."""
    assert isinstance(recipe.objective, table), "the kind of objective is asked for its own"
    return recipe.objective


def context_of(model: "Transformer", recipe: "Recipe | None") -> int:
    """Return the window size in tokens: the training context, or else the maximum input."""
    if recipe is None:
        return model.config.max_len
    return recipe.data.context


def scored_sequences(model: "Transformer", context: int) -> int:
    """Choose the number of windows per batch, for speed on the device."""
    is_cpu = model.embedding.weight.device.type == "cpu"
    n_tokens = _CPU_BATCH_TOKENS if is_cpu else _GPU_BATCH_TOKENS
    return max(1, n_tokens // context)


def describe_sources(result: Mapping[str, Any]) -> str:
    """Format the sources and the split of a result's text.

    The result has the fields of ``Evaluation.describe_text``.
    """
    sources = ", ".join(map(as_typed, result["sources"]))
    split = result["split"]
    if split is None:
        return sources
    return f"the {split} split of {sources}"


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


_CLASSES = {
    "causal": ("causal", "CausalFamily"),
    "masked": ("masked", "MaskedFamily"),
    "translation": ("translation", "TranslationFamily"),
    "span": ("span", "SpanFamily"),
    "supervised": ("supervised.family", "SupervisedFamily"),
}
"""Module and class of each kind of objective, by its name in a recipe."""
KINDS = tuple(_CLASSES)


@cache
def family(kind: str) -> Family:
    """Return a kind of objective by its name in a recipe; raise KeyError for another name."""
    module, name = _CLASSES[kind]
    loaded: Family = getattr(import_module(f"sublayer.objective.{module}"), name)()
    return loaded


def family_of(objective: ObjectiveTable) -> Family:
    """Return the kind of an objective."""
    return family(objective.kind)


def family_of_model(text_model: TextModel, recipe: Recipe | None) -> tuple[str, Family]:
    """Return the kind of a model's training objective, with its name.

    Outside a run: supervised for a model with a task; else the first kind that claims the model,
    or else that trains models of its kind.
    """
    if recipe is not None:
        kind = recipe.objective.kind
    elif text_model.task is not None:
        kind = "supervised"
    else:
        kinds = [
            name
            for name, row in OBJECTIVES.items()
            if text_model.model.config.kind in row.model_kinds
        ]
        claiming = [name for name in kinds if family(name).claims(text_model)]
        kind = (claiming or kinds)[0]
    return kind, family(kind)
