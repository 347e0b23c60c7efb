"""Span corruption: pieces of a text, masks of noise, inputs and targets, and their batches."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from sublayer.config.objective import SpanObjective
from sublayer.data.batches import Boundaries, PackedBatch, Windows, pairs_in_rows
from sublayer.data.counter_rng import (
    Bits,
    Epochs,
    Purpose,
    below,
    fork,
    random_order,
    seeds,
    uniform,
)
from sublayer.data.store import Split
from sublayer.errors import DataError
from sublayer.files.arrays import AnyInts, Bools, Ints

SHORTEST = 2
"""Shortest piece that can be corrupted, in tokens: one of noise, one kept."""


@dataclass(frozen=True)
class Joined:
    """Concatenated parts of a text."""

    firsts: Ints
    """Start of each part in the text, ``[P]``."""
    bounds: Ints
    """Start of each part in the concatenation, and the end of the last, ``[P + 1]``."""

    def positions(self, places: Ints) -> Ints:
        """Map positions in the concatenation to positions in the text."""
        parts = np.searchsorted(self.bounds, places, side="right") - 1
        offsets = places - self.bounds[parts]
        return self.firsts[parts] + offsets

    @property
    def n_tokens(self) -> int:
        """Count the tokens of all parts."""
        return int(self.bounds[-1])

    def cut(self, length: int, boundaries: Boundaries) -> tuple[Ints, Ints]:
        """Cut joined documents into pieces of ``length``, the last of which may be shorter.

        Returns starts, among the joined documents, and lengths of pieces, ``[N]``. Where
        ``boundaries`` are respected, documents are cut separately, and their last pieces may be
        shorter. Pieces too short to corrupt are dropped.
        """
        bounds = self.bounds
        if boundaries == "ignore":
            bounds = bounds[[0, -1]]
        n_tokens = np.diff(bounds)  # [P]
        n_pieces = -(-n_tokens // length)  # [P]
        owners = np.repeat(np.arange(len(n_tokens)), n_pieces)  # [N]
        first_numbers = np.cumsum(n_pieces) - n_pieces  # [P]
        numbers = np.arange(len(owners)) - first_numbers[owners]
        begins = bounds[owners] + numbers * length
        lengths = np.minimum(bounds[owners + 1] - begins, length)
        is_long_enough = lengths >= SHORTEST
        return begins[is_long_enough], lengths[is_long_enough]


def whole_documents(split: Split) -> Joined:
    """Join all documents of a split in order."""
    bounds = np.append(split.document_starts, len(split.ids))
    return Joined(split.document_starts, bounds)


def shuffled_documents(split: Split, seed: int, epoch: int, chunk_tokens: int) -> Joined:
    """Join the documents of a split in an epoch's random order, each cut to ``chunk_tokens``.

    Of a longer document one chunk is used, which starts at a random multiple of ``chunk_tokens``.

    Source: Raffel et al. 2020, as released (``select_random_chunk``, ``reduce_concat_tokens``).
    Departure: there 128 documents are joined at a time, and their last piece is filled up with
    other documents; here all documents of an epoch are joined.
    """
    starts = split.document_starts
    n_tokens = np.diff(np.append(starts, len(split.ids)))
    bits = seeds(seed, Purpose.DOCUMENT_ORDER, epoch, len(starts))
    order = np.argsort(fork(bits, 0), kind="stable")
    n_chunks = -(-n_tokens // chunk_tokens)
    offsets = below(fork(bits, 1), n_chunks) * chunk_tokens
    lengths = np.minimum(n_tokens - offsets, chunk_tokens)
    firsts = starts + offsets
    bounds = np.concatenate([[0], np.cumsum(lengths[order])])
    return Joined(firsts[order], bounds)


Draw = Callable[[Bits, int, SpanObjective], Bools]
"""Function that draws noise masks ``[B, L]``, True at noise, from seeds ``[B]`` and a length L."""


def span_mask(bits: Bits, length: int, settings: SpanObjective) -> Bools:
    """Draw exactly as many spans of noise as ``settings.spans`` counts, of random lengths.

    Noise and kept tokens are divided into equally many parts, by uniformly drawn compositions.
    Parts alternate, kept tokens first: the first token is never noise, the last one always.
    """
    n_noise, n_spans = settings.spans(length)
    n_kept = length - n_noise
    # The gaps between kept tokens, then the gaps between tokens of noise.
    keys = _keys(bits, n_kept - 1 + n_noise - 1)  # [B, gaps]
    kept_parts = _composition(keys[:, : n_kept - 1], n_spans)  # [B, S]
    noise_parts = _composition(keys[:, n_kept - 1 :], n_spans)  # [B, S]
    n_rows = len(bits)
    parts = np.stack([kept_parts, noise_parts], axis=2).reshape(n_rows, 2 * n_spans)
    # A part ends where the sum of the lengths up to it ends; the last ends with the piece.
    ends = np.cumsum(parts, axis=1)[:, :-1]  # [B, 2 S - 1]
    changes = np.zeros((n_rows, length), dtype=np.bool_)
    np.put_along_axis(changes, ends, True, axis=1)
    return np.logical_xor.accumulate(changes, axis=1)


def chance_mask(bits: Bits, length: int, settings: SpanObjective) -> Bools:
    """Draw each token as noise independently, with the noise density as its probability."""
    drawn = uniform(_keys(bits, length))
    return drawn < settings.noise_density


def prefix_mask(bits: Bits, length: int, settings: SpanObjective) -> Bools:
    """Draw the length of a prefix, from 1 to ``length - 1``; all tokens after it are noise."""
    n_prefix = 1 + below(bits, length - 1)  # [B]
    return np.arange(length) >= n_prefix[:, None]


MASKS: dict[str, Draw] = {"spans": span_mask, "iid": chance_mask, "prefix": prefix_mask}
"""The masks of each kind of noise, by its name in ``sublayer.config.objective.NOISES``."""


def _keys(bits: Bits, count: int) -> Bits:
    """Return ``count`` random numbers for each seed, ``[B, count]``."""
    numbers = np.tile(np.arange(count), len(bits))
    forked = fork(np.repeat(bits, count), numbers)
    return forked.reshape(len(bits), count)


def _composition(keys: Bits, n_parts: int) -> Ints:
    """Divide tokens into parts of at least one, [B, S], uniformly among compositions.

    ``keys`` [B, G] order the G gaps between G + 1 tokens: the first S - 1 of them are cut.
    """
    n_rows, n_gaps = keys.shape
    n_cuts = n_parts - 1
    bounds = np.zeros((n_rows, n_parts + 1), dtype=np.int64)
    bounds[:, -1] = n_gaps + 1
    if n_cuts == n_gaps:
        bounds[:, 1:-1] = np.arange(1, n_parts)
    elif n_cuts:
        cut = np.argpartition(keys, n_cuts, axis=1)[:, :n_cuts]
        # The gap after token i, from 0, ends a part of i + 1 tokens.
        bounds[:, 1:-1] = np.sort(cut, axis=1) + 1
    return np.diff(bounds, axis=1)


def corrupt(
    pieces: AnyInts, mask: Bools, sentinels: Sequence[int]
) -> tuple[list[Ints], list[Ints]]:
    """Divide pieces ``[B, L]`` into inputs and targets, a row each, by a mask of the noise.

    In an input each run of noise is replaced by a sentinel, in order. The target uses the opposite
    mask: it holds the noise, and a sentinel for each run of kept tokens. Runs beyond the number of
    sentinels are not noise. With no sentinels at all, runs are dropped instead of replaced.

    Source: Raffel et al. 2020, as released (``noise_span_to_unique_sentinel``,
    ``nonnoise_span_to_unique_sentinel``).
    """
    if not sentinels:
        return _select(pieces, ~mask), _select(pieces, mask)
    mask = limit_runs(mask, len(sentinels))
    names = np.asarray(sentinels, dtype=np.int64)
    return _replace_runs(pieces, mask, names), _replace_runs(pieces, ~mask, names)


def limit_runs(mask: Bools, most: int) -> Bools:
    """Limit the runs of noise, and the runs of kept tokens, to ``most`` in each row of a mask.

    In rows with more, the last runs of noise become kept tokens.
    """
    most_runs = np.maximum(*(_begins(runs).sum(axis=1) for runs in (mask, ~mask)))  # [B]
    exceeds = most_runs > most
    if not exceeds.any():
        return mask
    limited = mask.copy()
    rows = mask[exceeds]
    # One run of noise fewer, since kept tokens may begin the row and end it.
    limited[exceeds] = rows & (np.cumsum(_begins(rows), axis=1) < most)
    return limited


def _replace_runs(pieces: AnyInts, mask: Bools, sentinels: Ints) -> list[Ints]:
    begins = _begins(mask)
    numbers = np.cumsum(begins, axis=1) - 1
    ids = pieces.astype(np.int64)
    ids[begins] = sentinels[numbers[begins]]
    return _select(ids, begins | ~mask)


def _select(ids: AnyInts, is_kept: Bools) -> list[Ints]:
    ends = np.cumsum(np.count_nonzero(is_kept, axis=1))
    return np.split(ids[is_kept].astype(np.int64), ends[:-1])


def _begins(mask: Bools) -> Bools:
    """Mark the first element of each run of True."""
    begins = mask.copy()
    begins[:, 1:] &= ~mask[:, :-1]
    return begins


@dataclass(frozen=True)
class CorruptionRule:
    """Rule that corrupts pieces into inputs and targets."""

    draw: Draw
    settings: SpanObjective
    context: int
    """Maximum length of an input in tokens, its end included."""
    raw_length: int
    """Length of a piece in tokens."""
    target_length: int
    """Maximum length of a target in tokens, its end included."""
    sentinels: tuple[int, ...]
    """Ids of the sentinels in order of use; empty where the noise uses none."""
    end_id: int
    pad_id: int
    first_id: int
    """First id that the decoder reads."""


class Pieces(NamedTuple):
    """Pieces of joined documents, some of which may be shorter than the others."""

    joined: Joined
    begins: Ints
    """Start of each piece in the joined documents, ``[N]``."""
    lengths: Ints
    """Length of each piece in tokens, ``[N]``."""
    bits: Bits
    """Seed of each piece's corruption, ``[N]``."""

    def select(self, numbers: Ints) -> "Pieces":
        """Return the pieces with the given numbers."""
        return Pieces(self.joined, self.begins[numbers], self.lengths[numbers], self.bits[numbers])


