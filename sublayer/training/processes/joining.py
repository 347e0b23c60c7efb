"""How processes come together, and what is said and done where one of them is lost."""

import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from sublayer.errors import ConfigError, SaidElsewhere, TrainingError
from sublayer.system.launch import (
    check_launch,
    has_launchers_store,
    meeting_place,
    n_launched,
    restart_count,
)
from sublayer.system.signals import ignore_from_now_on
from sublayer.training.processes.meeting import agree_on_start
from sublayer.training.processes.reaching import is_there, reach
from sublayer.training.processes.world import World

PATIENCE_S = 600.0
"""Seconds that a process waits for the others, unless a recipe says otherwise."""
_SAYING_S = 5.0
_LETTING_GO_S = 0.1
_stores: list[Any] = []
"""Where the processes met."""
_LOST = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Timed out waiting",
    "Application timeout caused pair closure",
    "Gloo connectFullMesh failed",
)
"""What a library says, with no type of its own, where another process does not answer."""


def join_world(device: torch.device, patience_s: float = PATIENCE_S) -> World:
    """Join the processes that ``torchrun`` started, if any: by gloo on the CPU, by NCCL on GPUs.

    It waits for all of them, the first time; ``leave_world`` ends what it began. A process that
    does not answer for ``patience_s`` seconds is taken for hung. Raises TrainingError where the
    others do not come, ConfigError where what a launcher sets is wrong or missing.
    """
    check_launch()
    if n_launched() == 1:
        return World(rank=0, size=1, device=device)
    timeout = timedelta(seconds=patience_s)
    if not dist.is_initialized():
        with naming_lost("before training began"):
            store, rank, size = reach(timeout)
            # A process that is only started may take longer than one that hangs.
            patience = max(timeout, timedelta(seconds=PATIENCE_S))
            start = agree_on_start(_named("start", store), rank, size, patience)
            store = _named(start, store)
            backend = "gloo"
            if device.type == "cuda":
                torch.cuda.set_device(device)
                backend = "cpu:gloo,cuda:nccl"
            dist.init_process_group(
                backend, store=store, rank=rank, world_size=size, timeout=timeout
            )
            _stores.append(_named("sublayer", store))
    return World(dist.get_rank(), dist.get_world_size(), device, _stores[-1], patience_s)


def _named(name: str, store: Any) -> Any:
    return dist.PrefixStore(name, store)  # type: ignore[attr-defined]


def leave_world() -> None:
    """Leave the process group, if one was joined."""
    if dist.is_initialized():
        # A thread of gloo needs the interpreter to let go of the last exchange. Who ends the group
        # meanwhile, and holds the interpreter, would wait for that thread for ever.
        time.sleep(_LETTING_GO_S)
        dist.destroy_process_group()


@contextmanager
def naming_lost(where: str) -> Iterator[None]:
    """Raise TrainingError, in one line, where another process is lost.

    It was killed, hangs or cannot be reached; ``where`` says in words what is kept. Of the
    processes that are left one says it; others raise SaidElsewhere.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_lost(error):
            raise
        # A launcher that has seen it too ends this process, which is about to say why and end.
        with suppress(ValueError):  # not the main thread, whose signals they are
            ignore_from_now_on()
        what = "hangs" if "imed out" in str(error) or "timeout" in str(error) else "was lost"
        message = f"another process {what}: {where}"
        if says_first("lost"):
            raise TrainingError(message) from None
        raise SaidElsewhere(message) from None


def is_lost(error: Exception) -> bool:
    """Return whether an error says that another process does not answer."""
    if n_launched() == 1 or not isinstance(error, RuntimeError):
        return False
    return isinstance(error, dist.DistError) or any(text in str(error) for text in _LOST)


def says_first(what: str) -> bool:
    """Return whether no other process, of those started together, has said this before.

    They ask the store where they met; where there is none, each says it.
    """
    # What answers at the place where they have not met may be another program.
    if n_launched() == 1 or not (_stores or has_launchers_store()):
        return True
    timeout = timedelta(seconds=_SAYING_S)
    try:
        address, port = meeting_place()
        if not is_there(address, port):
            return True
        store = dist.TCPStore(  # type: ignore[attr-defined]
            address, port, is_master=False, timeout=timeout
        )
        return bool(store.add(f"sublayer {restart_count()} says {what}", 1) == 1)
    except (ConfigError, RuntimeError):
        return True
