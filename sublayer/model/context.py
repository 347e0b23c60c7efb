"""Inputs of blocks beside hidden states: layout of a batch, visible keys, rotations, queries."""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.model.cache import KeyValues, LstmState, MemoryKeyValues


@dataclass(frozen=True)
class Ragged:
    """First query and first key of each sequence, among those of all rows.

    Rows lie one behind another, padding too, which is a sequence of its own. A query sees the keys
    of its own sequence alone, or of these the ones up to its own. Behind all starts stands the
    number of queries, or of keys.
    """

    query_starts: Int[Tensor, " N"]
    key_starts: Int[Tensor, " N"]


@dataclass(frozen=True)
class Keys:
    """The keys that the queries of a pass see.

    Under ``is_causal`` the last query sees every key, each earlier one a key less. ``mask`` is True
    where a query may attend to a key and is complete: it contains causality; one row of it stands
    for all queries. None masks nothing beyond ``is_causal``. ``ragged`` says the same as the mask
    by where sequences begin, for kernels that take that; None where it is not known.
    """

    is_causal: bool
    mask: Bool[Tensor, "B 1 T S"] | Bool[Tensor, "B 1 1 S"] | None
    ragged: Ragged | None = None


@dataclass(frozen=True)
class StepKeys:
    """The keys that the queries of a decoding step see: all, or those not hidden.

    ``hidden`` is added to scores: minus infinity at hidden keys. A step has one query for each
    head of each row, or for each hypothesis; leading axes may be folded into one.
    """

    hidden: Float[Tensor, "N 1 T S"] | None = None

    @classmethod
    def hiding(cls, hidden: Bool[Tensor, "N T S"], dtype: torch.dtype) -> "StepKeys":
        """Hide the keys at which ``hidden`` is True; ``dtype`` is that of the scores."""
        scores = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        return cls(scores.masked_fill_(hidden, -torch.inf)[:, None])


class Packing(NamedTuple):
    """Sequences as PyTorch packs them: their first tokens, the longest one's first, then the next.

    Source: ``torch.nn.utils.rnn.PackedSequence``; made without rows that are filled up, so that
    results depend on the real tokens alone.
    """

    tokens: Int[Tensor, " N"]
    """Index of each real token among all of the batch, in that order."""
    batch_sizes: Int[Tensor, " L"]
    """Number of sequences with a first token, a second and so on; on the CPU, as PyTorch asks."""
    sequences: Int[Tensor, " S"]
    """The number of each sequence that has a token, the longest first; rows, without documents."""


@dataclass(frozen=True)
class Runs:
    """Masks of real tokens and of first tokens of documents; each row begins with one."""

    is_real: Bool[Tensor, "B T"]
    starts: Bool[Tensor, "B T"]
    offsets: Int[Tensor, "B T"]
    """Of real tokens how many of their document are before them."""

    @cached_property
    def is_one_a_row(self) -> bool:
        """Check that each row is one document from its first column on, padded behind."""
        further = self.is_real[:, 1:]
        breaks = further & (self.starts[:, 1:] | ~self.is_real[:, :-1])
        return not bool(breaks.any())

    @cached_property
    def real_share(self) -> float:
        """Return the share of tokens that are real."""
        return float(self.is_real.float().mean())

    @property
    def sequences(self) -> Int[Tensor, " N"]:
        """The number of the sequence of each token of all rows; padding may be one of its own."""
        begins = self.starts.clone()
        begins[:, 0] = True
        return begins.flatten().cumsum(0) - 1

    def packing(self) -> Packing:
        """Compute the order in which the real tokens are read."""
        numbers = self.sequences
        places = self.is_real.flatten().nonzero()[:, 0]  # [N]
        of_real = numbers[places]
        offsets = self.offsets.flatten()[places]
        n_sequences = int(numbers[-1]) + 1
        lengths = torch.bincount(of_real, minlength=n_sequences)
        order = lengths.argsort(descending=True, stable=True)  # [S]
        ranks = torch.empty_like(order)
        ranks[order] = torch.arange(n_sequences, device=order.device)
        order_of_tokens = (offsets * n_sequences + ranks[of_real]).argsort()
        batch_sizes = torch.bincount(offsets).cpu()
        n_real = int((lengths > 0).sum())
        return Packing(places[order_of_tokens], batch_sizes, order[:n_real])