def corrupted_batch(split: Split, parts: Sequence[Pieces], rule: CorruptionRule) -> PackedBatch:
    """Corrupt pieces, at least one, into a batch with a row for each, in order.

    A target that is too long is truncated, with the end id as its last token.
    """
    examples: list[tuple[Ints, Ints]] = []
    for pieces in parts:
        sides: dict[int, tuple[Ints, Ints]] = {}
        # One length at a time: nearly all pieces are equally long.
        for length in np.unique(pieces.lengths).tolist():
            numbers = np.flatnonzero(pieces.lengths == length)
            places = pieces.begins[numbers][:, None] + np.arange(length)
            ids: AnyInts = split.ids[pieces.joined.positions(places)]
            mask = rule.draw(pieces.bits[numbers], length, rule.settings)
            corrupted = zip(*corrupt(ids, mask, rule.sentinels), strict=True)
            sides.update(zip(numbers.tolist(), corrupted, strict=True))
        examples += [sides[number] for number in range(len(pieces.begins))]
    most = rule.target_length - 1
    sources = [np.append(source, rule.end_id) for source, _ in examples]
    targets = [np.append(target[:most], rule.end_id) for _, target in examples]
    return pairs_in_rows(sources, targets, pad_id=rule.pad_id, first_id=rule.first_id)


