"""Training windows: the global batch is a pure function of (seed, step)."""

from dataclasses import dataclass, fields, replace
from typing import (
    Any,
    ClassVar,
    Literal,
    Protocol,
    TypeVar,
    runtime_checkable,
)

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from sublayer.data.arrays import Ints
from sublayer.data.counter_rng import Epochs, Purpose, random_order, seeds, uniform
from sublayer.data.store import Split
from sublayer.errors import ConfigError

_FEWEST = 2
"""Places of a row: one sequence, and padding."""


def sequence_starts(
    *sides: Int[Tensor, "R _"],
) -> tuple[Int[Tensor, " N"], ...]:
    """Find the first token of each sequence in the concatenated rows of a side.

    A side has non-decreasing sequence numbers along a row, and -1 at right padding, which is a
    sequence too. Sides share the sequences of a row. All rows and sides have the same number of
    slots, the last one for padding; surplus slots are empty. Their number is a power of two, so
    that few batches differ in it. The last start is the number of tokens. int32, as kernels
    require.
    """
    numbered = []
    for ids in map(torch.Tensor.numpy, sides):
        begins = np.zeros(ids.shape, dtype=np.int64)
        begins[:, 1:] = ids[:, 1:] != ids[:, :-1]
        # From 0 in each row, [R, T]; padding stays -1.
        numbered.append(np.where(ids >= 0, begins.cumsum(1), -1))
    most = max(int(numbers.max()) + 2 for numbers in numbered)
    n_places = max(_FEWEST, 1 << (most - 1).bit_length())
    starts = []
    for numbers in numbered:
        n_rows = len(numbers)
        places = np.arange(n_rows)[:, None] * n_places + numbers % n_places
        lengths = np.bincount(places.ravel(), minlength=n_rows * n_places)
        starts.append(np.concatenate([[0], lengths.cumsum()]).astype(np.int32))
    return tuple(map(torch.from_numpy, starts))


IGNORED = -1
"""The target of a position that does not count."""

Mode = Literal["random", "shuffled"]
Boundaries = Literal["ignore", "respect"]


Copied = TypeVar("Copied")


@runtime_checkable
class AnyBatch(Protocol):
    """The batch that training needs: rows, slices of which are micro-batches."""

    def __len__(self) -> int: ...

    def __getitem__(self, rows: slice) -> "AnyBatch": ...

    @property
    def n_sequences(self) -> int:
        """Count the sequences that see nothing of each other; 0 where no example counts."""

    def micro_rows(self, n_sequences: int, context: int) -> int:
        """Count the rows of a micro-batch that holds ``n_sequences`` of ``context`` tokens.

        Rows of other lengths than the context take the place of as many tokens.
        """

    def to(self, device: torch.device) -> "AnyBatch":
        """Copy to a device, asynchronously; on the CPU, return the batch itself."""


@runtime_checkable
class Batches(Protocol):
    """The batches that a run trains on: the global batch is a pure function of (seed, step)."""

    @property
    def lengths_vary(self) -> bool:
        """Return whether batches differ in shape by more than the last rows of an epoch."""

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Any:
        """Return a process's share of the global batch of optimizer step ``step`` (0-based).

        ``rank`` is 0-based. The shares of all ``world`` ranks form the same batch for any number of
        processes.
        """

    def n_tokens(self, step: int) -> int:
        """Count the tokens of a step's global batch, for the throughput."""

    def notes(self) -> list[str]:
        """Return notes on omitted parts of the split, a line each."""


@dataclass(frozen=True)
class Batch:
    """Windows and their targets."""

    tokens: Int[Tensor, "B T"]
    targets: Int[Tensor, "B T"]
    """The next token of each, or -1 where a position does not count."""
    document_ids: Int[Tensor, "B T"] | None = None
    """Numbers of the documents that attention and positions must not cross; None: they may."""
    further: Int[Tensor, "A B T"] | None = None
    """Targets two ahead, three ahead and so on, as ``targets``; None where one is enough."""
    starts: Int[Tensor, " N"] | None = None
    """Starts of documents, as ``sequence_starts`` has them; None where no kernel asks."""

    def __len__(self) -> int:
        return self.tokens.shape[0]

    def __getitem__(self, rows: slice) -> "Batch":
        document_ids, further = self.document_ids, self.further
        return Batch(
            self.tokens[rows],
            self.targets[rows],
            None if document_ids is None else document_ids[rows],
            None if further is None else further[:, rows],
        )

    def micro_rows(self, n_sequences: int, context: int) -> int:
        """Return ``n_sequences``: windows are all of one length."""
        return n_sequences

    @property
    def n_sequences(self) -> int:
        """Count the separated documents, or the windows where documents are not separated."""
        if self.document_ids is None:
            return len(self)
        return len(self) + int((self.document_ids[:, 1:] != self.document_ids[:, :-1]).sum())

    def with_starts(self) -> "Batch":
        """Find where documents begin, for attention without masks."""
        if self.document_ids is None:
            return self
        (starts,) = sequence_starts(self.document_ids)
        return replace(self, starts=starts)

    def to(self, device: torch.device) -> "Batch":
        """Copy to a device, asynchronously, with the starts of documents."""
        return self if device.type == "cpu" else copy_tensors(self.with_starts(), device)


