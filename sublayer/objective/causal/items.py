"""The items of a decoder's test: the windows that the text is scored in."""

import math

import numpy as np
from numpy.typing import NDArray

from sublayer.data.split import Split
from sublayer.evaluation.counts import Counter
from sublayer.evaluation.items import Digest, FromItems, Items, ItemTable, Sums
from sublayer.evaluation.likelihood import Likelihood, Window

WINDOWS = "windows"
"""The name of the table."""
_UNIT = "a window: the tokens that it scores, after at least half the context but at the start"
_COUNTS = ("tokens", "bytes", "characters", "words")


def _bits_per_byte(sums: Sums) -> float:
    n_bytes = float(sums["bytes"])
    if not n_bytes:
        return math.nan
    n_bits = float(sums["nats"]) / math.log(2)
    return n_bits / n_bytes


def _loss(sums: Sums) -> float:
    nats = float(sums["nats"])
    n_tokens = float(sums["tokens"])
    return nats / n_tokens


BITS_PER_BYTE_OF_ITEMS = FromItems(WINDOWS, _bits_per_byte)
LOSS_OF_ITEMS = FromItems(WINDOWS, _loss)


def window_items(split: Split, likelihood: Likelihood) -> Items:
    """Return the nats of each window of a whole text, and the amount of text that it scores.

    A window belongs to the document of the first token that it scores. Where a lossy tokenizer made
    the ids, the bytes that were read are spread over the windows in proportion to those that their
    ids stand for.
    """
    by_window = likelihood.by_window
    assert by_window is not None, "a text was scored window by window"
    windows = by_window.windows
    firsts = np.array([window.first for window in windows])  # [N]
    stops = np.array([window.stop for window in windows])  # [N]
    assert np.array_equal(firsts[1:], stops[:-1]), "a test scores all of a text"
    bounds = np.append(firsts, stops[-1])  # [N + 1]
    counts = Counter(split).count_each(bounds)  # [N, 4]
    columns = dict(zip(_COUNTS, counts.T, strict=True))
    columns["bytes"] = _spread(columns["bytes"], likelihood.bytes, columns["tokens"])
    n_begun = np.searchsorted(split.document_starts, firsts, side="right")
    documents = n_begun - 1
    table = ItemTable(
        unit=_UNIT,
        digest=_digest(split, windows),
        columns={"nats": by_window.nats, **columns},
        documents=documents,
    )
    return Items(split.name, split.store.sha256, {WINDOWS: table})


def _digest(split: Split, windows: list[Window]) -> str:
    starts = [window.start for window in windows]
    firsts = [window.first for window in windows]
    stops = [window.stop for window in windows]
    digest = Digest(WINDOWS, split.store.sha256)
    for positions in (starts, firsts, stops):
        digest.add(np.array(positions))
    digest.add(split.ids)
    return digest.hexdigest()


def _spread(
    parts: NDArray[np.int64], total: int, otherwise: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Scale whole numbers to add up to ``total``; where all are zeros, in proportion to others."""
    if int(parts.sum()) == total:
        return parts
    # Bounds are rounded, not parts, so that the parts add up.
    bounds = np.cumsum(parts if parts.any() else otherwise)
    factor = total / bounds[-1]
    scaled = np.rint(bounds * factor).astype(np.int64)
    spread: NDArray[np.int64] = np.diff(scaled, prepend=0)
    return spread
