"""Launched processes: variables of ``torchrun``, Python commands, standard input."""

import json
import os
import sys
from collections.abc import Callable
from threading import Thread

from sublayer.errors import ConfigError

_MOST_DIGITS = 9
_PORTS = range(1, 1 << 16)
_REMEDY = "start the processes with torchrun, which sets it"


def n_launched() -> int:
    """Return the world size; 1 without ``torchrun``.

    Raises ConfigError, as all functions here do, for variables that no launcher sets.
    """
    return _number("WORLD_SIZE", "1", least=1)


def is_launched() -> bool:
    """Check whether a launcher, which restarts failed processes, started this one."""
    return "WORLD_SIZE" in os.environ


def own_gpu_number() -> int:
    """Return this process's local rank, which is also its GPU's number."""
    return _number("LOCAL_RANK", "0")


def restart_count() -> int:
    """Return the launcher's restart count; 0 without one."""
    return _number("TORCHELASTIC_RESTART_COUNT", "0")


def is_first_launched() -> bool:
    """Check whether this process is rank 0, before or after it joins the others."""
    return n_launched() == 1 or _rank() == 0


def has_launchers_store() -> bool:
    """Check whether the launcher hosts the rendezvous store; otherwise rank 0 does."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def meeting_place() -> tuple[str, int]:
    """Return the rendezvous address and port."""
    address = os.environ.get("MASTER_ADDR", "")
    if not address:
        raise ConfigError(f"WORLD_SIZE = {n_launched()} needs MASTER_ADDR: {_REMEDY}")
    port = _number("MASTER_PORT")
    if port not in _PORTS:
        raise ConfigError(f"MASTER_PORT = {port} is no port, 1 to {_PORTS[-1]}: {_REMEDY}")
    return address, port


def check_launch() -> None:
    """Raise ConfigError where a launched process lacks its rank or rendezvous address.

    A library would give a traceback instead, or wait for processes that do not exist.
    """
    n_processes = n_launched()
    if n_processes == 1:
        return
    rank = _rank()
    if rank >= n_processes:
        raise ConfigError(
            f"RANK = {rank} is none of WORLD_SIZE = {n_processes} processes, which are numbered "
            f"from 0: {_REMEDY}"
        )
    own_gpu_number()
    restart_count()
    meeting_place()


def _rank() -> int:
    return _number("RANK")


def _number(name: str, alone: str = "", *, least: int = 0) -> int:
    """Return a variable's whole number, by default ``alone``; "" makes it mandatory."""
    text = os.environ.get(name) or alone
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) < least:
        value = text[:40] or "unset"
        raise ConfigError(f"{name} = {value} is no whole number from {least} on: {_REMEDY}")
    return int(text)


def at_end_of_input(act: Callable[[], None]) -> None:
    """Call ``act`` once standard input has ended, from another thread.

    Later readers of standard input get nothing.
    """
    descriptor = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)

    def wait() -> None:
        while os.read(descriptor, 4096):
            pass
        act()

    Thread(target=wait, daemon=True).start()


def python_command(module: str) -> list[str]:
    """Return the command that calls a module's ``main`` and exits with its code.

    The import path is this process's: the package is the same one, and the working directory is not
    added.
    """
    program = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        f"from {module} import main; sys.exit(main())"
    )
    return [sys.executable, "-P", "-c", program, json.dumps(sys.path)]
