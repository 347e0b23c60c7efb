"""What a batch looks like to the model: positions, causality and the attention mask, made once per forward pass."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor


@dataclass(frozen=True)
class Layout:
    """Where the tokens of a batch stand and which of them see each other.

    ``positions`` count real tokens from the start of each row (of each document, where documents are kept apart); one
    axis stands for all rows. ``mask`` is True where a query may attend to a key and is complete: it contains causality;
    one row of it stands for all queries. None masks nothing beyond ``is_causal``, under which a query sees the keys up
    to its own place, the last query all.
    ``n_keys`` counts the keys, those of earlier calls included.
    """

    positions: Int[Tensor, "B T"] | Int[Tensor, " T"]
    is_causal: bool
    mask: Bool[Tensor, "B 1 T S"] | Bool[Tensor, "B 1 1 S"] | None
    n_keys: int

    @classmethod
    def causal(
        cls,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        document_ids: Int[Tensor, "B T"] | None = None,
        past: int = 0,
        past_mask: Bool[Tensor, "B P"] | None = None,
    ) -> "Layout":
        """Lay out a batch in which each token sees itself and what is before it.

        ``mask`` is True at real tokens; padding, on either side, is seen by nothing but itself. ``document_ids`` keep
        apart runs of equal ids: attention and positions restart with each. ``past`` counts the tokens that a cache
        holds, of which ``past_mask`` tells the real ones; documents cannot be kept apart behind a past.
        """
        assert not past or document_ids is None, "documents are kept apart only where there is no past"
        n_queries, device = tokens.shape[1], tokens.device
        n_keys = past + n_queries
        if mask is None and document_ids is None and past_mask is None:
            return cls(torch.arange(past, n_keys, device=device), True, None, n_keys)
        is_real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        if past_mask is None:
            past_mask = is_real.new_ones(tokens.shape[0], past)
        starts = _document_starts(tokens, document_ids)
        positions = past_mask.sum(1, keepdim=True) + _positions(is_real, starts)
        is_key = torch.cat([past_mask, is_real], dim=1)  # [B, S]
        query_places = torch.arange(past, n_keys, device=device)[:, None]
        key_places = torch.arange(n_keys, device=device)
        allowed = is_key[:, None, :] & (key_places <= query_places)  # [B, T, S]
        if document_ids is not None:
            document = starts.cumsum(1)
            allowed &= document[:, :, None] == document[:, None, :]
        # A padded query sees itself, so that no row of the softmax is empty.
        allowed |= key_places == query_places
        return cls(positions, True, allowed[:, None], n_keys)

    @classmethod
    def bidirectional(
        cls,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        document_ids: Int[Tensor, "B T"] | None = None,
    ) -> "Layout":
        """Lay out a batch in which each token sees all of its row, or of its document.

        ``mask`` is True at real tokens; padding is seen by no real token, and what is computed there means nothing.
        ``document_ids`` keep apart runs of equal ids: attention and positions restart with each.
        """
        n_tokens, device = tokens.shape[1], tokens.device
        if mask is None and document_ids is None:
            return cls(torch.arange(n_tokens, device=device), False, None, n_tokens)
        is_real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        starts = _document_starts(tokens, document_ids)
        positions = _positions(is_real, starts)
        if document_ids is None:
            allowed = _seen(is_real)
        else:
            document = starts.cumsum(1)
            allowed = (document[:, :, None] == document[:, None, :]) & is_real[:, None, :]
            allowed |= torch.eye(n_tokens, dtype=torch.bool, device=device)
        return cls(positions, False, allowed[:, None], n_tokens)

    @classmethod
    def reading(cls, tokens: Int[Tensor, "B S"], mask: Bool[Tensor, "B S"] | None = None) -> "Layout":
        """Lay out queries of another sequence, each of which sees all real tokens of a row."""
        n_keys = tokens.shape[1]
        places = torch.arange(n_keys, device=tokens.device)
        return cls(places, False, None if mask is None else _seen(mask)[:, None], n_keys)


def _seen(is_real: Bool[Tensor, "B S"]) -> Bool[Tensor, "B 1 S"]:
    # A row of padding alone is seen whole, so that no softmax is empty.
    return (is_real | ~is_real.any(1, keepdim=True))[:, None]


def _document_starts(tokens: Int[Tensor, "B T"], document_ids: Int[Tensor, "B T"] | None) -> Bool[Tensor, "B T"]:
    starts = torch.zeros_like(tokens, dtype=torch.bool)
    if document_ids is not None:
        starts[:, 1:] = document_ids[:, 1:] != document_ids[:, :-1]
    return starts


def _positions(is_real: Bool[Tensor, "B T"], starts: Bool[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Count the real tokens before each token in its document."""
    before = is_real.cumsum(1) - is_real.long()
    before_document = torch.where(starts, before, 0).cummax(1).values
    return before - before_document
