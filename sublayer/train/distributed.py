"""One process or several under ``torchrun``: ranks, sums and agreement."""

import os
from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor


@dataclass(frozen=True)
class World:
    """This process among those that train together."""

    rank: int
    size: int

    @property
    def is_main(self) -> bool:
        """Whether this process writes files and talks."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Add ``values`` over all processes, in place."""
        if self.size > 1:
            dist.all_reduce(values)
        return values

    def broadcast(self, values: Tensor) -> Tensor:
        """Give every process rank 0's ``values``, in place."""
        if self.size > 1:
            dist.broadcast(values, src=0)
        return values

    def share(self, values: Sequence[float], device: torch.device) -> list[float]:
        """Return rank 0's numbers in every process."""
        if self.size == 1:
            return list(values)
        shared: list[float] = self.broadcast(torch.tensor(values, dtype=torch.float64, device=device)).tolist()
        return shared

    def wait(self) -> None:
        """Wait until every process is here."""
        if self.size > 1:
            dist.barrier()


def join_world(device: torch.device) -> World:
    """Join the processes that ``torchrun`` started, with gloo on CPU and NCCL on GPU; alone without it."""
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if size == 1:
        return World(rank=0, size=1)
    if not dist.is_initialized():
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    return World(rank=dist.get_rank(), size=dist.get_world_size())


def is_main_process() -> bool:
    """Whether this process is the one that talks, before or after it joins the others."""
    return os.environ.get("RANK", "0") == "0"


def leave_world() -> None:
    """Leave the process group, if one was joined."""
    if dist.is_initialized():
        dist.destroy_process_group()
