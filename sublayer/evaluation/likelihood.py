"""The likelihood of a text under a model: every token but the first, scored exactly once.

Units are exact: tokens, bytes, characters and words.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from sublayer.data.store import Split
from sublayer.errors import ConfigError, DataError
from sublayer.evaluation.split_work import ALONE, Processes, Progress, add_up, compute_each, silent
from sublayer.model.context import Layout
from sublayer.model.kernels.cross_entropy import nats_of_targets
from sublayer.model.transformer import Transformer, evaluating

_WHITESPACE = b" \t\n\r\x0b\x0c"


class Counts(NamedTuple):
    """Size of a text in the units of a likelihood."""

    tokens: int
    bytes: int
    """Of the raw UTF-8 text that the ids stand for."""
    characters: int
    """Unicode's, each counted at its first byte."""
    words: int
    """Runs between ASCII whitespace, each counted at its first byte."""


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
            if piece := tokenizer.decode([token]):
                is_space = [byte in _WHITESPACE for byte in piece]
                # Words that begin after the first byte.
                begun = sum(before and not here for before, here in pairwise(is_space))
                self._inner_words[token] = begun
                self._begins_word[token] = not is_space[0]
                self._ends_word[token] = is_space[-1]

    def count(self, ranges: Sequence[tuple[int, int]]) -> NDArray[np.int64]:
        """Count the text of token ranges ``[start, stop)``; return their ``Counts``, ``[N, 4]``."""
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
"""Of e, beyond which a float is infinite."""


@dataclass(frozen=True, slots=True)
class Window:
    """Inputs ``ids[start:start + context]``, whose targets at ``ids[first:stop]`` are scored.

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
    """Windows in text order, the nats of each, ``[N]``, summed in float64, and the ``Counts`` of
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
    kept = []
    for number in range(n_kept):
        index = number * n_windows // n_kept
        first = first_stop + (index - 1) * stride if index else 1
        stop = min(first + stride, n_tokens) if index else first_stop
        kept.append(Window(index * stride, first, stop))
    return kept


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
    kept = []
    for i in range(n_kept):
        # The middle of the i-th of equal shares, after its context.
        part = (2 * i + 1) * n_parts // (2 * n_kept)
        first = 1 + part * stride
        stop = min(first + stride, n_tokens)
        kept.append(Window(max(0, stop - 1 - context), first, stop))
    return kept


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
    size = Counts(*counts.sum(0).tolist())
    store = split.store
    if not store.is_lossless:
        # Bytes and characters of the decoded text are scaled to the original, whose size is known
        # only for the split.
        assert store.n_characters is not None, "it is lossy"
        first = store.ids[0]
        n_first_bytes = int(split.tokenizer.token_bytes[first])
        n_bytes = store.n_bytes - n_first_bytes
        n_characters = store.n_characters - int(split.tokenizer.token_characters[first])
        n_kept = split.n_kept_bytes - n_first_bytes
        if size.tokens == n_ids - 1:
            size = size._replace(bytes=n_bytes, characters=n_characters)
        elif n_kept:
            share = size.bytes / n_kept
            size = size._replace(
                bytes=round(share * n_bytes), characters=round(share * n_characters)
            )
    return Likelihood(add_up(total for total, _, _ in rows), *size, (plan, nats, counts))


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
    matrix, bias = model.output_projection()
    embedded = model.to_embedding(hidden).flatten(0, 1)
    labels = torch.from_numpy(targets.reshape(-1)).to(device)
    nats = nats_of_targets(embedded, matrix, bias, labels)
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
