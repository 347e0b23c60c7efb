"""Interfaces of objectives: a loss for the training loop, and a kind with its data and scores."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from sublayer.config.data import INTRINSIC, SentenceRule
from sublayer.config.model import ModelConfig
from sublayer.config.objective import Lengths, ObjectiveTable
from sublayer.config.recipe import OBJECTIVES, Recipe
from sublayer.config.train import PREFIX
from sublayer.data.batches import AnyBatch, Batches, PackedBatch, pairs_in_rows
from sublayer.data.prepare import Data, prepare
from sublayer.data.store import Split
from sublayer.data.tokenizers.base import Tokenizer
from sublayer.errors import CheckpointError, ConfigError
from sublayer.evaluation.items import ALONE, Items, Metric, Processes, Progress, silent
from sublayer.files.arrays import Ints
from sublayer.files.storage import as_typed
from sublayer.model.context import Layout
from sublayer.model.kernels.products import (
    Smoothing,
    linear_cross_entropy,
    nats_of_targets,
    smoothed_cross_entropy,
)
from sublayer.model.layers import Matrix
from sublayer.model.parameters import initial_values, named_parameters, zero_padding
from sublayer.model.transformer import EncoderDecoder, Hidden, Transformer
from sublayer.tasks.probes import PROBES
from sublayer.tasks.registry import TaskSpec
from sublayer.tasks.scoring import points
from sublayer.text_model import TextModel

AUXILIARY = "auxiliary"
"""The term of the auxiliary losses of the model's sub-layers, a mean over sequences."""


class Objective(nn.Module, ABC):
    """A model and the terms of its loss.

    The loss of an optimizer step is the sum over terms of ``weights[term] * total / count``, where
    totals (nats) and counts are summed over all micro-batches and processes. ``counts`` needs only
    the batch, so the loop knows every denominator before the first forward pass, and accumulating
    over ragged micro-batches equals the large batch.
    """

    weights: Mapping[str, float]
    """Factor of each term of the next forward pass; 0: computed, but not trained."""
    pad_id: int | None = None
    """Padding id, for an embedding that starts at zero where the config says so; None without a
    known tokenizer."""
    reported: ClassVar[str]
    """Term with the mean that is shown and recorded as training loss, in nats."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def begin(self, step: int, steps: int) -> None:
        """Set the terms and weights of step ``step`` (0-based) of ``steps``; usually constant.

        Called before ``counts`` and ``forward`` of the step.
        """

    @property
    def has_unused_parameters(self) -> bool:
        """True where some terms end before the run, leaving parameters without gradients."""
        return False

    @abstractmethod
    def counts(self, batch: Any) -> dict[str, int]:
        """Count the tokens, or text pairs, in the mean of each term of ``weights``."""

    @abstractmethod
    def forward(self, batch: Any) -> dict[str, Tensor]:
        """Compute each term's total in nats, a scalar each, of the terms of ``all_weights``."""

    def all_weights(self) -> dict[str, float]:
        """Return ``weights``, with the weight of sub-layers' auxiliary losses."""
        return {**self.weights, **({AUXILIARY: 1.0} if self.model.has_auxiliary else {})}

    def all_counts(self, batch: AnyBatch) -> dict[str, int]:
        """Return ``counts``, with the number of sequences for auxiliary losses."""
        auxiliary = {AUXILIARY: batch.n_sequences} if self.model.has_auxiliary else {}
        return {**self.counts(batch), **auxiliary}

    @staticmethod
    def auxiliary_totals(
        auxiliary: Float[Tensor, ""] | None, weights: Float[Tensor, " N"] | None = None
    ) -> dict[str, Tensor]:
        """Return the term of auxiliary losses, from their sum in ``Hidden``.

        With the ``weights`` of examples it is 0 where no example counts.
        """
        if auxiliary is None:
            return {}
        return {AUXILIARY: auxiliary if weights is None else auxiliary * (weights.max() > 0)}

    def token_totals(
        self,
        embedded: Float[Tensor, "N E"],
        labels: Int[Tensor, " N"],
        smoothing: Smoothing | None,
        of_pass: Matrix | None = None,
    ) -> dict[str, Tensor]:
        """Sum the nats of tokens under the model's head: the term ``reported``.

        With smoothing or z-loss the trained term is ``trained``; the reported one has no weight.
        ``of_pass``: the pass's embedding matrix, with its dropout.
        """
        matrix, bias, cap = self.model.output_projection(of_pass)
        if smoothing is None:
            return {self.reported: linear_cross_entropy(embedded, matrix, bias, labels, cap=cap)}
        trained, nats = smoothed_cross_entropy(embedded, matrix, bias, labels, smoothing, cap=cap)
        return {"trained": trained, self.reported: nats}

    def initial_values(self, seed: int) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Generate the initial values of all parameters, unsharded, on the CPU, one at a time."""
        model = self.model
        for parameter, value in initial_values(model, model.config, seed=seed):
            is_embedding = parameter is model.embedding.weight
            if is_embedding and model.config.zero_padding and self.pad_id is not None:
                zero_padding(value, self.pad_id)
            yield parameter, value

    def training_only(self) -> dict[str, nn.Parameter]:
        """Return the training-only parameters, by name."""
        parameters = named_parameters(self)
        return {name: value for name, value in parameters if not name.startswith("model.")}


@dataclass(frozen=True)
class Synthetic(ABC):
    """Batches of random tokens, with the step time of a recipe's batches."""

    lengths_vary: ClassVar[bool] = False

    vocab_size: int
    n_rows: int

    @abstractmethod
    def draw(self, generator: np.random.Generator, n_rows: int) -> PackedBatch:
        """Draw a batch of ``n_rows`` rows."""

    @abstractmethod
    def n_tokens(self, step: int) -> int:
        """Count the tokens of a batch."""

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """Draw a process's share of the batch of a step, at least one row."""
        n_own = max(1, len(range(rank, self.n_rows, world)))
        return self.draw(np.random.Generator(np.random.Philox(step)), n_own)

    def notes(self) -> list[str]:
        """Return no notes: nothing is left out."""
        return []