class RandomPieces:
    """Batches of ``batch_sequences`` corrupted pieces that begin at random.

    Each begins at a uniform position of the split; in a weighted mixture a source is drawn by its
    weight, then a position within it.

    Raises DataError where the split, or a weighted source of it, has no piece.
    """

    lengths_vary = False

    def __init__(
        self, split: Split, rule: CorruptionRule, *, batch_sequences: int, seed: int
    ) -> None:
        self.split = split
        self.rule = rule
        self._seed = seed
        split.check_length(rule.raw_length, "objective.raw_length")
        # A piece also contains the target of a window's last token.
        context = rule.raw_length - 1
        self._windows = Windows(split, context=context, batch_sequences=batch_sequences, seed=seed)
        self._text = whole_documents(split)

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """Return rows ``rank``, ``rank + world``, ... of the global batch of a step (0-based)."""
        begins = self._windows.starts(step)
        lengths = np.full_like(begins, self.rule.raw_length)
        bits = seeds(self._seed, Purpose.NOISE, step, len(begins))
        rows = slice(rank, None, world)
        pieces = Pieces(self._text, begins[rows], lengths[rows], bits[rows])
        return corrupted_batch(self.split, [pieces], self.rule)

    def n_tokens(self, step: int) -> int:
        """Count the tokens of the global batch, a full context per row."""
        return self._windows.batch_sequences * self.rule.context

    def notes(self) -> list[str]:
        """Return no notes: no part of the split is left out."""
        return []


