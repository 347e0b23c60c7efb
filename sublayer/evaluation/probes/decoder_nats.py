"""How likely a decoder finds texts behind prompts, each prompt that several share read once."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor

from sublayer.evaluation.probes.query import EncodedQuery
from sublayer.model.context.cache import Cache
from sublayer.model.context.layout import Layout
from sublayer.model.decoder import Decoder
from sublayer.model.eval_mode import evaluating
from sublayer.model.kernels.cross_entropy import nats_of_targets

Nats = NDArray[np.float64]
"""Of each token of a text, given those before it, ``[T]``."""
Said = Callable[[int, int], None]
"""Hears how many queries are answered, and of how many."""
_TOKENS = 4096
"""Of a batch."""
_ROWS = 256
"""Of logits at a time, where the likeliest token is looked for."""
_WORTH_SHARING = 8
"""Tokens of a prompt, from which on it is read once for several texts."""
_MOST_BEHIND = 16
"""Texts behind a prompt at a time."""


@dataclass(frozen=True)
class _Prompt:
    """A prompt, and the queries that it stands before, by their numbers."""

    ids: tuple[int, ...]
    numbers: list[int]


def decoder_nats(
    model: Decoder,
    queries: Sequence[EncodedQuery],
    said: Said = lambda n_done, n_all: None,
    *,
    with_tops: bool = False,
) -> list[Nats]:
    """Compute the nats of each token of the texts, in the order of the queries.

    ``with_tops`` adds whether each was the likeliest of all tokens, ``[T, 2]``.

    Prompts that several texts follow are read once, into a cache; prompts of equal length go
    together, so that none is padded. Deterministic, in float32 or what the weights are.
    """
    by_prompt: dict[tuple[int, ...], _Prompt] = {}
    for number, query in enumerate(queries):
        by_prompt.setdefault(query.prompt, _Prompt(query.prompt, [])).numbers.append(number)
    found: dict[int, Nats] = {}
    alone: list[int] = []
    shared: list[_Prompt] = []
    for each in by_prompt.values():
        if len(each.numbers) == 1 or len(each.ids) < _WORTH_SHARING:
            alone += each.numbers
            continue
        for low in range(0, len(each.numbers), _MOST_BEHIND):
            shared.append(_Prompt(each.ids, each.numbers[low : low + _MOST_BEHIND]))
    with evaluating(model), torch.inference_mode():
        for batch in _batches_of_rows(queries, alone):
            found |= _score_rows(model, queries, batch, with_tops)
            said(len(found), len(queries))
        for prompts in _batches_of_prompts(queries, shared):
            found |= _score_behind(model, queries, prompts, with_tops)
            said(len(found), len(queries))
    return [found[number] for number in range(len(queries))]


def _batches_of_rows(
    queries: Sequence[EncodedQuery], numbers: Sequence[int]
) -> Iterator[list[int]]:
    """Yield queries of about equal lengths, as many as fill a batch, the longest first."""

    def length(number: int) -> int:
        return len(queries[number].prompt) + len(queries[number].text)

    batch: list[int] = []
    for number in sorted(numbers, key=length, reverse=True):
        if batch and (len(batch) + 1) * length(batch[0]) > _TOKENS:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch


def _batches_of_prompts(
    queries: Sequence[EncodedQuery], prompts: Sequence[_Prompt]
) -> Iterator[list[_Prompt]]:
    """Yield prompts of one length, as many as fill a batch beside the texts behind them.

    The longest come first: memory that one batch has freed then holds the next.
    """
    batch: list[_Prompt] = []
    size = 0
    for prompt in sorted(prompts, key=lambda each: len(each.ids), reverse=True):
        longest = max(len(queries[number].text) for number in prompt.numbers)
        own = len(prompt.ids) + len(prompt.numbers) * longest
        is_other = bool(batch) and len(batch[0].ids) != len(prompt.ids)
        if batch and (is_other or size + own > _TOKENS):
            yield batch
            batch, size = [], 0
        batch.append(prompt)
        size += own
    if batch:
        yield batch


def _score_rows(
    model: Decoder, queries: Sequence[EncodedQuery], numbers: Sequence[int], with_tops: bool
) -> dict[int, Nats]:
    """Score queries as rows of their own: what is right of a text, nothing of it sees."""
    wholes = [(*queries[number].prompt, *queries[number].text) for number in numbers]
    tokens = _padded(wholes, model)  # [B, T]
    inputs = tokens[:, :-1]
    final = model.hidden(inputs, Layout.causal(inputs)).final
    firsts = torch.tensor([len(queries[number].prompt) for number in numbers])
    stops = torch.tensor([len(whole) for whole in wholes])
    places = torch.arange(1, tokens.shape[1])  # of the tokens that are predicted
    is_scored = (places >= firsts[:, None]) & (places < stops[:, None])
    nats = _nats(model, final, tokens[:, 1:], is_scored.to(tokens.device), with_tops)
    return _by_query(nats, [len(queries[number].text) for number in numbers], numbers)


def _score_behind(
    model: Decoder, queries: Sequence[EncodedQuery], prompts: Sequence[_Prompt], with_tops: bool
) -> dict[int, Nats]:
    """Score all texts behind prompts of one length, each prompt read once."""
    device = model.embedding.weight.device
    rows = _padded([prompt.ids for prompt in prompts], model)  # [P, T]
    numbers = [number for prompt in prompts for number in prompt.numbers]
    texts = [queries[number].text for number in numbers]
    longest = max(map(len, texts))
    cache = Cache(
        model.config,
        len(prompts),
        rows.shape[1] + longest,
        dtype=model.embedding.weight.dtype,
        device=device,
    )
    layout = Layout.causal(rows)
    final = model.hidden(rows, layout, cache=cache).final
    cache.advance(rows.shape[1], None)
    # The row of the prompt that each text stands behind.
    of_text = torch.tensor(
        [row for row, prompt in enumerate(prompts) for _ in prompt.numbers], device=device
    )
    tokens = _padded(texts, model)  # [N, T]
    states = final[of_text, -1:]  # [N, 1, D], which predict the first token
    if longest > 1:
        inputs = tokens[:, :-1]
        cache.take_rows(of_text)
        behind = Layout.causal(inputs, past=cache.n_past)
        further = model.hidden(inputs, behind, cache=cache).final
        states = torch.cat([states, further], dim=1)  # [N, T, D]
    lengths = torch.tensor([len(text) for text in texts], device=device)
    is_scored = torch.arange(longest, device=device) < lengths[:, None]
    nats = _nats(model, states, tokens, is_scored, with_tops)
    return _by_query(nats, [len(text) for text in texts], numbers)


def _nats(
    model: Decoder,
    states: Float[Tensor, "N T D"],
    targets: Int[Tensor, "N T"],
    is_scored: Tensor,
    with_tops: bool,
) -> Nats:
    """Compute the nats of the tokens that are scored alone, row by row."""
    matrix, bias = model.output_projection()
    embedded = model.to_embedding(states[is_scored])
    each = nats_of_targets(embedded, matrix, bias, targets[is_scored]).each.double()
    if with_tops:
        scored = states[is_scored]
        parts = [scored[low : low + _ROWS] for low in range(0, len(scored), _ROWS)]
        tops = [model.logits(part).argmax(-1) for part in parts]
        is_top = torch.cat(tops or [targets.new_zeros(0)]) == targets[is_scored]
        each = torch.stack([each, is_top.double()], dim=1)
    return each.cpu().numpy()


def _by_query(nats: Nats, lengths: Sequence[int], numbers: Sequence[int]) -> dict[int, Nats]:
    found = {}
    first = 0
    for number, length in zip(numbers, lengths, strict=True):
        found[number] = nats[first : first + length]
        first += length
    return found


def _padded(rows: Sequence[Sequence[int]], model: Decoder) -> Int[Tensor, "B T"]:
    """Put rows of tokens together, padded behind by whatever id."""
    longest = max(map(len, rows))
    ids = np.zeros((len(rows), longest), dtype=np.int64)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = tokens
    return torch.from_numpy(ids).to(model.embedding.weight.device)