class TargetLoss(Objective):
    """Cross-entropy of the target's tokens, its end included, averaged over the global batch.

    With label smoothing or z-loss the trained term is ``trained``; ``nll``, then without weight, is
    reported. ``smoothing`` is None where only nats are trained.
    """

    reported = "nll"

    def __init__(self, model: Transformer, smoothing: Smoothing | None = None) -> None:
        super().__init__(model)
        assert isinstance(model, EncoderDecoder), "only an encoder-decoder writes targets"
        self._model = model
        self._smoothing = smoothing
        if smoothing is None:
            self.weights = {"nll": 1.0}
        else:
            self.weights = {"trained": 1.0, "nll": 0.0}

    def counts(self, batch: PackedBatch) -> dict[str, int]:
        """Count the target's tokens, its end included."""
        return dict.fromkeys(self.weights, batch.n_predicted)

    def forward(self, batch: PackedBatch) -> dict[str, Tensor]:
        """Sum the nats of the target's tokens, under teacher forcing."""
        assert batch.targets is not None, "targets are predicted"
        hidden = target_hidden(self._model, batch)
        embedded = self._model.to_embedding(hidden.final).flatten(0, 1)
        totals = self.token_totals(embedded, batch.targets.flatten(), self._smoothing)
        return totals | self.auxiliary_totals(hidden.auxiliary, batch.weights)


def target_hidden(model: EncoderDecoder, batch: PackedBatch) -> Hidden:
    """Compute the states that predict targets, without attention across examples."""
    read, written = batch.read, batch.written
    assert written is not None, "a decoder writes"
    reader_ids = None if read.document_ids is None else written.sequence_ids
    memory = model.encode(
        read.tokens,
        read.mask,
        read.document_ids,
        reader_ids,
        starts=read.starts,
        reader_starts=written.starts,
    )
    # Positions after a target's end affect only auxiliary losses.
    mask = written.mask if model.has_auxiliary else None
    layout = Layout.causal(written.tokens, mask, written.document_ids, starts=written.starts)
    return model.hidden(written.tokens, layout, memory=memory)


class TargetNats(NamedTuple):
    """Nats and tokens of each target, its end included, ``[N]``."""

    nats: NDArray[np.float64]
    tokens: NDArray[np.int64]


def nats_of_rows(model: EncoderDecoder, batch: PackedBatch) -> TargetNats:
    """Compute the nats of each row's target, its end included, and count its tokens."""
    assert batch.targets is not None, "targets are predicted"
    matrix, bias, cap = model.output_projection()
    embedded = model.to_embedding(target_hidden(model, batch).final).flatten(0, 1)
    by_token = nats_of_targets(embedded, matrix, bias, batch.targets.flatten(), cap=cap).each
    nats = by_token.view(len(batch), -1).sum(1, dtype=torch.float64)
    return TargetNats(nats.cpu().numpy(), (batch.targets >= 0).sum(1).cpu().numpy())


@dataclass(frozen=True)
class SyntheticTargets(Synthetic):
    """Batches of random texts and targets of ``lengths``, without padding."""

    lengths: Lengths

    def draw(self, generator: np.random.Generator, n_rows: int) -> PackedBatch:
        """Draw a batch of ``n_rows`` rows."""

        def texts(length: int) -> list[Ints]:
            return [generator.integers(self.vocab_size, size=length) for _ in range(n_rows)]

        sources, targets = texts(self.lengths.read), texts(self.lengths.written)
        return pairs_in_rows(sources, targets, pad_id=0, first_id=0)

    def n_tokens(self, step: int) -> int:
        """Count the target's tokens of a batch."""
        return self.n_rows * self.lengths.written


