"""Prediction of next tokens, at the model's end and, in deep stacks, after every block.

Source: Al-Rfou et al. 2018 (1808.04444), sec. 3: losses at multiple positions, intermediate layers,
multiple targets.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor, nn

from sublayer.config.objective import CausalObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import batch_sequences
from sublayer.counts import count
from sublayer.data.batches import Batch, Windows
from sublayer.data.store import Split, TokenStore
from sublayer.data.tokenizers.base import ByteTokenizer
from sublayer.evaluation.items import Digest, Items, ItemTable, Metric, quotient_of
from sublayer.evaluation.likelihood import Counts, Likelihood, check_stride, score
from sublayer.evaluation.split_work import ALONE, Processes
from sublayer.model.context import Layout
from sublayer.model.heads import Classifier
from sublayer.model.kernels.cross_entropy import Smoothing, linear_cross_entropy
from sublayer.model.layers import build_norm
from sublayer.model.parameters import initial_values, initialise
from sublayer.model.transformer import Transformer
from sublayer.objective.base import Objective
from sublayer.objective.family import (
    TEXT_OPTIONS,
    Effort,
    Evaluation,
    Family,
    Scored,
    context_of,
    describe_sources,
    own_objective,
    scored_sequences,
)
from sublayer.tables import table
from sublayer.tasks.registry import TaskSpec
from sublayer.text_model import TextModel

_PREFIX = "objective.classifiers."
"""Before the names of the heads that training alone needs; a model's own names have no prefix."""
_TRAINED = "trained"
"""The term of the model's own head where it is trained otherwise than it is reported."""