class Windows:
    """Batches of windows of ``context`` tokens, ``batch_sequences`` per optimizer step.

    ``mode``:

    - ``random``: each window starts at a uniform position of the split; in a weighted mixture, a
      source is drawn by its weight, then a position within it.
    - ``shuffled``: consecutive windows that share no target, each once per epoch, in a new random
      order each epoch; a rest at the end of the split that is shorter than a window is never used.

    ``boundaries``: with ``respect`` no target lies in another document than its token, and batches
    carry ``document_ids`` (where there is more than one document). ``n_ahead`` is how many tokens
    ahead each position predicts.

    Raises DataError if the split, or a weighted source of it, has no window; ConfigError if a
    weighted mixture is asked for in shuffled order.
    """

    lengths_vary: ClassVar[bool] = False

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
            raise ConfigError(
                "data.windows = shuffled contradicts the weights in data.path or data.corpus; "
                "use random"
            )
        self.split = split
        self.context = context
        self.batch_sequences = batch_sequences
        self._n_ahead = n_ahead
        self._seed = seed
        self._mode = mode
        self._respects = boundaries == "respect" and len(split.document_starts) > 1
        split.check_windows(context, n_ahead)
        # Per drawn source [S]: first position, number of windows, cumulative share.
        bounds, weights = split.drawn
        self._firsts = bounds[:-1]
        self._n_starts = np.diff(bounds) - (context + n_ahead - 1)
        self._shares = np.cumsum(weights / weights.sum())
        self._orders = Epochs(
            lambda epoch: random_order(seed, Purpose.WINDOW_ORDER, epoch, self.n_windows)
        )

    @property
    def n_windows(self) -> int:
        """Windows per epoch: consecutive ones with their targets."""
        return (len(self.split.ids) - self._n_ahead) // self.context

    def batch(self, step: int, rank: int = 0, world: int = 1) -> Batch:
        """Return rows ``rank``, ``rank + world``, ... of the global batch of a step (0-based)."""
        starts = self.starts(step)[rank::world]  # [B]
        positions = starts[:, None] + np.arange(self.context + self._n_ahead)  # [B, T+A]
        window = np.asarray(self.split.ids[positions]).astype(np.int64)
        targets = self._ahead(window)  # [A, B, T]
        document_ids = None
        if self._respects:
            numbers = self.split.documents_at(positions)  # [B, T+A]
            documents = numbers[:, : self.context].astype(np.int64)  # [B, T]
            targets[self._ahead(numbers) != documents] = IGNORED
            document_ids = torch.from_numpy(documents)
        return Batch(
            tokens=torch.from_numpy(window[:, : self.context].copy()),
            targets=torch.from_numpy(targets[0]),
            document_ids=document_ids,
            further=torch.from_numpy(targets[1:]) if self._n_ahead > 1 else None,
        )

    def n_tokens(self, step: int) -> int:
        """Count the tokens of the global batch, of full windows."""
        return self.batch_sequences * self.context

    def notes(self) -> list[str]:
        """Return no notes: only the end of an epoch is omitted."""
        return []

    def starts(self, step: int) -> Ints:
        """Return the first position of each window of the global batch, ``[B]``, row by row."""
        if self._mode == "random":
            bits = seeds(self._seed, Purpose.WINDOWS, step, 2 * self.batch_sequences)
            source_bits, position_bits = bits.reshape(-1, 2).T  # [B] each
            sources = np.searchsorted(self._shares, uniform(source_bits), side="right")
            # The shares may add up to a little less than 1.
            sources = np.minimum(sources, len(self._shares) - 1)
            offsets = position_bits % self._n_starts[sources].astype(np.uint64)
            return self._firsts[sources] + offsets.astype(np.int64)
        rows = step * self.batch_sequences + np.arange(self.batch_sequences)
        return self._orders.take(rows, self.n_windows) * self.context

    def _ahead(self, window: Ints) -> Ints:
        """Stack the tokens 1, 2, ... positions ahead of the context's: [A, B, T]."""
        offsets = range(1, self._n_ahead + 1)
        return np.stack([window[:, offset : offset + self.context] for offset in offsets])


def copy_tensors(batch: Copied, device: torch.device) -> Copied:
    """Copy the tensors of a dataclass to a device, asynchronously."""
    copies = {}
    instance: Any = batch
    for field in fields(instance):
        tensor = getattr(instance, field.name)
        if isinstance(tensor, Tensor):
            # Only copies of contiguous pinned memory overlap with computation on a GPU.
            if device.type == "cuda":
                tensor = tensor.contiguous().pin_memory()
            copies[field.name] = tensor.to(device, non_blocking=True)
    copied: Copied = replace(instance, **copies)
    return copied
