"""Training windows: the global batch is a pure function of (seed, step)."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor

from sublayer.data.draws import Purpose, roots, uniform
from sublayer.data.split import Split
from sublayer.errors import ConfigError

IGNORED = -1
"""The target of a position that does not count."""

Mode = Literal["random", "shuffled"]
Boundaries = Literal["ignore", "respect"]


@runtime_checkable
class AnyBatch(Protocol):
    """What training needs to know of a batch: that it has rows, which micro-batches are slices of."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice) -> "AnyBatch": ...

    def to(self, device: torch.device) -> "AnyBatch":
        """Copy to a device, without waiting for the copy."""


@runtime_checkable
class Batches(Protocol):
    """The batches that a run trains on: the global batch is a pure function of (seed, step)."""

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
        """Give a process its share of the global batch of optimizer step ``step`` (0-based)."""

    def n_tokens(self, step: int) -> int:
        """Count the tokens of the global batch of a step."""


@dataclass(frozen=True)
class Batch:
    """Windows and what follows each of their tokens.

    ``targets`` holds the next token, or -1 where a position does not count, ``further`` those after it: two ahead and
    so on; None where one is enough. ``document_ids`` numbers the documents that attention and positions must not
    cross; None where they may.
    """

    tokens: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]
    document_ids: Int[Tensor, "B T"] | None = None
    further: Int[Tensor, "A B T"] | None = None

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def __getitem__(self, rows: slice) -> "Batch":
        document_ids = None if self.document_ids is None else self.document_ids[rows]
        further = None if self.further is None else self.further[:, rows]
        return Batch(self.tokens[rows], self.targets[rows], document_ids, further)

    def to(self, device: torch.device) -> "Batch":
        """Copy to a device, without waiting for the copy."""
        if device.type == "cpu":
            return self
        document_ids = None if self.document_ids is None else copy_to(self.document_ids, device)
        further = None if self.further is None else copy_to(self.further, device)
        return Batch(copy_to(self.tokens, device), copy_to(self.targets, device), document_ids, further)


class Windows:
    """The windows of ``context`` tokens that a run trains on, ``batch_sequences`` per optimizer step.

    ``random``: each window starts at a uniform position of the split; in a weighted mixture, a source is drawn by its
    weight, then a position within it. ``shuffled``: consecutive windows that share no target, each once per epoch, in
    a new random order each epoch; what is left at the end of the split and is shorter than a window is never used.
    ``respect``: no target lies in another document than its token, and batches carry ``document_ids`` (where there
    is more than one document). ``n_ahead`` is how many tokens ahead each position predicts.

    Raises DataError if the split, or a weighted source of it, has no window; ConfigError if a weighted mixture is
    asked for in shuffled order.
    """

    def __init__(
        self,
        split: Split,
        *,
        context: int,
        batch_sequences: int,
        seed: int,
        mode: Mode = "random",
        boundaries: Boundaries = "ignore",
        n_ahead: int = 1,
    ) -> None:
        if mode == "shuffled" and split.weights is not None:
            raise ConfigError("data.windows = shuffled contradicts the weights in data.path or data.corpus; use random")
        self.split = split
        self.context = context
        self.batch_sequences = batch_sequences
        self._n_ahead = n_ahead
        self._seed = seed
        self._mode = mode
        self._respects = boundaries == "respect" and len(split.document_starts) > 1
        self._sources = _source_ranges(split, context, n_ahead)
        self._orders: dict[int, NDArray[np.int64]] = {}

    @property
    def n_windows(self) -> int:
        """Windows per epoch: how many consecutive ones the split holds, each with its targets."""
        return (len(self.split.ids) - self._n_ahead) // self.context

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """Give rows ``rank``, ``rank + world``, ... of the global batch of optimizer step ``step`` (0-based)."""
        starts = self.starts(step)[rank::world]  # [B]
        positions = starts[:, None] + np.arange(self.context + self._n_ahead)  # [B, T+A]
        window = np.asarray(self.split.ids[positions]).astype(np.int64)  # [B, T+A]
        tokens, targets = window[:, : self.context].copy(), self._ahead(window)
        documents = None
        if self._respects:
            numbers = np.searchsorted(self.split.document_starts, positions, side="right") - 1  # [B, T+A]
            documents = numbers[:, : self.context].astype(np.int64)
            targets[self._ahead(numbers) != documents] = IGNORED
        return Batch(
            torch.from_numpy(tokens),
            torch.from_numpy(targets[0]),
            None if documents is None else torch.from_numpy(documents),
            torch.from_numpy(targets[1:]) if self._n_ahead > 1 else None,
        )

    def n_tokens(self, step: int) -> int:
        """Count the tokens of the global batch: those of whole windows."""
        return self.batch_sequences * self.context

    def starts(self, step: int) -> NDArray[np.int64]:
        """Give the first position of each window of the global batch, in order of its rows."""
        return self._random_starts(step) if self._mode == "random" else self._shuffled_starts(step)

    def _ahead(self, window: NDArray[np.int64]) -> NDArray[np.int64]:
        """Stack what is one position ahead of each of the context's, two, and so on: [A, B, T]."""
        return np.stack([window[:, ahead : ahead + self.context] for ahead in range(1, self._n_ahead + 1)])

    def _random_starts(self, step: int) -> NDArray[np.int64]:
        drawn = roots(self._seed, Purpose.WINDOWS, step, 2 * self.batch_sequences).reshape(-1, 2)
        firsts, counts, shares = self._sources
        chosen = np.minimum(np.searchsorted(shares, uniform(drawn[:, 0]), side="right"), len(shares) - 1)
        return firsts[chosen] + (drawn[:, 1] % counts[chosen].astype(np.uint64)).astype(np.int64)

    def _shuffled_starts(self, step: int) -> NDArray[np.int64]:
        rows = step * self.batch_sequences + np.arange(self.batch_sequences)
        epochs, places = np.divmod(rows, self.n_windows)
        windows = np.empty_like(places)
        for epoch in np.unique(epochs):
            inside = epochs == epoch
            windows[inside] = self._order(int(epoch))[places[inside]]
        return windows * self.context

    def _order(self, epoch: int) -> NDArray[np.int64]:
        if epoch not in self._orders:
            # Remembered for speed alone, the last two: a batch may end one epoch and begin the next.
            self._orders = {known: order for known, order in self._orders.items() if known == epoch - 1}
            drawn = roots(self._seed, Purpose.WINDOW_ORDER, epoch, self.n_windows)
            self._orders[epoch] = np.argsort(drawn, kind="stable")
        return self._orders[epoch]


def copy_to(tensor: Tensor, device: torch.device) -> Tensor:
    """Copy to a device, without waiting for the copy."""
    # Only from pinned memory does a copy to a GPU run beside the computation.
    return (tensor.pin_memory() if device.type == "cuda" else tensor).to(device, non_blocking=True)


def _source_ranges(
    split: Split, context: int, n_ahead: int
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]:
    """First position, number of positions and cumulative probability of each source that windows are drawn from."""
    split.check_context(context, n_ahead)
    firsts = np.zeros(1, dtype=np.int64) if split.weights is None else split.store.source_starts
    counts = np.diff(np.append(firsts, len(split.ids))) - (context + n_ahead - 1)
    weights = np.array([1.0] if split.weights is None else split.weights)
    return firsts, counts, np.cumsum(weights / weights.sum())
