"""The layout of a batch: positions, causality and the attention mask, made once a forward pass."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sublayer.model.context.keys import Keys
from sublayer.model.context.ragged import Ragged
from sublayer.model.context.runs import Runs


@dataclass(frozen=True)
class Layout:
    """Where the tokens of a batch stand and which of them see each other.

    ``positions`` count real tokens from the start of each row (of each document, where documents
    are kept apart); one axis stands for all rows. ``n_keys`` counts the keys, those of earlier
    calls included.
    """

    positions: Int[Tensor, "B T"] | Int[Tensor, " T"]
    keys: Keys
    n_keys: int
    past_mask: Bool[Tensor, "B P"] | None = None
    """Which tokens of a past are real, where padding is among it or behind it."""
    runs: Runs | None = None
    """The documents of rows in which a token sees what is before it; None: each row is one, and
    all of its tokens are real."""

    @property
    def key_positions(self) -> Int[Tensor, "B S"] | Int[Tensor, " S"]:
        """Return the positions of the keys, those of the past included.

        Without a mask of the past all of its tokens are real: keys stand at 0, 1, 2 and so on.
        """
        if self.past_mask is not None:
            past = self.past_mask.cumsum(1) - self.past_mask.long()
            return torch.cat([past, self.positions], dim=1)
        if self.positions.shape[-1] == self.n_keys:
            return self.positions
        return torch.arange(self.n_keys, device=self.positions.device)

    @property
    def mask(self) -> Bool[Tensor, "B 1 T S"] | Bool[Tensor, "B 1 1 S"] | None:
        """Return where a query may attend to a key; None masks nothing beyond causality."""
        return self.keys.mask

    @classmethod
    def causal(
        cls,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        document_ids: Int[Tensor, "B T"] | None = None,
        past: int = 0,
        past_mask: Bool[Tensor, "B P"] | None = None,
        starts: Int[Tensor, " N"] | None = None,
    ) -> "Layout":
        """Lay out a batch in which each token sees itself and what is before it.

        ``mask`` is True at real tokens; padding, on either side, is seen by nothing but itself.
        ``document_ids`` keep apart runs of equal ids: attention and positions restart with each.
        ``past`` counts the tokens that a cache holds, of which ``past_mask`` tells the real ones;
        documents cannot be kept apart behind a past. ``starts`` says by the first token of each
        document and of the padding what these say (``Ragged``). Without ``mask``,
        ``document_ids`` and ``past_mask`` the layout has no mask: kernels take causality as a flag.
        """
        has_documents = document_ids is not None
        assert not past or not has_documents, "documents are kept apart only where there is no past"
        device = tokens.device
        n_keys = past + tokens.shape[1]
        if mask is None and document_ids is None and past_mask is None:
            positions = torch.arange(past, n_keys, device=device)
            return cls(positions, Keys(True, None), n_keys)
        is_real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        if past_mask is None:
            past_mask = is_real.new_ones(tokens.shape[0], past)
        begins = _document_starts(tokens, document_ids)
        n_past = past_mask.sum(1, keepdim=True)  # [B, 1]
        offsets = _positions(is_real, begins)
        positions = n_past + offsets
        is_key = torch.cat([past_mask, is_real], dim=1)  # [B, S]
        query_indices = torch.arange(past, n_keys, device=device)[:, None]
        key_indices = torch.arange(n_keys, device=device)
        is_behind = key_indices <= query_indices  # [T, S]
        allowed = is_key[:, None, :] & is_behind  # [B, T, S]
        if document_ids is not None:
            allowed &= _same_document(begins)
        # A padded query sees itself, so that no row of the softmax is empty.
        allowed |= key_indices == query_indices
        runs = None if mask is None and document_ids is None else Runs(is_real, begins, offsets)
        keys = Keys(True, allowed[:, None], _ragged(starts, starts))
        return cls(positions, keys, n_keys, past_mask, runs)

    @classmethod
    def bidirectional(
        cls,
        tokens: Int[Tensor, "B T"],
        mask: Bool[Tensor, "B T"] | None = None,
        document_ids: Int[Tensor, "B T"] | None = None,
        starts: Int[Tensor, " N"] | None = None,
    ) -> "Layout":
        """Lay out a batch in which each token sees all of its row, or of its document.

        ``mask`` is True at real tokens; padding is seen by no real token, and what is computed
        there means nothing. ``document_ids`` keep apart runs of equal ids: attention and positions
        restart with each. ``starts`` as in ``causal``.
        """
        n_tokens = tokens.shape[1]
        device = tokens.device
        if mask is None and document_ids is None:
            positions = torch.arange(n_tokens, device=device)
            return cls(positions, Keys(False, None), n_tokens)
        is_real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        begins = _document_starts(tokens, document_ids)
        positions = _positions(is_real, begins)
        if document_ids is None:
            allowed = _seen(is_real)
        else:
            allowed = _same_document(begins) & is_real[:, None, :]  # [B, T, T]
            # Each sees itself, so that no row of the softmax is empty.
            allowed |= torch.eye(n_tokens, dtype=torch.bool, device=device)
        return cls(positions, Keys(False, allowed[:, None], _ragged(starts, starts)), n_tokens)

    @classmethod
    def reading(
        cls,
        tokens: Int[Tensor, "B S"],
        mask: Bool[Tensor, "B S"] | None = None,
        document_ids: Int[Tensor, "B S"] | None = None,
        reader_ids: Int[Tensor, "B T"] | None = None,
        starts: Int[Tensor, " N"] | None = None,
        reader_starts: Int[Tensor, " N"] | None = None,
    ) -> "Layout":
        """Lay out queries of another sequence, each of which sees all real tokens of a row.

        ``mask`` is True at real tokens, None where all are; a row without any is seen whole. With
        ``document_ids`` of the tokens and ``reader_ids`` of the queries each query sees its own
        document alone; one that has none sees the row. ``starts`` and ``reader_starts`` say by the
        first token of each document what the others say, of tokens and of queries. The layout's
        positions are the keys', and of no matter: cross entries have none.
        """
        n_keys = tokens.shape[1]
        positions = torch.arange(n_keys, device=tokens.device)
        if document_ids is not None:
            assert reader_ids is not None, "queries are of documents where keys are"
            own = reader_ids[:, :, None] == document_ids[:, None, :]  # [B, T, S]
            own |= ~own.any(2, keepdim=True)
            return cls(positions, Keys(False, own[:, None], _ragged(reader_starts, starts)), n_keys)
        if mask is None:
            return cls(positions, Keys(False, None), n_keys)
        seen = _seen(mask)[:, None]  # [B, 1, 1, S]
        return cls(positions, Keys(False, seen, _ragged(reader_starts, starts)), n_keys)


def _ragged(queries: Int[Tensor, " N"] | None, keys: Int[Tensor, " N"] | None) -> Ragged | None:
    return None if queries is None or keys is None else Ragged(queries, keys)


def _seen(is_real: Bool[Tensor, "B S"]) -> Bool[Tensor, "B 1 S"]:
    # A row of padding alone is seen whole, so that no softmax is empty.
    is_empty = ~is_real.any(1, keepdim=True)  # [B, 1]
    return (is_real | is_empty)[:, None]


def _document_starts(
    tokens: Int[Tensor, "B T"], document_ids: Int[Tensor, "B T"] | None
) -> Bool[Tensor, "B T"]:
    starts = torch.zeros_like(tokens, dtype=torch.bool)
    if document_ids is not None:
        own = document_ids[:, 1:]
        before = document_ids[:, :-1]
        starts[:, 1:] = own != before
    return starts


def _same_document(starts: Bool[Tensor, "B T"]) -> Bool[Tensor, "B T T"]:
    document = starts.cumsum(1)  # the number of each token's document in its row
    return document[:, :, None] == document[:, None, :]


def _positions(is_real: Bool[Tensor, "B T"], starts: Bool[Tensor, "B T"]) -> Int[Tensor, "B T"]:
    """Count the real tokens before each token in its document."""
    before = is_real.cumsum(1) - is_real.long()  # in its row
    # Counts only grow, so that the running maximum is that of the last document's start.
    before_document = torch.where(starts, before, 0).cummax(1).values
    return before - before_document
