"""Prediction of next tokens, at the model's end and, in deep stacks, after every block.

Source: Al-Rfou et al. 2018 (1808.04444), sec. 3: losses at multiple positions, intermediate layers,
multiple targets.

A text's likelihood scores every token but the first exactly once. Units are exact: tokens, bytes,
characters and words.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor, nn

from sublayer.config.objective import CausalObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import batch_sequences
from sublayer.data.batches import Batch, Windows
from sublayer.data.store import Split, TokenStore
from sublayer.data.tokenizers.base import ByteTokenizer
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.items import (
    ALONE,
    Digest,
    Items,
    ItemTable,
    Metric,
    Processes,
    Progress,
    add_up,
    compute_each,
    quotient_of,
    silent,
)
from sublayer.model.context import Layout
from sublayer.model.heads import Classifier
from sublayer.model.kernels.products import Smoothing, linear_cross_entropy, nats_of_targets
from sublayer.model.layers import build_norm
from sublayer.model.parameters import initial_values, initialise
from sublayer.model.transformer import Transformer, evaluating
from sublayer.numbers import count
from sublayer.objective.base import (
    TEXT_OPTIONS,
    Effort,
    Evaluation,
    Family,
    Objective,
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
"""Prefix of the names of training-only heads; a model's own names have none."""
_TRAINED = "trained"
"""Term of the model's own head where the trained loss differs from the reported one."""