class Causal(Objective):
    """Cross-entropy of the next tokens, over all positions whose target counts.

    A term for each predicting block (the last is the model's end) and each token ahead. The next
    token at the model's end, term ``lm``, uses the model's head; every other term has a classifier
    that is not saved with the model.

    Assumptions where the paper is silent: a block's classifiers read its output through a norm
    without parameters, of the model's kind (none where the model ends without one).

    With z-loss, or positions summed, the trained term of the model's head is ``trained``; ``lm``,
    then without weight, is reported, per token. Classifiers have no z-loss.

    With positions summed trained terms are divided by the number of windows, not of targets: a
    window of T targets weighs T times as much as in the mean.

    ``config`` None: no auxiliary losses; ``seed`` draws the classifiers.
    """

    reported = "lm"

    def __init__(
        self, model: Transformer, config: CausalObjective | None = None, *, seed: int = 0
    ) -> None:
        super().__init__(model)
        self.config = config or CausalObjective()
        self._n_layers = model.config.n_layers
        has_auxiliary = self.config.auxiliary == "layers"
        self._layers = range(1, self._n_layers) if has_auxiliary else range(0)
        self._ahead = range(1, self.config.targets + 1)
        self._active = list(self._layers)
        terms = [term for _, _, term in self._predicting() if term != self.reported]
        self.classifiers = nn.ModuleDict({term: Classifier(model.config) for term in terms})
        initialise(self.classifiers, model.config, seed=seed, prefix=_PREFIX)
        has_norm = bool(self._layers) and model.config.final_norm != "none"
        self._norm = build_norm(
            model.config.norm if has_norm else "none",
            model.config.d_model,
            eps=model.config.norm_eps,
            affine=False,
        )
        self.begin(0, 1)

    def initial_values(self, seed: int) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Generate the initial values of all parameters, the classifiers' last."""
        yield from super().initial_values(seed)
        config = self.model.config
        yield from initial_values(self.classifiers, config, seed=seed, prefix=_PREFIX)

    def begin(self, step: int, steps: int) -> None:
        """Drop the loss of block l of n after l / n of ``auxiliary_stop`` of the run.

        Source: Al-Rfou et al. 2018, sec. 3: the paper drops it after l / (2 n) of training.
        """
        config = self.config
        stop = config.auxiliary_stop * steps
        # Without a division, so that rounding does not move the step at which a block ends.
        self._active = [layer for layer in self._layers if step * self._n_layers < stop * layer]
        share = 1.0
        if config.auxiliary_reduction == "mean":
            share = 1.0 / (len(self._active) + 1)
        self.weights = {
            term: share * (1.0 if ahead == 1 else config.target_weight)
            for _, ahead, term in self._predicting()
        }
        if self._trains_otherwise:
            self.weights[_TRAINED] = self.weights[self.reported]
            self.weights[self.reported] = 0.0

    @property
    def has_unused_parameters(self) -> bool:
        """True where some terms end before the run."""
        return len(self._layers) > 0

    @property
    def _trains_otherwise(self) -> bool:
        return self.config.z_loss > 0 or self._sums_positions

    @property
    def _sums_positions(self) -> bool:
        return self.config.position_reduction == "sum"

    def counts(self, batch: Batch) -> dict[str, int]:
        """Count each term's targets that are not ignored; windows, where positions are summed."""
        n_targets = [int((targets >= 0).sum()) for targets in self._targets(batch)]
        counts = {term: n_targets[ahead - 1] for _, ahead, term in self._predicting()}
        if self._trains_otherwise:
            counts[_TRAINED] = counts[self.reported]
        if self._sums_positions:
            return {term: n if term == self.reported else len(batch) for term, n in counts.items()}
        return counts

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """Sum the nats of next tokens, for every term of this step."""
        layout = Layout.causal(batch.tokens, document_ids=batch.document_ids, starts=batch.starts)
        hidden = self.model.hidden(batch.tokens, layout, capture=self._active)
        targets = self._targets(batch)
        places = slice(-1 if self.config.positions == "last" else 0, None)
        by_layer = {layer: self._norm(hidden.captured[layer])[:, places] for layer in self._active}
        by_layer[self._n_layers] = hidden.final[:, places]
        totals: dict[str, Tensor] = {}
        for layer, ahead, term in self._predicting():
            states, labels = by_layer[layer], targets[ahead - 1].flatten()
            if term == self.reported:
                embedded = self.model.to_embedding(states).flatten(0, 1)
                smoothing = None
                if self._trains_otherwise:
                    smoothing = Smoothing(1.0, 0.0, self.config.z_loss)
                totals |= self.token_totals(embedded, labels, smoothing, hidden.matrix)
                continue
            classifier = self.classifiers[term]
            assert isinstance(classifier, Classifier), "a dictionary of classifiers"
            matrix, bias = classifier.weight, classifier.bias
            totals[term] = linear_cross_entropy(states.flatten(0, 1), matrix, bias, labels)
        return totals | self.auxiliary_totals(hidden.auxiliary)

    def _targets(self, batch: Batch) -> list[Int[Tensor, "B P"]]:
        targets = [batch.targets]
        if batch.further is not None:
            targets.extend(batch.further)
        if self.config.positions == "last":
            return [target[:, -1:] for target in targets]
        return targets

    def _predicting(self) -> list[tuple[int, int, str]]:
        """Return layer, tokens ahead and name of each term of this step."""
        return [
            (
                layer,
                ahead,
                self.reported
                if (layer, ahead) == (self._n_layers, 1)
                else f"layer{layer}_ahead{ahead}",
            )
            for layer in (*self._active, self._n_layers)
            for ahead in self._ahead
        ]


_SYNTHETIC_WINDOWS = 64


BITS_PER_BYTE_OF_ITEMS = quotient_of(CausalObjective.evaluated["bits_per_byte"])
LOSS_OF_ITEMS = quotient_of(CausalObjective.evaluated["loss"])
WINDOWS = LOSS_OF_ITEMS.table
"""The name of the table."""


