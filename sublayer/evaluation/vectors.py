"""Text embeddings: final hidden states, pooled over the tokens of a text."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from numpy.typing import NDArray
from torch import Tensor

from sublayer.data.tokenizers.base import Tokenizer
from sublayer.data.tokenizers.languages import BilingualTokenizer
from sublayer.errors import ConfigError
from sublayer.files.arrays import TokenIds
from sublayer.model.context import Layout
from sublayer.model.transformer import Encoder, EncoderDecoder, Transformer, evaluating
from sublayer.numbers import count
from sublayer.system.terminal import note
from sublayer.text_model import TextModel
from sublayer.values import given_lines

Pooling = Literal["mean", "first", "last"]
BATCH = 32
"""Texts computed at a time, unless given."""
_WINDOW = 2048
"""Texts that are sorted by length together."""


@dataclass(frozen=True)
class Vectors:
    """Vectors of consecutive texts, with truncated and empty texts."""

    values: NDArray[np.float32]
    """``[N, D]``; zeros where the model reads no token, special ones included."""
    is_cut: NDArray[np.bool_]
    """``[N]``: texts longer than the model's context; only their first tokens were read."""
    is_empty: NDArray[np.bool_]
    """``[N]``: texts without a token of their own."""
    n_tokens: int
    """Tokens of the texts, special ones aside, uncut."""
    n_unknown: int
    """Unknown tokens among them."""


def embed_texts(
    text_model: TextModel,
    texts: Sequence[str],
    *,
    pool: Pooling = "mean",
    normalize: bool = False,
    batch: int = BATCH,
    progress: Callable[[int], None] = lambda n_done: None,
) -> Iterator[Vectors]:
    """Compute the vectors of texts, in order; yield some 2,000 at a time.

    A vector is the mean of the final hidden states over all tokens, special ones included, or the
    state of the first or last token. An encoder reads ``[CLS] text [SEP]``, an encoder-decoder's
    encoder the text and its end, a decoder or LSTM only the text. ``normalize`` scales it to
    Euclidean norm 1. ``batch``, the texts per batch, changes speed and memory only; ``progress``
    receives the number of texts done.

    Raises ConfigError without a tokenizer, or special tokens that the model reads, for an unknown
    pooling or a batch below 1, and for the first token of a decoder or LSTM, which sees none of the
    others.
    """
    if pool not in get_args(Pooling):
        raise ConfigError(f"pool is {pool!r}, not one of {', '.join(get_args(Pooling))}")
    if not isinstance(batch, int | np.integer) or batch < 1:
        raise ConfigError(f"a batch of {batch} texts is empty: give 1 or more")
    model = text_model.model
    tokenizer, first, last = _reading(text_model, pool)
    room = model.config.max_len - len(first) - len(last)
    for start in range(0, len(texts), _WINDOW):
        encoded = _encoded(tokenizer, texts[start : start + _WINDOW])
        lengths = np.array([len(ids) for ids in encoded], dtype=np.int64)
        rows = [[*first, *ids[:room].tolist(), *last] for ids in encoded]
        values = np.zeros((len(rows), model.config.d_model), dtype=np.float32)
        # Similar lengths together, to save padding.
        order = [int(n) for n in np.argsort(lengths, kind="stable") if rows[int(n)]]
        for low in range(0, len(order), batch):
            some = order[low : low + batch]
            values[some] = _pooled(model, [rows[number] for number in some], pool, normalize)
            progress(start + min(low + batch, len(order)))
        unknown = tokenizer.unk_id
        n_unknown = 0 if unknown is None else sum(int((ids == unknown).sum()) for ids in encoded)
        yield Vectors(values, lengths > room, lengths == 0, int(lengths.sum()), n_unknown)


def embed_all(
    text_model: TextModel,
    texts: Iterable[str],
    *,
    pool: Pooling = "mean",
    normalize: bool = False,
    batch: int | None = None,
) -> NDArray[np.float32]:
    """Return the vectors of all texts, ``[N, D]``, as from ``embed_texts``; report truncation.

    Raises as that does, and ConfigError where ``texts`` is a string.
    """
    if isinstance(texts, str):
        raise ConfigError("texts is one text: give a list of them")
    batch = BATCH if batch is None else batch
    lines = given_lines(texts)
    parts = list(embed_texts(text_model, lines, pool=pool, normalize=normalize, batch=batch))
    for line in describe_unread(parts, "text"):
        note(line)
    empty = np.zeros((0, text_model.model.config.d_model), dtype=np.float32)
    return np.concatenate([empty, *(part.values for part in parts)])


