"""Evenly spread samples of a text, windows or lines, for measurements inside a model."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from torch import Tensor

from sublayer.config.stacks import StackShape
from sublayer.data.arrays import AnyInts, Ints
from sublayer.data.batches import PackedBatch
from sublayer.data.span import ScoredPieces, corrupted_batch
from sublayer.data.store import Split
from sublayer.data.translation_batches import TranslationBatches
from sublayer.errors import DataError
from sublayer.model.context import Layout


@dataclass(frozen=True)
class Sample:
    """A batch of token rows, right-padded."""

    tokens: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"] | None = None
    """True at real tokens; None where all are."""
    document_ids: Int[Tensor, "B T"] | None = None
    """Numbers of the documents that attention and positions must not cross; None: they may."""

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def __getitem__(self, rows: slice) -> "Sample":
        """Return rows, without all-padding columns."""
        width = self.tokens.shape[1]
        if self.mask is not None:
            width = int(self.mask[rows].any(0).nonzero().max()) + 1
        return self._each(lambda values: values[rows, :width])

    def to(self, device: torch.device) -> "Sample":
        """Copy to a device."""
        return self._each(lambda values: values.to(device))

    def _each(self, change: Callable[[Tensor], Tensor]) -> "Sample":
        """Map the tokens, and the mask and document ids if present."""
        mask, ids = (
            None if values is None else change(values) for values in (self.mask, self.document_ids)
        )
        return Sample(change(self.tokens), mask, ids)

    @property
    def n_tokens(self) -> int:
        """Total number of real tokens."""
        if self.mask is None:
            return self.tokens.numel()
        return int(self.mask.sum())

    @property
    def is_real(self) -> Bool[Tensor, "B T"]:
        """True at real tokens; never None."""
        if self.mask is None:
            return torch.ones_like(self.tokens, dtype=torch.bool)
        return self.mask

    def layout(self, shape: StackShape) -> Layout:
        """Lay out the rows as a stack of this shape reads them."""
        lay_out = Layout.causal if shape.is_causal else Layout.bidirectional
        return lay_out(self.tokens, self.mask, self.document_ids)


def spread_windows(
    split: Split, *, context: int, max_tokens: int, respect_boundaries: bool = False
) -> Sample:
    """Take evenly spread windows of ``context`` tokens, without overlap, in the order of the text.

    At least one window; more have at most ``max_tokens`` tokens in total. They lack the special
    tokens that some encoders expect. ``respect_boundaries`` keeps attention and positions inside
    documents.

    Raises DataError where the text is shorter than a window.
    """
    n_whole = len(split.ids) // context
    if n_whole == 0:
        raise DataError(
            f"{' and '.join(split.sources)} gives {len(split.ids):,} tokens, "
            f"fewer than a window of {context:,}: "
            "give a longer text"
        )
    n_windows = min(n_whole, max(1, max_tokens // context))
    starts = _spread(n_whole, n_windows) * context  # [B]
    positions = starts[:, None] + np.arange(context)  # [B, T]
    ids = np.asarray(split.ids[positions], dtype=np.int64)
    tokens = torch.from_numpy(ids)
    if not respect_boundaries:
        return Sample(tokens)
    numbers = np.searchsorted(split.document_starts, positions, side="right")
    document_ids = torch.from_numpy(numbers.astype(np.int64))
    return Sample(tokens, document_ids=document_ids)


def spread_pairs(batches: TranslationBatches, *, max_tokens: int) -> tuple[Sample, Sample]:
    """Take evenly spread pairs, at least one, of about ``max_tokens`` on both sides.

    Returns sources with their ends, and decoder inputs: the first token, and the target without its
    end. Shortest pairs come first, so that batches have little padding.
    """
    lengths = batches.lengths.sum(1)  # [N], of both sides
    chosen = _spread_by_length(lengths, max_tokens)
    return _both_sides(batches.pairs(chosen))


def corrupted_rows(pieces: ScoredPieces) -> tuple[Sample, Sample]:
    """Take all pieces of a text, with their gaps, and the decoder inputs.

    A decoder input is the first token, and the target without its end.
    """
    return _both_sides(corrupted_batch(pieces.split, [pieces.pieces], pieces.rule))


def _both_sides(batch: PackedBatch) -> tuple[Sample, Sample]:
    assert batch.written is not None, "a decoder writes"
    read = Sample(batch.read.tokens, batch.read.mask)
    return read, Sample(batch.written.tokens, batch.written.mask)


def spread_rows(rows: Sequence[AnyInts], *, pad_id: int, max_tokens: int) -> Sample:
    """Take evenly spread rows, at least one, of about ``max_tokens``, the shortest first.

    Rows are right-padded with ``pad_id`` to the longest.
    """
    all_lengths = np.array([len(row) for row in rows])
    indices = _spread_by_length(all_lengths, max_tokens)  # [B]
    lengths = all_lengths[indices]
    width = lengths.max()
    tokens = np.full((len(indices), width), pad_id, dtype=np.int64)  # [B, T]
    for row_number, index in enumerate(indices.tolist()):
        tokens[row_number, : lengths[row_number]] = rows[index]
    is_real = np.arange(width) < lengths[:, None]  # [B, T]
    mask = None if is_real.all() else torch.from_numpy(is_real)
    return Sample(torch.from_numpy(tokens), mask)


def _spread_by_length(lengths: Ints, max_tokens: int) -> Ints:
    """Choose evenly spread items of about ``max_tokens`` in total, shortest first."""
    n_wanted = int(max_tokens / lengths.mean())
    n_chosen = min(len(lengths), max(1, n_wanted))
    chosen = _spread(len(lengths), n_chosen)
    by_length = np.argsort(lengths[chosen], kind="stable")
    return chosen[by_length]


def _spread(n_items: int, n_chosen: int) -> Ints:
    return np.arange(n_chosen) * n_items // n_chosen