def window_items(split: Split, likelihood: Likelihood, *, context: int, stride: int) -> Items:
    """Return the nats of each window of a text, and the size of its scored text.

    For a full text, adjacent windows that score half a context together are one item. A window
    belongs to the document of its first scored token. For a lossy tokenizer, the original bytes are
    distributed over the windows in proportion to their decoded bytes.
    """
    assert likelihood.by_window is not None, "a text was scored window by window"
    windows, nats, counts = likelihood.by_window
    bounds = np.array([(window.start, window.first, window.stop) for window in windows])  # [N, 3]
    firsts = bounds[:, 1]
    n_together = 1
    if np.array_equal(firsts[1:], bounds[:-1, 2]):
        n_together = max(1, (context // 2) // stride)
        starts = np.arange(0, len(windows), n_together)
        firsts = firsts[starts]  # [N], of items from here on
        nats, counts = (np.add.reduceat(values, starts) for values in (nats, counts))
    columns = dict(zip(Counts._fields, counts.T, strict=True))
    columns["bytes"] = _spread(columns["bytes"], likelihood.bytes, columns["tokens"])
    n_begun = np.searchsorted(split.document_starts, firsts, side="right")
    digest = Digest(WINDOWS, split.store.sha256)
    for positions in (*bounds.T, split.ids):
        digest.add(positions)
    unit = _unit(context, stride, n_together)
    table = ItemTable(unit, digest.hexdigest(), {"nats": nats, **columns}, n_begun - 1)
    return Items(split.name, split.store.sha256, {WINDOWS: table})


def _unit(context: int, stride: int, n_together: int) -> str:
    what = "a window" if n_together == 1 else f"{n_together} adjacent windows"
    whose = "it scores" if n_together == 1 else "they score"
    behind = "half the context" if stride == max(1, context // 2) else f"{context + 1 - stride}"
    if stride == 1:
        behind = "the full context"
    return f"{what}: the tokens that {whose}, after at least {behind} but at the start"


def _spread(
    parts: NDArray[np.int64], total: int, otherwise: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Scale integers to sum to ``total``; if all are 0, in proportion to others."""
    if int(parts.sum()) == total:
        return parts
    # Bounds, not parts, are rounded, so that the sum is exact.
    bounds = np.cumsum(parts if parts.any() else otherwise)
    factor = total / bounds[-1]
    scaled = np.rint(bounds * factor).astype(np.int64)
    spread: NDArray[np.int64] = np.diff(scaled, prepend=0)
    return spread


_BATCH_TOKENS = 4096


_RATIOS = ("loss", "bits_per_byte", "bits_per_character", "perplexity", "word_perplexity")


BITS_PER_BYTE = Metric(
    "bits_per_byte",
    "bits per byte",
    is_lower_better=True,
    from_items=BITS_PER_BYTE_OF_ITEMS,
    basis="bytes",
)


def _score(
    model: Transformer,
    split: Split,
    recipe: Recipe,
    stride: int,
    max_tokens: int | None,
    processes: Processes,
    *,
    same_tokens: bool = False,
) -> Likelihood:
    context = recipe.data.context
    return score(
        model,
        split,
        context=context,
        stride=stride,
        batch_sequences=max(1, _BATCH_TOKENS // context),
        max_tokens=max_tokens,
        same_tokens=same_tokens,
        respect_boundaries=recipe.data.boundaries == "respect",
        processes=processes,
    )


class CausalFamily(Family):
    """Next-token prediction, scored in bits per byte."""

    metrics = (BITS_PER_BYTE,)
    options = (*TEXT_OPTIONS, "stride")

    def build(
        self, model: Transformer, config: CausalObjective, seed: int, task: TaskSpec | None = None
    ) -> Causal:
        """Build the objective of a decoder; ``seed`` draws training-only heads."""
        return Causal(model, config, seed=seed)

    def batches(self, recipe: Recipe, split: Split) -> Windows:
        """Build the windows of a recipe.

        Raises DataError where the split, or a weighted source of it, has none.
        """
        objective, data = own_objective(recipe, CausalObjective), recipe.data
        return Windows(
            split,
            context=data.context,
            batch_sequences=batch_sequences(recipe),
            seed=recipe.train.seed,
            mode=data.windows,
            boundaries=data.boundaries,
            n_ahead=objective.targets,
        )

    def synthetic(self, recipe: Recipe, vocab_size: int) -> Windows:
        """Build windows of random tokens, for any text."""
        n_tokens = _SYNTHETIC_WINDOWS * (recipe.data.context + 1)
        generator = np.random.Generator(np.random.Philox(0))
        ids = generator.integers(vocab_size, size=n_tokens)
        starts = np.zeros(1, dtype=np.int64)
        store = TokenStore(ids, starts, starts, len(ids), "", is_lossless=True)
        # Tokens are not decoded: the tokenizer may have other ids.
        return self.batches(recipe, Split("train", store, ByteTokenizer(), ("",)))

    def check_text(self, recipe: Recipe, split: Split) -> None:
        """Raise DataError where the split, or a weighted source of it, has no window."""
        split.check_windows(recipe.data.context, own_objective(recipe, CausalObjective).targets)

    def score(
        self,
        text_model: TextModel,
        split: Split,
        recipe: Recipe,
        effort: Effort,
        processes: Processes,
    ) -> Scored:
        """Score the tokens of a text: nats per token, bits per byte.

        In training about ``train.evaluate_tokens`` tokens, in windows ``train.evaluate_stride``
        apart; in a test all, each after at least half the context except at the start, with windows
        as items.
        """
        model, context = text_model.model, recipe.data.context
        if effort == "test":
            return self.score_at_stride(model, split, recipe, max(1, context // 2), None, processes)
        stride = recipe.train.evaluate_stride or context
        likelihood = _score(model, split, recipe, stride, recipe.train.evaluate_tokens, processes)
        sampled = {"loss": likelihood.loss, "bits_per_byte": likelihood.bits_per_byte}
        return Scored(sampled, items=None)

    def score_at_stride(
        self,
        model: Transformer,
        split: Split,
        recipe: Recipe,
        stride: int,
        max_tokens: int | None,
        processes: Processes = ALONE,
    ) -> Scored:
        """Score a text as in a test, in windows ``stride`` tokens apart, as items.

        At most ``max_tokens`` tokens, evenly spread, the same for every context.
        """
        context = recipe.data.context
        likelihood = _score(model, split, recipe, stride, max_tokens, processes, same_tokens=True)
        items = window_items(split, likelihood, context=context, stride=stride)
        scores = {
            "loss": LOSS_OF_ITEMS.of(items),
            "bits_per_byte": BITS_PER_BYTE_OF_ITEMS.of(items),
            "tokens": likelihood.tokens,
        }
        return Scored(scores, items)

    def evaluate(self, asked: Evaluation) -> dict[str, Any]:
        """Score every token of a text except the first, and describe the windows.

        The option ``stride`` is in tokens, by default half the context.

        Raises ConfigError for a stride below 1 or above the context, DataError where the text has
        fewer than two tokens.
        """
        model, recipe = asked.model, asked.recipe
        context = context_of(model, recipe)
        stride = asked.options.get("stride", max(1, context // 2))
        check_stride(stride, context)
        text = asked.read_text("none")
        respects = recipe is not None and recipe.data.boundaries == "respect"
        likelihood = score(
            model,
            text,
            context=context,
            stride=stride,
            batch_sequences=asked.batch or scored_sequences(model, context),
            respect_boundaries=respects,
            progress=asked.progress("scored", "tokens"),
        )
        measures = {name: getattr(likelihood, name) for name in (*_RATIOS, *Counts._fields)}
        return {
            **measures,
            "context": context,
            "stride": stride,
            "is_lossless": text.store.is_lossless,
            **asked.describe_text(text),
        }

    def _describe(self, scores: Mapping[str, Any]) -> str:
        """Format the scores of training as one line."""
        return (
            f"loss {scores['loss']:.4f} nats per token, {scores['bits_per_byte']:.4f} bits per byte"
        )

    def render(self, result: Mapping[str, Any]) -> str:
        """Format the scores for the terminal."""
        sizes = {name: count(result[f"{name}s"], name) for name in ("byte", "character", "word")}
        rows = [
            ("loss", f"{result['loss']:.4f}", "nats per token"),
            ("bits per byte", f"{result['bits_per_byte']:.4f}", sizes["byte"]),
            ("bits per character", f"{result['bits_per_character']:.4f}", sizes["character"]),
            ("perplexity", f"{result['perplexity']:.2f}", "per token"),
            ("word perplexity", f"{result['word_perplexity']:.4g}", sizes["word"]),
        ]
        lines = [
            f"scored {count(result['tokens'], 'token')} of {describe_sources(result)}",
            f"in windows of {result['context']} tokens, stride {result['stride']}",
            table(["measure", "value", "of"], rows, right=[1]),
        ]
        if not result["is_lossless"]:
            lines.append(
                "the tokenizer is lossy: unknown text was scored as unknown, "
                "so that these are not comparable"
            )
        return "\n".join(lines)