@dataclass(frozen=True)
class Layout:
    """Positions of the tokens of a batch, and which of them see each other.

    ``positions`` count real tokens from the start of each row (of each document, where documents
    are kept apart); one axis stands for all rows. ``n_keys`` counts the keys, those of earlier
    calls included.
    """

    positions: Int[Tensor, "B T"] | Int[Tensor, " T"]
    keys: Keys
    n_keys: int
    past_mask: Bool[Tensor, "B P"] | None = None
    """Mask of the real tokens of a past, where padding is among it or behind it."""
    runs: Runs | None = None
    """The documents of rows; None: each row is one, and all of its tokens are real."""

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
        """Lay out a batch in which each token sees itself and those before it.

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

        ``mask`` is True at real tokens; padding is seen by no real token, and results
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
        keys = Keys(False, allowed[:, None], _ragged(starts, starts))
        return cls(positions, keys, n_tokens, runs=Runs(is_real, begins, positions))

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
        first token of each document the other fields, of tokens and of queries. The layout's
        positions are the keys', and of no matter: cross entries have none.
        """
        n_keys = tokens.shape[1]
        positions = torch.arange(n_keys, device=tokens.device)
        if document_ids is not None:
            assert reader_ids is not None, "queries are of documents where keys are"
            visible = reader_ids[:, :, None] == document_ids[:, None, :]  # [B, T, S]
            visible |= ~visible.any(2, keepdim=True)
            return cls(
                positions, Keys(False, visible[:, None], _ragged(reader_starts, starts)), n_keys
            )
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
        current = document_ids[:, 1:]
        before = document_ids[:, :-1]
        starts[:, 1:] = current != before
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


