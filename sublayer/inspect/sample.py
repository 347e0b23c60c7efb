"""A sample of a text for what is measured inside a model: whole windows or lines, evenly spread."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy.typing import NDArray
from torch import Tensor

from sublayer.data.batches import IGNORED
from sublayer.data.split import Split
from sublayer.data.translation_batches import TranslationBatches
from sublayer.errors import DataError


@dataclass(frozen=True)
class Sample:
    """Rows of tokens that a model reads side by side.

    ``mask`` is True at real tokens; None where all are. ``document_ids`` numbers the documents that attention and
    positions must not cross; None where they may.
    """

    tokens: Int[Tensor, "B T"]
    mask: Bool[Tensor, "B T"] | None = None
    document_ids: Int[Tensor, "B T"] | None = None

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def __getitem__(self, rows: slice) -> "Sample":
        """Give rows, without what pads all of them."""
        width = self.tokens.shape[1] if self.mask is None else int(self.mask[rows].any(0).nonzero().max()) + 1
        return Sample(*(None if each is None else each[rows, :width] for each in self._all()))  # type: ignore[arg-type]

    def to(self, device: torch.device) -> "Sample":
        """Copy to a device."""
        return Sample(*(None if each is None else each.to(device) for each in self._all()))  # type: ignore[arg-type]

    @property
    def n_tokens(self) -> int:
        """Number of real tokens."""
        return self.tokens.numel() if self.mask is None else int(self.mask.sum())

    def _all(self) -> tuple[Tensor, Tensor | None, Tensor | None]:
        return self.tokens, self.mask, self.document_ids


def spread_windows(split: Split, *, context: int, max_tokens: int, respect_boundaries: bool = False) -> Sample:
    """Take evenly spread windows of ``context`` tokens, without overlap.

    They hold ``max_tokens`` at most, and are at least one; they hold the text alone, without the tokens that some
    encoders expect around it. ``respect_boundaries`` keeps attention and positions inside documents.

    Raises DataError where the text is shorter than a window.
    """
    n_whole = len(split.ids) // context
    if n_whole == 0:
        raise DataError(
            f"{' and '.join(split.sources)} gives {len(split.ids):,} tokens, fewer than a window of {context:,}: "
            "give a longer text"
        )
    n_kept = min(n_whole, max(1, max_tokens // context))
    firsts = np.arange(n_kept) * n_whole // n_kept * context
    places = firsts[:, None] + np.arange(context)  # [B, T]
    tokens = torch.from_numpy(np.asarray(split.ids[places], dtype=np.int64))
    if not respect_boundaries:
        return Sample(tokens)
    of_place = np.searchsorted(split.document_starts, places, side="right")
    return Sample(tokens, document_ids=torch.from_numpy(of_place.astype(np.int64)))


def spread_pairs(batches: TranslationBatches, *, max_tokens: int) -> tuple[Sample, Sample]:
    """Take evenly spread pairs, at least one, that hold about ``max_tokens``: sources, and what a decoder reads.

    The shortest come first.
    """
    n_kept = min(batches.n_pairs, max(1, int(max_tokens / batches.lengths.sum(1).mean())))
    kept = np.arange(n_kept) * batches.n_pairs // n_kept
    pairs = batches.pairs(kept[np.argsort(batches.lengths[kept].sum(1), kind="stable")])
    is_read = pairs.labels != IGNORED
    return Sample(pairs.source, pairs.source_mask), Sample(pairs.target, None if is_read.all() else is_read)


def spread_rows(rows: Sequence[NDArray[np.integer]], *, pad_id: int, max_tokens: int) -> Sample:
    """Take evenly spread rows of tokens, at least one, that hold about ``max_tokens``, the shortest first."""
    lengths = np.array([len(row) for row in rows])
    n_kept = min(len(rows), max(1, int(max_tokens / lengths.mean())))
    kept = np.arange(n_kept) * len(rows) // n_kept
    kept = kept[np.argsort(lengths[kept], kind="stable")]
    tokens = np.full((n_kept, lengths[kept].max()), pad_id, dtype=np.int64)
    for place, number in enumerate(kept.tolist()):
        tokens[place, : lengths[number]] = rows[number]
    mask = np.arange(tokens.shape[1]) < lengths[kept, None]
    return Sample(torch.from_numpy(tokens), None if mask.all() else torch.from_numpy(mask))