class EpochPieces:
    """Batches of ``batch_sequences`` corrupted pieces, each used once per epoch.

    In every epoch all documents, or a chunk of each (``shuffled_documents``), are joined in a new
    order and cut into pieces, which are used in random order. With ``boundaries`` respected,
    documents are cut separately, and the last piece of each may be shorter; else a remainder of the
    epoch that is shorter than a piece is not used.

    Raises DataError where the split has no piece.
    """

    def __init__(
        self,
        split: Split,
        rule: CorruptionRule,
        *,
        batch_sequences: int,
        seed: int,
        boundaries: Boundaries,
        chunk_tokens: int,
    ) -> None:
        self.split = split
        self.rule = rule
        self.lengths_vary = boundaries == "respect"
        self._batch_sequences = batch_sequences
        self._seed = seed
        self._boundaries: Boundaries = boundaries
        self._chunk_tokens = chunk_tokens
        self._epochs = Epochs(self._make_epoch, lambda pieces: len(pieces.bits))
        if self.n_pieces(0) == 0:
            if boundaries == "ignore":
                split.check_length(rule.raw_length, "objective.raw_length")
            raise DataError(
                f"the {split.name} split of {' and '.join(split.sources)} gives no piece that can "
                "be corrupted: give longer documents, a larger objective.chunk_tokens or a smaller "
                "data.context"
            )

    def batch(self, step: int, rank: int = 0, world: int = 1) -> PackedBatch:
        """Return rows ``rank``, ``rank + world``, ... of the global batch of a step (0-based)."""
        rows = step * self._batch_sequences + np.arange(self._batch_sequences)
        rows = rows[rank::world]
        # A batch may end one epoch, or several short ones, and begin the next.
        first_epoch, last_epoch = (self._epochs.locate(int(row))[0] for row in rows[[0, -1]])
        parts = []
        for epoch in range(first_epoch, last_epoch + 1):
            begin, end = self._epochs.ends[epoch : epoch + 2]
            numbers = rows[(rows >= begin) & (rows < end)] - begin
            if len(numbers):
                parts.append(self._epochs.plan(epoch).select(numbers))
        return corrupted_batch(self.split, parts, self.rule)

    def n_tokens(self, step: int) -> int:
        """Count the tokens of the global batch, a full context per row."""
        return self._batch_sequences * self.rule.context

    def n_pieces(self, epoch: int) -> int:
        """Count the pieces of an epoch, 0-based: epochs may differ by a few."""
        return len(self._epochs.plan(epoch).bits)

    def notes(self) -> list[str]:
        """Return a note on omitted text, if documents are longer than a chunk."""
        starts = self.split.document_starts
        n_tokens = np.diff(np.append(starts, len(self.split.ids)))
        n_long = np.count_nonzero(n_tokens > self._chunk_tokens)
        if not n_long:
            return []
        return [
            f"an epoch uses one chunk of {self._chunk_tokens:,} tokens (objective.chunk_tokens) of "
            f"each longer document: {n_long:,} of the {self.split.name} split"
        ]

    def _make_epoch(self, epoch: int) -> Pieces:
        joined = shuffled_documents(self.split, self._seed, epoch, self._chunk_tokens)
        begins, lengths = joined.cut(self.rule.raw_length, self._boundaries)
        if self._boundaries == "ignore":
            # Only the last may be shorter.
            is_whole = lengths == self.rule.raw_length
            begins, lengths = begins[is_whole], lengths[is_whole]
        order = random_order(self._seed, Purpose.WINDOW_ORDER, epoch, len(begins))
        bits = seeds(self._seed, Purpose.NOISE, epoch, len(begins))
        return Pieces(joined, begins, lengths, bits).select(order)


class ScoredPieces:
    """Batches of the pieces of a split, always the same ones, for scoring.

    At most ``most`` pieces are scored, spread evenly; None: all. Pieces are equally long, except
    the last of the text or, where ``boundaries`` are respected, of each document.

    Raises DataError where the split has no piece.
    """

    def __init__(
        self,
        split: Split,
        rule: CorruptionRule,
        *,
        batch_sequences: int,
        boundaries: Boundaries,
        most: int | None = None,
    ) -> None:
        self.split = split
        self.rule = rule
        self._batch_sequences = batch_sequences
        joined = whole_documents(split)
        begins, lengths = joined.cut(rule.raw_length, boundaries)
        n_pieces = len(begins)
        if n_pieces == 0:
            raise DataError(
                f"the {split.name} split of {' and '.join(split.sources)} has no document of two "
                "tokens, the fewest that can be corrupted: give a longer text"
            )
        bits = seeds(_SCORING_SEED, Purpose.NOISE, 0, n_pieces)
        self.pieces = Pieces(joined, begins, lengths, bits)
        if most is not None and most < n_pieces:
            numbers = np.linspace(0, n_pieces - 1, max(1, most)).round().astype(np.int64)
            self.pieces = self.pieces.select(numbers)

    @property
    def n_batches(self) -> int:
        """Count the batches."""
        return -(-len(self.pieces.bits) // self._batch_sequences)

    def batch(self, number: int) -> PackedBatch:
        """Return a batch by its number, from 0."""
        first = number * self._batch_sequences
        last = min(first + self._batch_sequences, len(self.pieces.bits))
        return corrupted_batch(self.split, [self.pieces.select(np.arange(first, last))], self.rule)

    @property
    def documents(self) -> Ints:
        """Return the number of the document in which each piece begins, ``[N]``."""
        return self.split.documents_at(self.pieces.joined.positions(self.pieces.begins))


_SCORING_SEED = 0
"""Seed of the corruption on which every model is scored, whatever its own seed and step."""