def describe_unread(parts: Sequence[Vectors], unit: str) -> list[str]:
    """Describe truncated texts, empty ones and unknown tokens, a line each."""
    if not parts:
        return []
    n_all = count(sum(len(part.values) for part in parts), unit)
    is_cut, is_empty = (
        np.concatenate([getattr(part, name) for part in parts]) for name in ("is_cut", "is_empty")
    )
    lines = []
    for which, what in (
        (is_cut, "longer than the model's context, cut"),
        (is_empty, "empty, with only special tokens"),
    ):
        if which.any():
            first = int(which.argmax()) + 1
            lines.append(f"{what}: {int(which.sum()):,} of {n_all}, the first is {unit} {first:,}")
    n_unknown = sum(part.n_unknown for part in parts)
    if n_unknown:
        n_tokens = count(sum(part.n_tokens for part in parts), "token")
        lines.append(f"unknown to the vocabulary: {n_unknown:,} of {n_tokens}")
    return lines


def _reading(text_model: TextModel, pool: Pooling) -> tuple[Tokenizer, list[int], list[int]]:
    """Return a model's tokenizer, and the special ids before and after a text."""
    model, tokenizer = text_model.model, text_model.tokenizer
    if tokenizer is None:
        raise ConfigError(
            "the model has no tokenizer, so it cannot read a text: import it from a folder "
            "that has one"
        )
    if isinstance(model, Encoder):
        if tokenizer.cls_id is None or tokenizer.sep_id is None:
            raise ConfigError(
                f"the model's tokenizer, of kind {tokenizer.kind}, has no [CLS] or [SEP], "
                "which an encoder reads around a text: name another model"
            )
        return tokenizer, [tokenizer.cls_id], [tokenizer.sep_id]
    if isinstance(model, EncoderDecoder):
        end = tokenizer.end_id if tokenizer.sep_id is None else tokenizer.sep_id
        return tokenizer, [], [] if end is None else [end]
    if pool == "first":
        raise ConfigError(
            f"the first token of a {model.config.kind} sees none of the others: "
            "pool their mean, or take the last"
        )
    return tokenizer, [], []


def _encoded(tokenizer: Tokenizer, texts: Sequence[str]) -> Sequence[TokenIds]:
    if isinstance(tokenizer, BilingualTokenizer):
        return tokenizer.encode_source(texts)
    return tokenizer.encode_many([text.encode("utf-8", "surrogateescape") for text in texts])


@torch.inference_mode()
def _pooled(
    model: Transformer, rows: Sequence[Sequence[int]], pool: Pooling, normalize: bool
) -> NDArray[np.float32]:
    device = model.embedding.weight.device
    lengths = torch.tensor([len(row) for row in rows], device=device)
    longest = int(lengths.max())
    padded = [[*row, *[0] * (longest - len(row))] for row in rows]
    tokens = torch.tensor(padded, dtype=torch.long, device=device)
    mask = torch.arange(longest, device=device) < lengths[:, None]
    with evaluating(model):
        states = _states(model, tokens, mask).float()
    if pool == "mean":
        counted = mask.float()[:, :, None]
        vectors = (states * counted).sum(1) / counted.sum(1)
    else:
        places = torch.zeros_like(lengths) if pool == "first" else lengths - 1
        vectors = states[torch.arange(len(rows), device=device), places]
    if normalize:
        vectors = F.normalize(vectors, dim=-1)
    pooled: NDArray[np.float32] = vectors.cpu().numpy()
    return pooled


def _states(
    model: Transformer, tokens: Int[Tensor, "B T"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T D"]:
    """Compute final hidden states; no text sees its right padding."""
    if isinstance(model, EncoderDecoder):
        return model.encode(tokens, mask).states
    if isinstance(model, Encoder):
        return model.hidden(tokens, Layout.bidirectional(tokens, mask)).final
    return model.hidden(tokens, Layout.causal(tokens, None)).final
