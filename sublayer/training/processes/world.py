"""The processes that train together, and what they tell each other."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Self

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor

from sublayer.errors import SaidElsewhere
from sublayer.evaluation.split_work import Row

_CPU = torch.device("cpu")
_LOOKS_S = 0.1


@dataclass(frozen=True)
class World:
    """This process among those that train together.

    But for ``own`` and ``is_main``, all processes enter its methods, in the same order: each waits
    for the others. Alone, nothing waits.
    """

    rank: int
    """From 0; the first, which writes."""
    size: int
    device: torch.device = _CPU
    """Where what they exchange lies."""
    store: Any = None
    """Where they met; None: they wait for each other in no other way than by exchange."""
    patience_s: float = 600.0
    """Seconds after which one that does not answer is taken for hung."""
    group: Any = None
    """What they exchange by; None: the group of all."""

    def beside(self) -> Self:
        """Return the same processes on the CPU, for what another thread exchanges meanwhile."""
        if self.size == 1:
            return replace(self, device=_CPU)
        timeout = timedelta(seconds=self.patience_s)
        group = dist.new_group(backend="gloo", timeout=timeout)
        return replace(self, device=_CPU, group=group)

    @property
    def is_main(self) -> bool:
        """Return whether this process writes files and messages."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Add ``values`` over all processes, in place; return them.

        They lie on the world's device, or on the CPU, where nothing waits for another device.
        """
        if self.size > 1:
            dist.all_reduce(values, group=self.group)
        return values

    def share(self, values: Sequence[float]) -> list[float]:
        """Broadcast rank 0's numbers to every process, as float64; all give equally many."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.broadcast(tensor, src=0, group=self.group)
        shared: list[float] = tensor.tolist()
        return shared

    def share_text(self, text: str) -> str:
        """Broadcast rank 0's text to every process."""
        (length,) = self.share([len(text)])
        codes = [ord(each) for each in text] if self.is_main else [0] * int(length)
        return "".join(chr(int(code)) for code in self.share(codes))

    def any(self, flag: bool) -> bool:
        """Return in every process whether ``flag`` is set in one of them."""
        if self.size == 1:
            return flag
        n_set = torch.tensor([float(flag)], device=self.device)
        return bool(self.sum(n_set) > 0)

    def own(self, n: int) -> range:
        """Return the indices of this process's parts of ``n``, which are dealt like cards."""
        return range(self.rank, n, self.size)

    def gather(self, rows: Sequence[Row], n: int) -> list[Row]:
        """Gather the rows of all ``n`` parts, in order, from each process's rows of any lengths.

        A process gives a row for each of its ``own(n)``, in their order; all of them get all.
        """
        if self.size == 1 or n == 0:
            return list(rows)
        most_parts = math.ceil(n / self.size)
        lengths = np.zeros(most_parts)
        lengths[: len(rows)] = [len(row) for row in rows]
        all_lengths = [each.astype(np.int64) for each in self._gather_row(lengths)]
        # Processes exchange tensors of one shape.
        largest = max(int(each.sum()) for each in all_lengths)
        flat = np.zeros(max(1, largest))
        own = np.concatenate([*rows, np.zeros(0)])
        flat[: len(own)] = own
        gathered: list[Row] = [np.zeros(0)] * n
        for rank, numbers in enumerate(self._gather_row(flat)):
            stops = np.cumsum(all_lengths[rank])
            of_rank = numbers[: stops[-1]]
            parts = np.split(of_rank, stops[:-1])
            indices = range(rank, n, self.size)
            for index, part in zip(indices, parts, strict=False):
                gathered[index] = part
        return gathered

    def _gather_row(self, numbers: Row) -> list[Row]:
        tensor = torch.from_numpy(numbers).to(self.device)
        return [each.cpu().numpy() for each in self.gather_equal(tensor)]

    def gather_equal(self, tensor: Tensor) -> list[Tensor]:
        """Gather every process's tensor, of one shape and type, on the world's device."""
        gathered = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(gathered, tensor, group=self.group)
        return gathered

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.size > 1:
            dist.barrier(group=self.group)

    def by_first(self, work: Callable[[], object], *, long: str = "") -> None:
        """Run in the first process what must be done once, such as writing, while the others wait.

        Where it fails, so do the others: they would wait for it at the next sum for ever. Raises
        SaidElsewhere in them. What may take longer than they have patience has a name, ``long``.
        """
        is_done = False
        try:
            if self.is_main:
                work()
            is_done = True
        finally:
            if long:
                self._meet(long)
            (is_done_by_first,) = self.share([float(is_done)])
        if not is_done_by_first:
            raise SaidElsewhere("the first process failed, and says why")

    def part(self) -> None:
        """Wait until all are here, without an exchange: who has left cuts off none.

        All enter. Raises RuntimeError where one does not within the world's patience.
        """
        if self.store is None:
            return
        n_here = self.store.add("parting", 1)
        n_all = -(-n_here // self.size) * self.size
        end = time.monotonic() + self.patience_s
        while self.store.add("parting", 0) < n_all:
            if time.monotonic() > end:
                raise RuntimeError("Timed out waiting for the other processes to end")
            time.sleep(_LOOKS_S)

    def _meet(self, name: str) -> None:
        """Wait until the first process is here, however long that takes."""
        if self.store is None:
            return
        if self.is_main:
            self.store.set(name, "here")
        while not self.store.check([name]):
            time.sleep(_LOOKS_S)
