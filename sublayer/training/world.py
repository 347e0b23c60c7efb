"""Process group of a training run: rendezvous, collectives, lost processes."""

import errno
import socket
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any, Self

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.rendezvous import rendezvous

from sublayer.config.recipe import Recipe
from sublayer.errors import ConfigError, SaidElsewhere, TrainingError
from sublayer.evaluation.items import Result
from sublayer.system.processes import (
    check_launch,
    has_launchers_store,
    is_first_launched,
    meeting_place,
    n_launched,
    restart_count,
)
from sublayer.system.signals import ignore_from_now_on

_CPU = torch.device("cpu")
PATIENCE_S = 600.0
"""Seconds that a process waits for the others, unless a recipe sets another time."""
_LOOKS_S, _ASKS_S = 0.1, 0.02
"""Polling intervals in seconds: for other processes, and while agreeing on a start."""
_ANSWERS_S, _SAYING_S = 2.0, 5.0
_LETTING_GO_S = 0.1
_stores: list[Any] = []
"""Rendezvous stores of the processes."""
_LOST = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Timed out waiting",
    "Application timeout caused pair closure",
    "Gloo connectFullMesh failed",
)
"""Messages of libraries, without a specific type, if another process does not answer."""


@dataclass(frozen=True)
class World:
    """Membership of this process in the process group.

    All methods except ``own`` and ``is_main`` are collective: all processes must call them in the
    same order. A single process never waits.
    """

    rank: int
    """Rank of the process, from 0; rank 0 writes files."""
    size: int
    device: torch.device = _CPU
    """Device of exchanged tensors."""
    store: Any = None
    """Rendezvous store; None: processes wait for each other only by exchanges."""
    patience_s: float = 600.0
    """Seconds after which a process that does not answer counts as hung."""
    group: Any = None
    """Process group of exchanges; None: the default group."""

    def beside(self) -> Self:
        """Return the same group on the CPU, for exchanges of another thread."""
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
        """Sum ``values`` over all processes, in place, and return them.

        They are on the world's device, or on the CPU, which does not synchronize another device.
        """
        if self.size > 1:
            dist.all_reduce(values, group=self.group)
        return values

    def share(self, values: Sequence[float]) -> list[float]:
        """Broadcast rank 0's numbers to every process, as float64; all must pass equally many."""
        if self.size == 1:
            return list(values)
        tensor = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.broadcast(tensor, src=0, group=self.group)
        shared: list[float] = tensor.tolist()
        return shared

    def share_text(self, text: str) -> str:
        """Broadcast rank 0's text to every process."""
        (length,) = self.share([len(text)])
        codes = [ord(char) for char in text] if self.is_main else [0] * int(length)
        return "".join(chr(int(code)) for code in self.share(codes))

    def any(self, flag: bool) -> bool:
        """Return, in every process, whether ``flag`` is set in any process."""
        if self.size == 1:
            return flag
        n_set = torch.tensor([float(flag)], device=self.device)
        return bool(self.sum(n_set) > 0)

    def own(self, n: int) -> range:
        """Return the indices of this process's parts among ``n``, assigned round-robin."""
        return range(self.rank, n, self.size)

    def gather(self, results: Sequence[Result], n: int) -> list[Result]:
        """Gather the results of all ``n`` parts, in order.

        A process passes one result per index of ``own(n)``, in order; every process receives all.
        """
        if self.size == 1 or n == 0:
            return list(results)
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, list(results), group=self.group)
        return [gathered[part % self.size][part // self.size] for part in range(n)]

    def gather_equal(self, tensor: Tensor) -> list[Tensor]:
        """Gather the tensors of all processes, of equal shape and dtype, on the world's device."""
        gathered = [torch.empty_like(tensor) for _ in range(self.size)]
        dist.all_gather(gathered, tensor, group=self.group)
        return gathered

    def wait(self) -> None:
        """Wait for all processes (barrier)."""
        if self.size > 1:
            dist.barrier(group=self.group)

    def by_first(self, work: Callable[[], object], *, long: str = "") -> None:
        """Run work in rank 0, such as writing, while the others wait.

        If it fails, the others raise SaidElsewhere instead of waiting forever at the next
        collective. Work that may exceed the patience of the others has a name, ``long``.
        """
        is_done = False
        try:
            if self.is_main:
                work()
            is_done = True
        finally:
            if long and self.store is not None:
                # The others wait without a time limit.
                if self.is_main:
                    self.store.set(long, "here")
                while not self.store.check([long]):
                    time.sleep(_LOOKS_S)
            (is_done_by_first,) = self.share([float(is_done)])
        if not is_done_by_first:
            raise SaidElsewhere("the first process failed, and reports the error")

    def part(self) -> None:
        """Wait for all processes through the store, so that none leaves while others need it.

        Collective. Raises RuntimeError if a process is missing after the world's patience.
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

    def check_agreement(self, recipe: Recipe, folder: Path) -> None:
        """Check that all ranks were launched with the same recipe, versions and folder.

        Collective; rank 0 has created the folder. Raises ConfigError in all processes.
        """
        if self.size == 1:
            return
        versions = f"sublayer {version('sublayer')}, PyTorch {torch.__version__}"
        self.check_same(
            versions, "other versions", f"install the same on all nodes, here {versions}"
        )
        recipe_json = recipe.model_dump_json()
        self.check_same(recipe_json, "another recipe", "give all processes the same settings")
        sees = self.gather([folder.is_dir()], self.size)
        blind = [rank for rank, sees_it in enumerate(sees) if not sees_it]
        if blind:
            raise ConfigError(
                f"process {blind[0]} does not see {folder}, which the first has made: give a "
                "folder that all nodes share"
            )

    def check_same(self, text: str, what: str, remedy: str) -> None:
        """Raise ConfigError in all processes if any ``text`` differs from rank 0's; collective.

        ``what`` and ``remedy`` are parts of the message.
        """
        first, *others = self.gather([text], self.size)
        for rank, other in enumerate(others, 1):
            if other != first:
                raise ConfigError(f"process {rank} has {what} than the first process: {remedy}")


def agree_on_start(store: Any, rank: int, size: int, timeout: timedelta) -> str:
    """Agree on a unique name of this start, equal in all ``size`` processes.

    A launcher may reuse the store for restarted processes, as ``torchrun`` of PyTorch 2.13 does.
    Keys are prefixed with the name of the start, so that no stale content, such as addresses of
    dead processes, is read. Rank 0 chooses the name, and answers each process's unique request
    until it is acknowledged. Raises RuntimeError if a process is missing after ``timeout``.
    """
    word = uuid.uuid4().hex
    end = time.monotonic() + timeout.total_seconds()
    if rank > 0:
        store.set(f"ask {rank}", word)
    answered: dict[int, str] = {}
    while time.monotonic() < end:
        if rank > 0:
            request, _, name = _read(store, f"tell {rank}").partition(" ")
            if request == word:
                store.set(f"heard {rank}", name)
                return name
        else:
            # Answer requests for the name until all processes have acknowledged it.
            for other in range(1, size):
                request = _read(store, f"ask {other}")
                if request != answered.get(other, ""):
                    store.set(f"tell {other}", f"{request} {word}")
                    answered[other] = request
            if all(_read(store, f"heard {other}") == word for other in range(1, size)):
                return word
        time.sleep(_ASKS_S)
    raise RuntimeError("Timed out waiting for the other processes to start")


def _read(store: Any, key: str) -> str:
    if not store.check([key]):
        return ""
    value: bytes = store.get(key)
    return value.decode()


def reach(timeout: timedelta) -> tuple[Any, int, int]:
    """Return the rendezvous store, the rank and the world size.

    Raises TrainingError if nothing answers within ``timeout``, ConfigError if rank 0 cannot listen
    there. PyTorch would raise a long traceback, and later.
    """
    address, port = meeting_place()
    if is_first_launched() and not has_launchers_store():
        with socket.socket() as sock:
            # As for a listener, a recently closed connection is no obstacle.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("", port))
            except OSError as error:
                what = "in use" if error.errno == errno.EADDRINUSE else "unavailable"
                raise ConfigError(
                    f"MASTER_PORT = {port} is {what} on this machine: give all processes another "
                    "port"
                ) from None
    else:
        end = time.monotonic() + timeout.total_seconds()
        while not is_there(address, port):
            if time.monotonic() > end:
                raise TrainingError(
                    f"nothing answers at MASTER_ADDR = {address}, MASTER_PORT = {port}, the "
                    "rendezvous of the processes: start the first process there"
                )
            time.sleep(_LOOKS_S)
    met: tuple[Any, int, int] = next(rendezvous("env://", timeout=timeout))
    return met


def is_there(address: str, port: int) -> bool:
    """Check whether a program answers at an address."""
    try:
        socket.create_connection((address, port), timeout=_ANSWERS_S).close()
    except OSError:
        return False
    return True


def join_world(device: torch.device, patience_s: float = PATIENCE_S) -> World:
    """Join the processes that ``torchrun`` started, if any, with gloo on the CPU, NCCL on GPUs.

    The first call waits for all processes; ``leave_world`` ends the process group. A process that
    does not answer for ``patience_s`` seconds counts as hung. Raises TrainingError where processes
    are missing, ConfigError where a variable of the launcher is wrong or missing.
    """
    check_launch()
    if n_launched() == 1:
        return World(rank=0, size=1, device=device)
    timeout = timedelta(seconds=patience_s)
    if not dist.is_initialized():
        with naming_lost("before training began"):
            store, rank, size = reach(timeout)
            # A start may take longer than the patience for hung processes.
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
        # A gloo thread needs the interpreter lock to release the last exchange, so that destroying
        # the group while holding the lock would deadlock.
        time.sleep(_LETTING_GO_S)
        dist.destroy_process_group()


@contextmanager
def naming_lost(where: str) -> Iterator[None]:
    """Raise TrainingError, in one line, if another process is lost.

    A lost process was killed, hangs or cannot be reached. ``where`` describes the saved work. One
    remaining process reports the loss; the others raise SaidElsewhere.
    """
    try:
        yield
    except RuntimeError as error:
        if not is_lost(error):
            raise
        # A launcher that has noticed the loss, too, would end this process before its report.
        with suppress(ValueError):  # not the main thread
            ignore_from_now_on()
        what = "hangs" if "imed out" in str(error) or "timeout" in str(error) else "was lost"
        message = f"another process {what}: {where}"
        if says_first("lost"):
            raise TrainingError(message) from None
        raise SaidElsewhere(message) from None


def is_lost(error: Exception) -> bool:
    """Check whether an error means that another process does not answer."""
    if n_launched() == 1 or not isinstance(error, RuntimeError):
        return False
    return isinstance(error, dist.DistError) or any(text in str(error) for text in _LOST)


def says_first(what: str) -> bool:
    """Check whether this process is the first to report an event.

    The rendezvous store decides; without one, every process reports.
    """
    # Without a rendezvous another program may answer at the address.
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
