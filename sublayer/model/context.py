"""Inputs of blocks besides hidden states: batch layout, visible keys, rotations, queries."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Literal, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from sublayer.config.stacks import AttentionForm
from sublayer.model.cache import KeyValues, LstmState, MemoryKeyValues
from sublayer.model.kernels.compiled import Turn


@dataclass(frozen=True)
class Ragged:
    """Start of each sequence's queries and keys in the concatenated rows.

    Rows are concatenated with their padding, which is a separate sequence. A query sees only keys
    of its sequence, with causality up to its position. The last start is the number of queries, or
    of keys.
    """

    query_starts: Int[Tensor, " N"]
    key_starts: Int[Tensor, " N"]


@dataclass(frozen=True)
class Keys:
    """Keys visible to the queries of a pass.

    With ``is_causal`` the last query sees every key, and each earlier query one key less. ``mask``
    is True where a query may attend to a key, causality included; a single row applies to all
    queries. None masks nothing beyond ``is_causal`` and ``reach``. ``ragged`` encodes the mask by
    sequence starts, for kernels that take them; None if unknown. ``reach`` is the largest distance
    between a query and a key it sees, in columns, which the mask includes; None: any.
    """

    is_causal: bool
    mask: Bool[Tensor, "B 1 T S"] | Bool[Tensor, "B 1 1 S"] | None
    ragged: Ragged | None = None
    reach: int | None = None

    def near(
        self, queries: Int[Tensor, "*B T 1"], keys: Int[Tensor, " S"]
    ) -> Bool[Tensor, "*B T S"]:
        """Compute the mask of causality and reach alone, from the columns of queries and keys."""
        distances = queries - keys
        if not self.is_causal:
            distances = distances.abs()
        seen = distances >= 0
        return seen if self.reach is None else seen & (distances <= self.reach)

    def band(self, n_queries: int, n_keys: int, device: torch.device) -> Bool[Tensor, "T S"]:
        """Compute the mask of causality and reach alone; the last query is at the last key."""
        columns = torch.arange(n_keys, device=device)
        return self.near(columns[n_keys - n_queries :, None], columns)


@dataclass(frozen=True)
class StepKeys:
    """Keys visible to the queries of a decoding step: all, or those that are not hidden.

    ``hidden`` is added to scores, and is minus infinity at hidden keys. A step has one query per
    head and row, or hypothesis; leading axes may be folded.
    """

    hidden: Float[Tensor, "N 1 T S"] | None = None

    @classmethod
    def hiding(cls, hidden: Bool[Tensor, "N T S"], dtype: torch.dtype) -> "StepKeys":
        """Hide the keys at which ``hidden`` is True, for scores of type ``dtype``."""
        scores = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
        return cls(scores.masked_fill_(hidden, -torch.inf)[:, None])


@dataclass(frozen=True)
class Runs:
    """Masks of real tokens and of first tokens of documents; a row begins with a document."""

    is_real: Bool[Tensor, "B T"]
    starts: Bool[Tensor, "B T"]
    offsets: Int[Tensor, "B T"]
    """Number of earlier tokens in the same document, at real tokens."""

    @cached_property
    def is_one_a_row(self) -> bool:
        """Check whether each row is one right-padded document."""
        further = self.is_real[:, 1:]
        breaks = further & (self.starts[:, 1:] | ~self.is_real[:, :-1])
        return not bool(breaks.any())

    @cached_property
    def real_share(self) -> float:
        """Return the share of real tokens."""
        return float(self.is_real.float().mean())

    @property
    def sequences(self) -> Int[Tensor, " N"]:
        """Sequence number of each token of all rows; padding may be a separate sequence."""
        begins = self.starts.clone()
        begins[:, 0] = True
        return begins.flatten().cumsum(0) - 1

    def packing(self) -> tuple[Int[Tensor, " N"], Int[Tensor, " L"], Int[Tensor, " S"]]:
        """Pack the real tokens: all first tokens, longest sequence first, all second tokens, ...

        Returns their indices among the tokens of the batch, in that order; the number of sequences
        with a first token, a second token and so on, on the CPU, as PyTorch requires; and the
        numbers of the sequences that have a token, longest first. Without documents a sequence is a
        row.

        Source: ``torch.nn.utils.rnn.PackedSequence``; built without padded rows, so that results
        depend only on real tokens.
        """
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
        return places[order_of_tokens], batch_sizes, order[:n_real]


@dataclass(frozen=True)
class Layout:
    """Positions and visibility of a batch's tokens.

    ``positions`` count real tokens from the start of each row, or of each document if documents are
    separated; a single axis applies to all rows. ``n_keys`` includes the keys of earlier calls.
    """

    positions: Int[Tensor, "B T"] | Int[Tensor, " T"]
    keys: Keys
    n_keys: int
    past_mask: Bool[Tensor, "B P"] | None = None
    """Mask of a past's real tokens, if there is padding in it or after it."""
    runs: Runs | None = None
    """Documents of rows; None: each row is one document of real tokens."""

    @property
    def key_positions(self) -> Int[Tensor, "B S"] | Int[Tensor, " S"]:
        """Return the positions of the keys, the past included.

        Without a past mask all past tokens are real: keys have positions 0, 1, 2 and so on.
        """
        if self.past_mask is not None:
            past = self.past_mask.cumsum(1) - self.past_mask.long()
            return torch.cat([past, self.positions], dim=1)
        if self.positions.shape[-1] == self.n_keys:
            return self.positions
        return torch.arange(self.n_keys, device=self.positions.device)

    @property
    def mask(self) -> Bool[Tensor, "B 1 T S"] | Bool[Tensor, "B 1 1 S"] | None:
        """Return the attention mask; None masks nothing beyond causality."""
        return self.keys.mask

    def within(self, form: AttentionForm) -> "Layout":
        """Return the layout of an executed attention: its queries and the keys that they reach.

        Of a past these are the last ``window - 1``, which a cache keeps. Distances are counted in
        columns: padding between the tokens of a row counts as well.
        """
        keys = self.keys
        reach = form.reach(is_causal=keys.is_causal)
        # An exported graph is one for all lengths, and its cache keeps all keys.
        is_fixed = not torch.compiler.is_exporting()
        if reach is None or (is_fixed and self.n_keys <= reach + 1):
            return self
        n_queries = self.positions.shape[-1]
        n_keys = n_queries + min(self.n_keys - n_queries, reach) if is_fixed else self.n_keys
        keys = replace(keys, reach=reach)
        if keys.mask is not None:
            device = keys.mask.device
            mask = keys.mask[..., -n_keys:] & keys.band(n_queries, n_keys, device)
            if not keys.is_causal:
                # A token sees itself, so that no row of the softmax is empty.
                mask |= torch.eye(n_keys, dtype=torch.bool, device=device)
            keys = replace(keys, mask=mask)
        return replace(self, keys=keys, n_keys=n_keys)

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
        """Lay out a batch with causal attention.

        ``mask`` is True at real tokens; padding, on either side, is visible only to itself.
        ``document_ids`` separates runs of equal ids, at which attention and positions restart.
        ``past`` counts the tokens of a cache, of which ``past_mask`` marks the real ones; documents
        cannot be separated after a past. ``starts`` encodes the same by the first token of each
        document and of padding (``Ragged``). Without ``mask``, ``document_ids`` and ``past_mask``
        the layout has no mask, and kernels take causality as a flag.
        """
        has_documents = document_ids is not None
        assert not past or not has_documents, "documents cannot be separated after a past"
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
        offsets = _positions(is_real, begins if has_documents else None)
        positions = n_past + offsets
        is_key = torch.cat([past_mask, is_real], dim=1)  # [B, S]
        query_indices = torch.arange(past, n_keys, device=device)[:, None]
        key_indices = torch.arange(n_keys, device=device)
        is_behind = key_indices <= query_indices  # [T, S]
        allowed = is_key[:, None, :] & is_behind  # [B, T, S]
        if document_ids is not None:
            allowed &= _same_document(begins)
        # A query at padding sees itself, so that no row of the softmax is empty.
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
        """Lay out a batch with attention to all tokens of a row, or of a document.

        ``mask`` is True at real tokens; padding is invisible to them, and its results are
        meaningless. ``document_ids`` separates runs of equal ids, at which attention and positions
        restart. ``starts`` is as in ``causal``.
        """
        n_tokens = tokens.shape[1]
        device = tokens.device
        if mask is None and document_ids is None:
            positions = torch.arange(n_tokens, device=device)
            return cls(positions, Keys(False, None), n_tokens)
        is_real = torch.ones_like(tokens, dtype=torch.bool) if mask is None else mask
        begins = _document_starts(tokens, document_ids)
        positions = _positions(is_real, None if document_ids is None else begins)
        if document_ids is None:
            allowed = _seen(is_real)
        else:
            allowed = _same_document(begins) & is_real[:, None, :]  # [B, T, T]
            # A token sees itself, so that no row of the softmax is empty.
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
        """Lay out the queries of another sequence, which see all real tokens of a row.

        ``mask`` is True at real tokens, None without padding; a row without real tokens is fully
        visible. With ``document_ids`` of tokens and ``reader_ids`` of queries, a query sees only
        its document, or the full row if it has none. ``starts`` and ``reader_starts`` encode both
        by the first token of each document. The layout's positions are those of the keys, and
        unused, since cross-attention has no positions.
        """
        n_keys = tokens.shape[1]
        positions = torch.arange(n_keys, device=tokens.device)
        if document_ids is not None:
            assert reader_ids is not None, "if keys belong to documents, queries must too"
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
    # A row of padding alone is fully visible, so that no softmax is empty.
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
    document = starts.cumsum(1)  # number of each token's document in its row
    return document[:, :, None] == document[:, None, :]