Table = TypeVar("Table")
_CPU_BATCH_TOKENS = 4096
_GPU_BATCH_TOKENS = 32768
"""Tokens of a scored batch: enough to fill the device, little of its memory."""


def _no_text(*rule: object) -> Any:
    raise AssertionError("tasks are no text")


@dataclass(frozen=True)
class Evaluation:
    """An evaluation request: a model, its run's recipe, a text, and options."""

    run: Path
    """Folder of the run, of a checkpoint or of a model."""
    text_model: TextModel
    recipe: Recipe | None
    """Recipe of the model's run; None outside a run."""
    options: Mapping[str, Any]
    """Options given, by name."""
    split: Literal["valid", "test"] = "test"
    batch: int | None = None
    """Rows computed at a time; None: an efficient number for the device."""
    average: int | None = None
    """Number of checkpoints averaged into the model."""
    read_text: Callable[[SentenceRule], Split] = _no_text
    """Reads the requested text, cut into sentences by a rule."""
    own_text: Callable[[], Split] = _no_text
    """Reads the split ``split`` of the run's own text."""
    progress: Callable[[str, str], Progress] = lambda done, unit: silent
    """Builds a progress display from a participle, such as ``scored``, and a unit."""

    @property
    def model(self) -> Transformer:
        """The model, without tokenizer and task."""
        return self.text_model.model

    def describe_text(self, text: Split) -> dict[str, Any]:
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
            # Passages are prose: their lines are not sentences.
            return "prose"
        return rule


def own_objective(recipe: Recipe, table: type[Table]) -> Table:
    """Return the objective of a recipe of a known kind."""
    assert isinstance(recipe.objective, table), "the kind of objective is asked for its own"
    return recipe.objective


def context_of(model: Transformer, recipe: Recipe | None) -> int:
    """Return the window size in tokens: the training context, or else the maximum input."""
    if recipe is None:
        return model.config.max_len
    return recipe.data.context


def scored_sequences(model: Transformer, context: int) -> int:
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
"""Metrics by name, including ``loss``, and the counts that they divide by."""
Effort = Literal["training", "test"]
"""Share of a split that is scored: a part, the same at every evaluation of a run, or all of it."""


@dataclass(frozen=True)
class Scored:
    """Scores of a split, and in a test the numbers of each item."""

    scores: Scores
    items: Items | None
    """Items that determine a test's metrics (``Metric.from_items``). None: not kept, and only the
    scores can be compared later."""


TEXT_OPTIONS = ("path", "corpus", "documents", "text_field")
"""Options of ``sublayer evaluate`` that name another text than the run's own, or how to read it."""


class Family(ABC):
    """A kind of objective: building, data, batches, scores, and evaluation."""

    metrics: ClassVar[tuple[Metric, ...]]
    """Metrics to compare models on the test split; the first decides."""
    options: ClassVar[Collection[str]] = TEXT_OPTIONS
    """Options of ``sublayer evaluate`` that have an effect."""

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

    def evaluate(self, request: Evaluation) -> dict[str, Any]:
        """Answer ``sublayer evaluate``: score a text as in a test.

        Returns the fields of a result, as JSON: scores by name, and the scored text.

        Raises ConfigError where a recipe is required, and the model belongs to no run.
        """
        if request.recipe is None:
            raise ConfigError(
                f"{request.run} does not belong to a run, and scoring needs a run's recipe"
            )
        text = request.read_text(request.sentence_rule())
        scores = self.score(request.text_model, text, request.recipe, "test", ALONE).scores
        return {**scores, **request.describe_text(text)}

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

    def describe_watched(self, scores: Scores) -> list[str]:
        """Describe the scores of watched texts in an evaluation, a line each.

        Probes add a line.
        """
        by_text: dict[str, dict[str, Any]] = {}
        for key, value in scores.items():
            text, slash, name = key.rpartition("/")
            if slash:
                by_text.setdefault(text, {})[name] = value
        probes = by_text.pop(PREFIX, {})
        lines = [f"{text}: {self.describe(values)}" for text, values in by_text.items()]
        asked = [f"{PROBES[name].title} {points(value)}" for name, value in probes.items()]
        return [*lines, *([f"probes: {', '.join(asked)}"] if asked else [])]

    def describe_valid(self, scores: Scores) -> str:
        """Describe the scores of a run's evaluation: validation, or else watched texts.

        Empty where nothing was evaluated.
        """
        if "loss" in scores:
            return f"valid {self.describe(scores)}"
        return "; ".join(self.describe_watched(scores))


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
