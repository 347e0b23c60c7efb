"""The items of a decoder's test: the windows that the text is scored in."""

import math

import numpy as np
from numpy.typing import NDArray

from sublayer.data.split import Split
from sublayer.evaluation.items import Digest, FromItems, Items, ItemTable, Sums
from sublayer.evaluation.likelihood import Counter, Likelihood, Window

WINDOWS = "windows"
"""The name of the table."""
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


def window_items(split: Split, likelihood: Likelihood, *, context: int, stride: int) -> Items:
    """Return the nats of each window of a text, and the amount of text that it scores.

    Of a whole text, adjacent windows that together score half a context are one item. A window
    belongs to the document of the first token that it scores. Where a lossy tokenizer made
    the ids, the bytes that were read are spread over the windows in proportion to those that their
    ids stand for.
    """
    by_window = likelihood.by_window
    assert by_window is not None, "a text was scored window by window"
    windows = by_window.windows
    firsts = np.array([window.first for window in windows])  # [N]
    stops = np.array([window.stop for window in windows])  # [N]
    nats = by_window.nats
    is_whole = np.array_equal(firsts[1:], stops[:-1])
    n_together = max(1, (context // 2) // stride) if is_whole else 1
    counter = Counter(split)
    if is_whole:
        starts = np.arange(0, len(windows), n_together)
        firsts = firsts[starts]  # [N], of items from here on
        nats = np.add.reduceat(nats, starts)
        bounds = np.append(firsts, stops[-1])  # [N + 1]
        counts = counter.count_each(bounds)  # [N, 4]
    else:
        each = [counter.count(window.first, window.stop) for window in windows]
        counts = np.array([[getattr(count, name) for name in _COUNTS] for count in each])
    columns = dict(zip(_COUNTS, counts.T, strict=True))
    columns["bytes"] = _spread(columns["bytes"], likelihood.bytes, columns["tokens"])
    n_begun = np.searchsorted(split.document_starts, firsts, side="right")
    documents = n_begun - 1
    table = ItemTable(
        unit=_unit(context, stride, n_together),
        digest=_digest(split, windows),
        columns={"nats": nats, **columns},
        documents=documents,
    )
    return Items(split.name, split.store.sha256, {WINDOWS: table})


def _unit(context: int, stride: int, n_together: int) -> str:
    what = "a window" if n_together == 1 else f"{n_together} adjacent windows"
    whose = "it scores" if n_together == 1 else "they score"
    behind = "half the context" if stride == max(1, context // 2) else f"{context + 1 - stride}"
    if stride == 1:
        behind = "the full context"
    return f"{what}: the tokens that {whose}, after at least {behind} but at the start"


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
