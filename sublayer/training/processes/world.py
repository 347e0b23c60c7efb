"""The processes that train together: their meeting, their exchanges, the loss of one."""

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
from sublayer.evaluation.split_work import Result
from sublayer.system.launch import (
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
"""Seconds that a process waits for the others, unless a recipe says otherwise."""
_LOOKS_S, _ASKS_S = 0.1, 0.02
"""Between two looks for other processes; while they agree on a start."""
_ANSWERS_S, _SAYING_S = 2.0, 5.0
_LETTING_GO_S = 0.1
_stores: list[Any] = []
"""Stores at which the processes met."""
_LOST = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Timed out waiting",
    "Application timeout caused pair closure",
    "Gloo connectFullMesh failed",
)
"""Messages of libraries, with no type of their own, where another process does not answer."""


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
    """Device of the tensors that they exchange."""
    store: Any = None
    """Store at which they met; None: they wait for each other in no other way than by exchange."""
    patience_s: float = 600.0
    """Seconds after which one that does not answer is taken for hung."""
    group: Any = None
    """Process group of their exchanges; None: the group of all."""

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
        codes = [ord(char) for char in text] if self.is_main else [0] * int(length)
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

    def gather(self, results: Sequence[Result], n: int) -> list[Result]:
        """Gather the results of all ``n`` parts, in order, from each process's own.

        A process gives one for each of its ``own(n)``, in their order; all of them get all.
        """
        if self.size == 1 or n == 0:
            return list(results)
        gathered: list[Any] = [None] * self.size
        dist.all_gather_object(gathered, list(results), group=self.group)
        return [gathered[part % self.size][part // self.size] for part in range(n)]

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


def agree_on_start(store: Any, rank: int, size: int, timeout: timedelta) -> str:
    """Return the name of this start, the same in all ``size`` processes and in no earlier ones.

    A launcher that starts processes again may give them the store of those before, as ``torchrun``
    of PyTorch 2.13 does. Its content, such as addresses of dead processes, must not be taken for
    messages of the new ones: they keep all under their start's name. The first chooses it, and
    tells it each process that asks by a word of its own, until that has repeated it. Raises
    RuntimeError where one does not come within ``timeout``.
    """
    word = uuid.uuid4().hex
    end = time.monotonic() + timeout.total_seconds()
    if rank > 0:
        store.set(f"ask {rank}", word)
    answered: dict[int, str] = {}
    while time.monotonic() < end:
        if rank > 0:
            asked, _, name = _read(store, f"tell {rank}").partition(" ")
            if asked == word:
                store.set(f"heard {rank}", name)
                return name
        elif _tell(store, size, word, answered):
            return word
        time.sleep(_ASKS_S)
    raise RuntimeError("Timed out waiting for the other processes to start")


def _tell(store: Any, size: int, name: str, answered: dict[int, str]) -> bool:
    """Tell the name to each that asks; return whether all have heard it."""
    others = range(1, size)
    for other in others:
        asked = _read(store, f"ask {other}")
        if asked != answered.get(other, ""):
            store.set(f"tell {other}", f"{asked} {name}")
            answered[other] = asked
    return all(_read(store, f"heard {other}") == name for other in others)


def _read(store: Any, key: str) -> str:
    if not store.check([key]):
        return ""
    value: bytes = store.get(key)
    return value.decode()


def reach(timeout: timedelta) -> tuple[Any, int, int]:
    """Return the store where processes meet, the number of this one, and how many they are.

    Raises TrainingError where nothing answers within ``timeout``, ConfigError where the first
    cannot answer there. PyTorch tells the same by a page of its own frames, and tries for longer.
    """
    address, port = meeting_place()
    if is_first_launched() and not has_launchers_store():
        _check_free(port)
    else:
        _wait_for(address, port, timeout)
    met: tuple[Any, int, int] = next(rendezvous("env://", timeout=timeout))
    return met


def is_there(address: str, port: int) -> bool:
    """Return whether something answers there."""
    try:
        socket.create_connection((address, port), timeout=_ANSWERS_S).close()
    except OSError:
        return False
    return True


def _check_free(port: int) -> None:
    with socket.socket() as sock:
        # As who listens there: a connection that has only just ended is no obstacle.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind(("", port))
        except OSError as error:
            what = "in use" if error.errno == errno.EADDRINUSE else "not to be had"
            raise ConfigError(
                f"MASTER_PORT = {port} is {what} on this machine: give all processes another"
            ) from None


def _wait_for(address: str, port: int, timeout: timedelta) -> None:
    end = time.monotonic() + timeout.total_seconds()
    while not is_there(address, port):
        if time.monotonic() > end:
            raise TrainingError(
                f"nothing answers at MASTER_ADDR = {address}, MASTER_PORT = {port}, where the "
                "processes meet: start the first of them there"
            )
        time.sleep(_LOOKS_S)


def join_world(device: torch.device, patience_s: float = PATIENCE_S) -> World:
    """Join the processes that ``torchrun`` started, if any: by gloo on the CPU, by NCCL on GPUs.

    It waits for all of them, the first time; ``leave_world`` ends the process group. A process that
    does not answer for ``patience_s`` seconds is taken for hung. Raises TrainingError where the
    others do not come, ConfigError where a variable of the launcher is wrong or missing.
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

    It was killed, hangs or cannot be reached; ``where`` says in words which work is kept. Of the
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


def check_agreement(world: World, recipe: Recipe, folder: Path) -> None:
    """Raise ConfigError in all processes unless they have one recipe, version and folder.

    All enter; the first has made the folder.
    """
    if world.size == 1:
        return
    versions = f"sublayer {version('sublayer')}, PyTorch {torch.__version__}"
    check_same(world, versions, "other versions", f"install the same on all nodes, here {versions}")
    recipe_json = recipe.model_dump_json()
    check_same(world, recipe_json, "another recipe", "give all processes the same settings")
    sees = world.gather([folder.is_dir()], world.size)
    blind = [rank for rank, sees_it in enumerate(sees) if not sees_it]
    if blind:
        raise ConfigError(
            f"process {blind[0]} does not see {folder}, which the first has made: give a folder "
            "that all nodes share"
        )


def check_same(world: World, text: str, what: str, remedy: str) -> None:
    """Raise ConfigError in all processes where one has another ``text`` than the first; all enter.

    ``what`` and ``remedy`` are parts of its message.
    """
    first, *others = world.gather([text], world.size)
    for rank, other in enumerate(others, 1):
        if other != first:
            raise ConfigError(f"process {rank} has {what} than the first: {remedy}")