class Causal(Objective):
    """Cross-entropy of the next tokens, over all positions with a target that counts.

    A term for each predicting block (the last is the model's end) and each token ahead. The next
    token at the model's end, term ``lm``, uses the model's head; every other term has a classifier
    that is not saved with the model.

    Assumptions where the paper is silent: a block's classifiers read its output through a norm
    without parameters, of the model's kind (none where the model ends without one, or with dyt).

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
        has_norm = has_norm and model.config.norm != "dyt"
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
        # Without division, so that rounding cannot move the step where a block ends.
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


_WHITESPACE = b" \t\n\r\x0b\x0c"


UNITS = ("tokens", "bytes", "characters", "words")
"""Units of a text's size: tokens; bytes of the raw UTF-8 text that the ids stand for; Unicode
characters, each counted at its first byte; runs between ASCII whitespace, each counted at its first
byte."""


class Counter:
    """Count tokens, bytes, characters and words of ranges of a split.

    A character or word counts with the token of its first UTF-8 byte, so that a range which begins
    inside a word does not count it, and one which ends inside does. A word is a maximal run of
    bytes that are not ASCII whitespace, within a document.
    """

    def __init__(self, split: Split) -> None:
        self._split, tokenizer = split, split.tokenizer
        n_ids = len(tokenizer.token_bytes)
        self._inner_words = np.zeros(n_ids, dtype=np.int64)
        self._begins_word = np.zeros(n_ids, dtype=np.bool_)
        self._ends_word = np.ones(n_ids, dtype=np.bool_)
        for token in np.flatnonzero(tokenizer.token_bytes).tolist():
            if piece := tokenizer.decode_after([token]):
                is_space = [byte in _WHITESPACE for byte in piece]
                # Words that begin after the first byte.
                begun = sum(before and not here for before, here in pairwise(is_space))
                self._inner_words[token] = begun
                self._begins_word[token] = not is_space[0]
                self._ends_word[token] = is_space[-1]

    def count(self, ranges: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
        """Count the text of token ranges ``[start, stop)``; return their ``UNITS``, ``[N, 4]``."""
        starts, stops = np.asarray(ranges, dtype=np.int64).reshape(-1, 2).T
        n_tokens = stops - starts
        ends = n_tokens.cumsum()
        positions = np.arange(n_tokens.sum()) + np.repeat(stops - ends, n_tokens)
        ids, documents = self._split.ids, self._split.document_starts
        tokens, before = ids[positions], ids[np.maximum(positions - 1, 0)]
        is_first = np.searchsorted(documents, positions, "right") > np.searchsorted(
            documents, positions
        )
        # A token that begins inside a word continues a word already counted.
        follows_word_end = is_first | (positions == 0) | self._ends_word[before]
        begins_word = self._begins_word[tokens] & follows_word_end
        tokenizer = self._split.tokenizer
        sizes = (
            np.ones_like(positions),
            tokenizer.token_bytes[tokens],
            tokenizer.token_characters[tokens],
            self._inner_words[tokens] + begins_word,
        )
        sums = np.zeros((len(positions) + 1, len(sizes)), dtype=np.int64)
        np.cumsum(np.stack(sizes, axis=1), axis=0, dtype=np.int64, out=sums[1:])
        counts: NDArray[np.int64] = sums[ends] - sums[ends - n_tokens]
        return counts


_LARGEST_EXPONENT = 709
"""Largest exponent of e with a finite float."""


@dataclass(frozen=True, slots=True)
class Window:
    """Inputs ``ids[start:start + context]`` with scored targets ``ids[first:stop]``.

    All three are positions in the text, with ``start < first < stop <= start + context + 1``.
    """

    start: int
    first: int
    stop: int


@dataclass(frozen=True)
class Likelihood:
    """Negative log-likelihood of the scored tokens, and the size of their text.

    ``nats`` is the negative log-likelihood of ``tokens`` tokens: exactly ``bytes`` bytes of UTF-8,
    ``characters`` characters and ``words`` whitespace-separated words (cut words:
    :class:`Counter`). A ratio over nothing is NaN; a perplexity too large for a float is infinite.
    """

    nats: float
    tokens: int
    bytes: int
    characters: int
    words: int
    by_window: tuple[list[Window], NDArray[np.float64], NDArray[np.int64]] | None = field(
        default=None, compare=False, repr=False
    )
    """Windows in text order, the nats of each, ``[N]``, summed in float64, and the ``UNITS`` of
    its scored tokens, ``[N, 4]``; None where only the sums are known."""

    @property
    def loss(self) -> float:
        """Nats per token."""
        return _ratio(self.nats, self.tokens)

    @property
    def bits_per_byte(self) -> float:
        """Bits per byte of the raw UTF-8 text of the scored tokens."""
        return _ratio(self.nats / math.log(2), self.bytes)

    @property
    def bits_per_character(self) -> float:
        """Bits per Unicode character of the scored tokens."""
        return _ratio(self.nats / math.log(2), self.characters)

    @property
    def perplexity(self) -> float:
        """Exponential of the nats per token."""
        return _exp(self.loss)

    @property
    def word_perplexity(self) -> float:
        """Exponential of the nats per whitespace-separated word."""
        return _exp(_ratio(self.nats, self.words))


def windows(
    n_tokens: int, *, context: int, stride: int, max_tokens: int | None = None
) -> list[Window]:
    """Cut a sequence into windows of ``context`` inputs, ``stride`` tokens apart.

    The first scores all its targets, every later one its last ``stride``: all tokens but the first
    are scored once, in a window that depends only on their position (the last window is cut short).
    With ``max_tokens``, evenly spread windows, at least one, that score at most so many tokens; a
    single one may score more.

    Of 10 tokens, ``context`` 4 and ``stride`` 2 give windows that begin at 0, 2, 4 and 6, and score
    tokens 1 to 4, 5 and 6, 7 and 8, and 9.

    Raises ConfigError unless 1 <= stride <= context, DataError if there is nothing to score.
    """
    check_stride(stride, context)
    if n_tokens < 2:
        raise DataError(
            f"scoring needs at least 2 tokens (the first is context only), the text has {n_tokens}"
        )
    # The first scores up to ``context`` tokens, and every other one ``stride``.
    first_stop = min(context + 1, n_tokens)
    n_windows = 1 + -(-(n_tokens - first_stop) // stride)
    n_kept = n_windows
    if max_tokens is not None and n_tokens - 1 > max_tokens:
        n_after_first = max(0, (max_tokens - context) // stride)
        n_kept = min(1 + n_after_first, n_windows)
    chosen = []
    for number in range(n_kept):
        index = number * n_windows // n_kept
        first = first_stop + (index - 1) * stride if index else 1
        stop = min(first + stride, n_tokens) if index else first_stop
        chosen.append(Window(index * stride, first, stop))
    return chosen


def spread_windows(n_tokens: int, *, context: int, stride: int, max_tokens: int) -> list[Window]:
    """Choose evenly spread windows that score the same tokens for any context.

    The tokens after the first are divided into parts of ``stride``; at most ``max_tokens`` tokens,
    at least one part, are scored, at the end of windows as long as the text before allows. Where
    ``max_tokens`` covers all tokens, this is :func:`windows`. Raises as that does.
    """
    check_stride(stride, context)
    n_targets = n_tokens - 1
    if n_targets <= max_tokens:
        return windows(n_tokens, context=context, stride=stride)
    n_parts = max(1, n_targets // stride)
    n_kept = max(1, min(n_parts, max_tokens // stride))
    chosen = []
    for i in range(n_kept):
        # The middle of the i-th of equal shares, after its context.
        part = (2 * i + 1) * n_parts // (2 * n_kept)
        first = 1 + part * stride
        stop = min(first + stride, n_tokens)
        chosen.append(Window(max(0, stop - 1 - context), first, stop))
    return chosen


def check_stride(stride: int, context: int) -> None:
    """Raise ConfigError unless 1 <= stride <= context."""
    if not 1 <= stride <= context:
        raise ConfigError(
            f"stride = {stride} must be at least 1 and at most the context of {context} tokens"
        )


def score(
    model: Transformer,
    split: Split,
    *,
    context: int,
    stride: int,
    batch_sequences: int,
    max_tokens: int | None = None,
    same_tokens: bool = False,
    respect_boundaries: bool = False,
    progress: Progress = silent,
    processes: Processes = ALONE,
) -> Likelihood:
    """Score a split under a model.

    The first token is context only; every other one is scored once, in the windows of
    :func:`windows` (``stride`` 1: full context for all; ``stride = context``: the text is read
    once). Under ``max_tokens``, ``same_tokens`` scores the tokens of :func:`spread_windows`. Ends
    of documents are scored and have no bytes. ``respect_boundaries`` keeps attention and positions
    inside documents. ``batch_sequences``, the windows per batch, changes speed and memory only.
    ``progress`` receives the tokens done and the total.

    For a lossy tokenizer, bytes and characters of a split are counted in the original text, and a
    part's in proportion to the bytes of its decoded ids. Words are counted in the decoded text.

    Computed in the dtype of the weights, or of the caller's autocast; batches are summed in
    float64, in order. ``processes`` share the batches, and all return the same. Raises ConfigError
    and DataError as :func:`windows` does.
    """
    n_ids = len(split.ids)
    if max_tokens is not None and same_tokens:
        plan = spread_windows(n_ids, context=context, stride=stride, max_tokens=max_tokens)
    else:
        plan = windows(n_ids, context=context, stride=stride, max_tokens=max_tokens)
    n_tokens = _n_scored(plan)
    starts = np.asarray(split.document_starts) if respect_boundaries else None
    batches = list(_batches(plan, batch_sequences))
    tokens_done = list(accumulate(map(_n_scored, batches)))
    counter = Counter(split)

    def score_one(index: int) -> tuple[float, NDArray[np.float64], NDArray[np.int64]]:
        total, nats = _score_batch(model, split.ids, batches[index], context, starts)
        progress(tokens_done[index], n_tokens)
        scored = [(window.first, window.stop) for window in batches[index]]
        return total, nats, counter.count(scored)

    with evaluating(model):
        rows = compute_each(score_one, len(batches), processes)
    nats = np.concatenate([nats for _, nats, _ in rows])
    counts = np.concatenate([counts for _, _, counts in rows])
    total_nats = add_up(total for total, _, _ in rows)
    tokens, decoded_bytes, decoded_characters, words = counts.sum(0).tolist()
    by_window = plan, nats, counts
    likelihood = Likelihood(total_nats, tokens, decoded_bytes, decoded_characters, words, by_window)
    store = split.store
    if store.is_lossless:
        return likelihood
    # Bytes and characters of the decoded text are scaled to the original, whose size is known only
    # for the split.
    assert store.n_characters is not None, "it is lossy"
    first = store.ids[0]
    n_first_bytes = int(split.tokenizer.token_bytes[first])
    n_bytes = store.n_bytes - n_first_bytes
    n_characters = store.n_characters - int(split.tokenizer.token_characters[first])
    n_kept = split.n_kept_bytes - n_first_bytes
    if likelihood.tokens == n_ids - 1:
        return replace(likelihood, bytes=n_bytes, characters=n_characters)
    if not n_kept:
        return likelihood
    share = likelihood.bytes / n_kept
    return replace(likelihood, bytes=round(share * n_bytes), characters=round(share * n_characters))


def _batches(plan: list[Window], size: int) -> Iterator[list[Window]]:
    # The first window may score more tokens: in a batch with others, all would compute as many
    # logits.
    n_alone = int(len({window.stop - window.first for window in plan[:2]}) != 1)
    if n_alone:
        yield plan[:n_alone]
    for low in range(n_alone, len(plan), size):
        yield plan[low : low + size]


@torch.inference_mode()
def _score_batch(
    model: Transformer,
    ids: NDArray[np.integer],
    batch: list[Window],
    context: int,
    document_starts: NDArray[np.integer] | None,
) -> tuple[float, NDArray[np.float64]]:
    """Compute the nats of a batch of windows, ``[B]``, and their sum."""
    device = next(model.parameters()).device
    # Per window: inputs, and inputs before the first scored target.
    input_counts = [window.stop - 1 - window.start for window in batch]
    unscored_counts = [window.first - 1 - window.start for window in batch]
    n_inputs = min(context, max(input_counts))
    # Inputs that no window of the batch scores need no logits.
    n_unscored = min(unscored_counts)
    bounds = np.array([(window.start, window.first, window.stop) for window in batch])
    starts, firsts, stops = bounds.T[:, :, None]  # [B, 1] each
    positions = starts + np.arange(n_inputs + 1)  # [B, T + 1]
    # A window at the end of the text is padded with the last token, which is not scored again.
    within_text = np.minimum(positions, len(ids) - 1)
    rows = np.asarray(ids[within_text], dtype=np.int64)
    tokens = torch.from_numpy(rows[:, :-1]).to(device)
    document_ids = None
    if document_starts is not None:
        documents = np.searchsorted(document_starts, positions[:, :-1], side="right")  # [B, T]
        document_ids = torch.from_numpy(documents.astype(np.int64)).to(device)
    is_scored = (positions >= firsts) & (positions < stops)
    targets = np.where(is_scored, rows, -1)[:, 1 + n_unscored :]
    layout = Layout.causal(tokens, document_ids=document_ids)
    hidden = model.hidden(tokens, layout).final[:, n_unscored:]
    matrix, bias, cap = model.output_projection()
    embedded = model.to_embedding(hidden).flatten(0, 1)
    labels = torch.from_numpy(targets.reshape(-1)).to(device)
    nats = nats_of_targets(embedded, matrix, bias, labels, cap=cap)
    by_window = nats.each.view(len(batch), -1)
    window_nats = by_window.sum(1, dtype=torch.float64)
    return float(nats.total), window_nats.cpu().numpy()


def _n_scored(batch: list[Window]) -> int:
    return sum(window.stop - window.first for window in batch)


def _ratio(total: float, count: int) -> float:
    return total / count if count else math.nan


def _exp(value: float) -> float:
    if math.isnan(value) or value < _LARGEST_EXPONENT:
        return math.exp(value)
    return math.inf


_SYNTHETIC_WINDOWS = 64


BITS_PER_BYTE_OF_ITEMS = quotient_of(CausalObjective.evaluated["bits_per_byte"])
LOSS_OF_ITEMS = quotient_of(CausalObjective.evaluated["loss"])
WINDOWS = LOSS_OF_ITEMS.table
"""Name of the table of windows."""


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
    columns = dict(zip(UNITS, counts.T, strict=True))
    columns["bytes"] = _spread(columns["bytes"], likelihood.bytes, columns["tokens"])
    n_begun = np.searchsorted(split.document_starts, firsts, side="right")
    digest = Digest(WINDOWS, split.store.sha256)
    for positions in (*bounds.T, split.ids):
        digest.add(positions)
    what = "a window" if n_together == 1 else f"{n_together} adjacent windows"
    whose = "it scores" if n_together == 1 else "they score"
    behind = "half the context" if stride == max(1, context // 2) else f"{context + 1 - stride}"
    if stride == 1:
        behind = "the full context"
    unit = f"{what}: the tokens that {whose}, after at least {behind} but at the start"
    table = ItemTable(unit, digest.hexdigest(), {"nats": nats, **columns}, n_begun - 1)
    return Items(split.name, split.store.sha256, {WINDOWS: table})


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

    def evaluate(self, request: Evaluation) -> dict[str, Any]:
        """Score every token of a text except the first, and describe the windows.

        The option ``stride`` is in tokens, by default half the context.

        Raises ConfigError for a stride below 1 or above the context, DataError where the text has
        fewer than two tokens.
        """
        model, recipe = request.model, request.recipe
        context = context_of(model, recipe)
        stride = request.options.get("stride", max(1, context // 2))
        check_stride(stride, context)
        text = request.read_text("none")
        respects = recipe is not None and recipe.data.boundaries == "respect"
        likelihood = score(
            model,
            text,
            context=context,
            stride=stride,
            batch_sequences=request.batch or scored_sequences(model, context),
            respect_boundaries=respects,
            progress=request.progress("scored", "tokens"),
        )
        measures = {name: getattr(likelihood, name) for name in (*_RATIOS, *UNITS)}
        return {
            **measures,
            "context": context,
            "stride": stride,
            "is_lossless": text.store.is_lossless,
            **request.describe_text(text),
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