@dataclass(frozen=True)
class Rotation:
    """The angles of positions: cosines, and sines that are negative in the first half."""

    cos: Float[Tensor, "*B T K"]
    sin: Float[Tensor, "*B T K"]

    def __call__(self, x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        """Rotate each pair of features ``(i, i + K/2)`` of a head by the angle of its position."""
        cos = self.cos.to(x.dtype)
        sin = self.sin.to(x.dtype)
        rotated: Tensor = _Rotate.apply(x, cos, sin)  # type: ignore[no-untyped-call]
        return rotated


class Rotations(NamedTuple):
    """The rotation of queries and that of keys: one and the same, unless a scheme makes two."""

    queries: Rotation
    keys: Rotation


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return _rotate(x, cos, sin, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return _rotate(grad, cos, sin, -1), None, None


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    """Rotate by the angles, or back by them, with one allocation: more would leave holes."""
    half = x.shape[-1] // 2
    x_first = x[..., :half]
    x_second = x[..., half:]
    sin_first = sin[..., :half]
    sin_second = sin[..., half:]
    rotated = x * cos
    rotated[..., :half].addcmul_(x_second, sin_first, value=sign)
    rotated[..., half:].addcmul_(x_first, sin_second, value=sign)
    return rotated


def rotation(
    positions: Int[Tensor, "*B T"], *, d_head: int, base: float, dtype: torch.dtype
) -> Rotation:
    """Compute rotary angles ``position * base ** (-2 i / d_head)``, broadcast over heads.

    i counts pairs of features from 0; ``d_head`` is even. Angles are in radians, computed in
    float64; cosines and sines are rounded to ``dtype``.

    Source: Su et al. 2021, eq. 15. Departure: the pairs are features i and i + d_head/2, as
    released with LLaMA.
    """
    # In float64: float32 leaves the large angles of far positions few digits behind the point.
    features = torch.arange(0, d_head, 2, dtype=torch.float64, device=positions.device)
    exponents = features / d_head
    frequencies = base**-exponents  # [K/2]
    angles = positions[..., None].double() * frequencies  # [*B, T, K/2]
    if angles.dim() == 3:
        angles = angles[:, None]  # [B, 1, T, K/2]
    cos = angles.cos().to(dtype)
    sin = angles.sin().to(dtype)
    both_cos = torch.cat([cos, cos], dim=-1)  # [*B, T, K]
    both_sin = torch.cat([-sin, sin], dim=-1)
    return Rotation(both_cos, both_sin)


@dataclass(frozen=True)
class Queries:
    """Columns of each row at which there are queries; keys and values are those of all positions.

    Rows with fewer than others are filled up with any, of which nothing is read.
    """

    places: Int[Tensor, "B Q"]

    @property
    def _rows(self) -> Int[Tensor, "B 1"]:
        return torch.arange(len(self.places), device=self.places.device)[:, None]

    def pick(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B Q D"]:
        """Return what stands at them."""
        return x[self._rows, self.places]

    def rotations(self, every: Rotations) -> Rotations:
        """Return theirs from the rotation of queries at all positions, and the keys' as it is."""
        cos, sin = (self._angles(angles) for angles in (every.queries.cos, every.queries.sin))
        return every._replace(queries=Rotation(cos, sin))

    def _angles(self, angles: Float[Tensor, "*B T K"]) -> Float[Tensor, "B 1 Q K"]:
        if angles.dim() == 2:
            return angles[self.places][:, None]
        return angles[self._rows, 0, self.places][:, None]

    def keys(self, every: Keys, n_keys: int) -> Keys:
        """Return the keys that they see, of ``n_keys``, from those that all positions see."""
        if every.mask is None:
            if not every.is_causal:
                return every
            indices = torch.arange(n_keys, device=self.places.device)
            return Keys(False, (indices <= self.places[..., None])[:, None])
        if every.mask.shape[2] == 1:
            return Keys(every.is_causal, every.mask)
        return Keys(False, every.mask[self._rows, 0, self.places][:, None])

    def bias(self, every: Float[Tensor, "N H T S"]) -> Float[Tensor, "B H Q S"]:
        """Return the bias of their scores from that of all positions."""
        rows = self._rows if len(every) > 1 else torch.zeros_like(self._rows)
        return every[rows, :, self.places].transpose(1, 2)


@dataclass(frozen=True)
class Memory:
    """The encoder's output, and which of its tokens a decoder's tokens see: all real ones.

    A decoder may have several rows for each of its rows, one after another.
    """

    states: Float[Tensor, "B S D"]
    layout: Layout
    """As of ``Layout.reading``: one row of a mask for all queries."""
    auxiliary: Float[Tensor, ""] | None = None
    """The auxiliary losses of the encoder's sub-layers."""


@dataclass(frozen=True)
class Context:
    """The layout, rotations and bias of attention, computed once a pass for all blocks."""

    layout: Layout
    rotations: Rotations | None
    """Of queries and keys; None where positions rotate neither."""
    bias: Float[Tensor, "N H T S"] | None = None
    """Bias of positions on scores, N being 1 or the rows; None where they add nothing."""
    key_values: KeyValues | MemoryKeyValues | LstmState | None = None
    """An attention's of earlier calls, or the state of an LSTM's layer: the one part that each
    sub-layer has for itself."""
    memory: Memory | None = None
    """Encoder output that cross entries read; None in a model without them."""
    queries: Queries | None = None
    """Positions at which an attention has queries; None: all."""

    def at(self, queries: Queries) -> "Context":
        """Return the context of an attention that has queries at some positions alone."""
        layout = self.layout
        return replace(
            self,
            layout=replace(layout, keys=queries.keys(layout.keys, layout.n_keys)),
            rotations=None if self.rotations is None else queries.rotations(self.rotations),
            bias=None if self.bias is None else queries.bias(self.bias),
            queries=queries,
        )