def _positions(
    is_real: Bool[Tensor, "B T"], starts: Bool[Tensor, "B T"] | None
) -> Int[Tensor, "B T"]:
    """Count the real tokens before each token in its document, or in its row."""
    before = is_real.cumsum(1) - is_real.long()  # in its row
    if starts is None:
        return before
    # Counts never decrease, so that the running maximum is that at the last document's start.
    before_document = torch.where(starts, before, 0).cummax(1).values
    return before - before_document


def _turn_halves(x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    half = sin.shape[-1] // 2
    return _rotate(x, cos, sin, sign, slice(half), slice(half, 2 * half))


def _turn_neighbours(x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    width = sin.shape[-1]
    return _rotate(x, cos, sin, sign, slice(0, width, 2), slice(1, width, 2))


def _turn_at_once(order: Tensor, x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    """Rotate by one expression, for exported graphs; ``order`` swaps the features of pairs."""
    width = sin.shape[-1]
    others = x.index_select(-1, order)
    rotated = torch.addcmul(x[..., :width] * cos[..., :width], others, sin, value=sign)
    return rotated if width == x.shape[-1] else torch.cat([rotated, x[..., width:]], -1)


def _rotate(x: Tensor, cos: Tensor, sin: Tensor, sign: int, first: slice, second: slice) -> Tensor:
    """Rotate pairs by the angles times ``sign``, with one allocation, to limit fragmentation."""
    rotated = x * cos
    rotated[..., first].addcmul_(x[..., second], sin[..., first], value=sign)
    rotated[..., second].addcmul_(x[..., first], sin[..., second], value=sign)
    return rotated


@dataclass(frozen=True)
class Rotation:
    """Cosines of rotary angles, and their sines, negated at the first feature of each pair.

    Of K features the first R are rotated; the cosines of the others are 1.
    """

    cos: Float[Tensor, "*B T K"]
    sin: Float[Tensor, "*B T R"]
    compiled: Turn | None = None
    turn: Turn = _turn_halves
    """Function that pairs the features."""

    def __call__(self, x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T K"]:
        """Rotate each pair of features of a head by the angle of its position."""
        cos, sin, turn = self.cos, self.sin, self.compiled
        if turn is None or cos.dim() != 2 or not x.requires_grad:
            cos, sin, turn = cos.to(x.dtype), sin.to(x.dtype), self.turn
        rotated: Tensor = _Rotate.apply(x, cos, sin, turn)  # type: ignore[no-untyped-call]
        return rotated


class Rotations(NamedTuple):
    """Rotations of queries and keys, identical unless a scheme distinguishes them."""

    queries: Rotation
    keys: Rotation


class _Rotate(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor, turn: Turn) -> Tensor:
        ctx.save_for_backward(cos, sin)
        ctx.turn = turn
        return turn(x, cos, sin, 1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        cos, sin = ctx.saved_tensors
        return ctx.turn(grad, cos, sin, -1), None, None, None


RotaryLayout = Literal["halves", "halves-clockwise", "interleaved", "interleaved-clockwise"]


def rotation(
    positions: Int[Tensor, "*B T"],
    *,
    d_head: int,
    base: float,
    dtype: torch.dtype,
    n_rotated: int | None = None,
    layout: RotaryLayout = "halves",
) -> Rotation:
    """Compute rotary angles ``position * base ** (-2 i / R)``, broadcast over heads.

    i counts pairs of features from 0; the first R = ``n_rotated`` features of a head are rotated,
    by default all ``d_head``, an even number. Angles are in radians, computed in float64; cosines
    and sines are rounded to ``dtype``.

    Source: Su et al. 2021, eq. 15, whose pairs are features 2 i and 2 i + 1 (``interleaved``).
    Departures, as released: pairs of features i and i + R/2 (``halves``, LLaMA), fewer features
    than a head has (GPT-NeoX), and negative angles (``clockwise``, NanoChat).
    """
    width = n_rotated or d_head
    # Computed in float64: in float32 the large angles of distant positions have few decimals.
    features = torch.arange(0, width, 2, dtype=torch.float64, device=positions.device)
    exponents = features / width
    frequencies = base**-exponents  # [R/2]
    angles = positions[..., None].double() * frequencies  # [*B, T, R/2]
    if angles.dim() == 3:
        angles = angles[:, None]  # [B, 1, T, R/2]
    cos = angles.cos().to(dtype)
    sin = angles.sin().to(dtype)
    pairs = (sin, -sin) if layout.endswith("clockwise") else (-sin, sin)
    in_halves = layout.startswith("halves")
    turn: Turn = _turn_halves if in_halves else _turn_neighbours
    if in_halves:
        both_cos = torch.cat([cos, cos], dim=-1)  # [*B, T, R]
        both_sin = torch.cat(pairs, dim=-1)
    else:
        both_cos = cos.repeat_interleave(2, dim=-1)
        both_sin = torch.stack(pairs, dim=-1).flatten(-2)
    if torch.compiler.is_exporting():
        order = torch.arange(width, device=positions.device)
        order = order.view(2, -1).flip(0) if in_halves else order.view(-1, 2).flip(1)
        turn = partial(_turn_at_once, order.flatten())
    if width < d_head:
        both_cos = F.pad(both_cos, (0, d_head - width), value=1.0)  # [*B, T, K]
    return Rotation(both_cos, both_sin, turn=turn)


@dataclass(frozen=True)
class Queries:
    """Columns of each row with a query; keys and values are computed at all positions.

    Shorter rows are padded with arbitrary columns, whose results are unused.
    """

    places: Int[Tensor, "B Q"]

    @property
    def _rows(self) -> Int[Tensor, "B 1"]:
        return torch.arange(len(self.places), device=self.places.device)[:, None]

    def pick(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B Q D"]:
        """Select the states at these columns."""
        return x[self._rows, self.places]

    def rotations(self, every: Rotations) -> Rotations:
        """Select the rotation of queries at these columns; the rotation of keys is unchanged."""
        cos, sin = every.queries.cos, every.queries.sin
        index = self.places if cos.dim() == 2 else (self._rows, 0, self.places)
        turned = replace(every.queries, cos=cos[index][:, None], sin=sin[index][:, None])
        return every._replace(queries=turned)

    def keys(self, every: Keys, n_keys: int) -> Keys:
        """Select the keys, among ``n_keys``, that are visible to these queries."""
        if every.mask is None:
            if not every.is_causal and every.reach is None:
                return every
            columns = torch.arange(n_keys, device=self.places.device)
            return Keys(False, every.near(self.places[..., None], columns)[:, None])
        if every.mask.shape[2] == 1:
            return Keys(every.is_causal, every.mask)
        return Keys(False, every.mask[self._rows, 0, self.places][:, None])

    def bias(self, every: Float[Tensor, "N H T S"]) -> Float[Tensor, "B H Q S"]:
        """Select the attention bias of these queries."""
        rows = self._rows if len(every) > 1 else torch.zeros_like(self._rows)
        return every[rows, :, self.places].transpose(1, 2)


@dataclass(frozen=True)
class Memory:
    """Encoder output, and its tokens visible to a decoder: all real ones.

    A decoder may have several consecutive rows per row of the memory.
    """

    states: Float[Tensor, "B S D"]
    layout: Layout
    """Layout as of ``Layout.reading``, with one row of a mask for all queries."""
    auxiliary: Float[Tensor, ""] | None = None
    """Auxiliary losses of the encoder's sub-layers."""


@dataclass(frozen=True)
class Context:
    """Inputs of an executed sub-layer: layout, rotations and attention bias.

    They are computed once per pass for all sub-layers, and for each form of self-attention.
    """

    layout: Layout
    rotations: Rotations | None
    """Rotations of queries and keys; None if the position scheme has none."""
    bias: Float[Tensor, "N H T S"] | None = None
    """Position bias of scores, N being 1 or the number of rows; None without a bias."""
    key_values: KeyValues | MemoryKeyValues | LstmState | None = None
    """Cached keys and values of an attention, or state of an LSTM layer."""
    memory: Memory | None = None
    """Encoder output that cross entries read; None in a model without them."""
    queries: Queries | None = None
    """Positions with queries; None: all."""
    values: list[Float[Tensor, "B G T K"]] | None = None
    """Values of the stack's first self-attention, which appends them to the empty list; None if no
    others mix them in."""
    others: Mapping[tuple[int, int], "Context"] | None = None
    """Contexts of the executed attentions that differ from this one, by block and entry; None: no
    attention does."""

    def of(self, layer: int, index: int) -> "Context":
        """Return the context of entry ``index`` of the executed block ``layer``, from 0."""
        if self.others is None:
            return self
        other = self.others.get((layer, index), self)
        return other if other.values is self.values else replace(other, values=self.values)

    def at(self, queries: Queries) -> "Context":
        """Return the context of an attention with queries only at some positions."""
        layout = self.layout
        return replace(
            self,
            layout=replace(layout, keys=queries.keys(layout.keys, layout.n_keys)),
            rotations=None if self.rotations is None else queries.rotations(self.rotations),
            bias=None if self.bias is None else queries.bias(self.bias),
            queries=queries,
        )
