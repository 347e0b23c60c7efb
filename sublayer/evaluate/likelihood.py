"""The likelihood of a text under a model: every token but the first, scored exactly once."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from sublayer.data.split import Split
from sublayer.errors import ConfigError, DataError
from sublayer.evaluate.counts import Counter, Counts
from sublayer.model.layout import Layout
from sublayer.model.loss import linear_cross_entropy
from sublayer.model.mode import evaluating
from sublayer.model.transformer import Transformer


@dataclass(frozen=True)
class Likelihood:
    """What scored tokens cost a model, and how much text they are.

    ``nats`` is the negative log-likelihood of ``tokens`` tokens, which stand for exactly ``bytes`` bytes of UTF-8,
    ``characters`` characters and ``words`` whitespace-separated words (:class:`sublayer.evaluate.counts.Counter` says
    how cut words count). A ratio over nothing is NaN; a perplexity too large for a float is infinite.
    """

    nats: float
    tokens: int
    bytes: int
    characters: int
    words: int

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


@dataclass(frozen=True)
class Window:
    """Inputs ``ids[start:start + context]``, of whose targets those at ``ids[first:stop]`` are scored."""

    start: int
    first: int
    stop: int


def windows(n_tokens: int, *, context: int, stride: int, max_tokens: int | None = None) -> list[Window]:
    """Cut a sequence into windows of ``context`` inputs, each ``stride`` tokens after the one before.

    The first scores all its targets, every later one its last ``stride``; so each token but the first is scored
    once, in a window that depends on its position alone (a window at the end of the text is cut short). With
    ``max_tokens``, as many evenly spread windows as score at most so many tokens, and at least one.

    Raises ConfigError unless 1 <= stride <= context, DataError if there is nothing to score.
    """
    check_stride(stride, context)
    if n_tokens < 2:
        raise DataError(f"scoring needs at least 2 tokens (the first is context only), the text has {n_tokens}")
    n_later = max(0, math.ceil((n_tokens - 1 - context) / stride))
    firsts = [1, *range(context + 1, context + 1 + n_later * stride, stride)]
    stops = [*firsts[1:], n_tokens]
    found = [Window(i * stride, first, stop) for i, (first, stop) in enumerate(zip(firsts, stops, strict=True))]
    if max_tokens is None or n_tokens - 1 <= max_tokens:
        return found
    n_kept = min(1 + max(0, (max_tokens - context) // stride), len(found))
    return [found[i * len(found) // n_kept] for i in range(n_kept)]


def check_stride(stride: int, context: int) -> None:
    """Raise ConfigError unless 1 <= stride <= context."""
    if not 1 <= stride <= context:
        raise ConfigError(f"stride = {stride} must be at least 1 and at most the context of {context} tokens")


def score(
    model: Transformer,
    split: Split,
    *,
    context: int,
    stride: int,
    batch_sequences: int,
    max_tokens: int | None = None,
    respect_boundaries: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Likelihood:
    """Score a split under a model.

    The first token is context only; every other one is scored once, as :func:`windows` says (``stride`` 1 gives each
    the full context; ``stride = context`` reads the text once). Ends of documents are scored and have no bytes.
    ``respect_boundaries`` keeps attention and positions inside documents. ``batch_sequences`` windows are computed at
    a time, which changes speed and memory only. ``progress`` is told the tokens done and the tokens in all.

    Where a lossy tokenizer made the ids, the bytes of a whole split are those that were read; of a part of it, and
    for characters and words, they are those of the text that the ids stand for.

    The arithmetic is that of the model's weights, or of the caller's autocast; sums over batches are in float64.
    Raises ConfigError and DataError as :func:`windows` does.
    """
    plan = windows(len(split.ids), context=context, stride=stride, max_tokens=max_tokens)
    n_tokens = sum(window.stop - window.first for window in plan)
    starts = np.asarray(split.document_starts) if respect_boundaries else None
    nats, done = 0.0, 0
    with evaluating(model):
        for group in _groups(plan, batch_sequences):
            nats += _score_group(model, split.ids, group, context, starts)
            done += sum(window.stop - window.first for window in group)
            if progress is not None:
                progress(done, n_tokens)
    counts = _count(Counter(split), plan)
    n_bytes = counts.bytes
    if not split.store.is_lossless and counts.tokens == len(split.ids) - 1:
        # What the ids of a lossy tokenizer stand for is not what was read, whose length is known for the whole.
        n_bytes = split.store.n_bytes - int(split.tokenizer.token_bytes[split.ids[0]])
    return Likelihood(nats, counts.tokens, n_bytes, counts.characters, counts.words)


def _groups(plan: list[Window], size: int) -> Iterator[list[Window]]:
    # The first window may score more than the others, and would make all of its batch compute as many logits.
    n_first = 0 if len({window.stop - window.first for window in plan[:2]}) == 1 else 1
    if n_first:
        yield plan[:n_first]
    for low in range(n_first, len(plan), size):
        yield plan[low : low + size]


@torch.inference_mode()
def _score_group(
    model: Transformer,
    ids: NDArray[np.integer],
    group: list[Window],
    context: int,
    document_starts: NDArray[np.integer] | None,
) -> float:
    device = next(model.parameters()).device
    length = min(context, max(window.stop - 1 - window.start for window in group))
    first = min(window.first - 1 - window.start for window in group)
    places = np.array([window.start for window in group])[:, None] + np.arange(length + 1)  # [B, T + 1]
    rows = np.asarray(ids[np.minimum(places, len(ids) - 1)], dtype=np.int64)
    tokens = torch.from_numpy(rows[:, :-1]).to(device)
    document_ids = None
    if document_starts is not None:
        of_place = np.searchsorted(document_starts, places[:, :-1], side="right")
        document_ids = torch.from_numpy(of_place.astype(np.int64)).to(device)
    scored_places = places[:, 1 + first :]
    is_scored = [(window.first <= row) & (row < window.stop) for window, row in zip(group, scored_places, strict=True)]
    targets = np.where(np.stack(is_scored), rows[:, 1 + first :], -1)
    hidden = model.hidden(tokens, Layout.causal(tokens, document_ids=document_ids)).final[:, first:]
    matrix, bias = model.output_projection()
    total = linear_cross_entropy(
        model.to_embedding(hidden).flatten(0, 1), matrix, bias, torch.from_numpy(targets.reshape(-1)).to(device)
    )
    return float(total)


def _count(counter: Counter, plan: list[Window]) -> Counts:
    counts = Counts(0, 0, 0, 0)
    first, stop = plan[0].first, plan[0].stop
    for window in plan[1:]:
        if window.first != stop:
            counts += counter.count(first, stop)
            first = window.first
        stop = window.stop
    return counts + counter.count(first, stop)


def _ratio(total: float, count: int) -> float:
    return total / count if count else math.nan


def _exp(value: float) -> float:
    return math.exp(value) if value < 709 or math.isnan(value) else math.inf
