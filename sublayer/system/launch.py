"""Launched processes: the variables that ``torchrun`` sets, commands of Python, their input."""

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
    """Count the processes that were started together; 1 without ``torchrun``.

    Raises ConfigError, as all functions here do, for what no launcher sets.
    """
    return _number("WORLD_SIZE", "1", least=1)


def is_launched() -> bool:
    """Return whether a launcher started this process, which starts it again where it fails."""
    return "WORLD_SIZE" in os.environ


def own_gpu_number() -> int:
    """Return the number of this process among those of its machine: that of its GPU, too."""
    return _number("LOCAL_RANK", "0")


def restart_count() -> int:
    """Return how often the launcher has started the processes again; 0 without one."""
    return _number("TORCHELASTIC_RESTART_COUNT", "0")


def is_first_launched() -> bool:
    """Return whether this process is the one that talks, before or after it joins the others."""
    return n_launched() == 1 or _rank() == 0


def has_launchers_store() -> bool:
    """Return whether processes meet in a store that the launcher keeps; else the first keeps it."""
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def meeting_place() -> tuple[str, int]:
    """Return the address and the port where the processes that were started together meet."""
    address = os.environ.get("MASTER_ADDR", "")
    if not address:
        raise ConfigError(f"WORLD_SIZE = {n_launched()} needs MASTER_ADDR: {_REMEDY}")
    port = _number("MASTER_PORT")
    if port not in _PORTS:
        raise ConfigError(f"MASTER_PORT = {port} is no port, 1 to {_PORTS[-1]}: {_REMEDY}")
    return address, port


def check_launch() -> None:
    """Raise ConfigError unless each of several processes is told which it is, and where they meet.

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
    """Return a variable's whole number; ``alone`` is it where none is set, "" if one must be."""
    text = os.environ.get(name) or alone
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) < least:
        value = text[:40] or "unset"
        raise ConfigError(f"{name} = {value} is no whole number from {least} on: {_REMEDY}")
    return int(text)


def at_end_of_input(act: Callable[[], None]) -> None:
    """Call ``act`` once standard input has ended, from a thread of its own.

    Whatever else reads standard input after this finds nothing there.
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
    """Return the command that calls ``main`` of a module, whose exit code is the process's.

    The package is found where this process found it, and nothing in the working directory that this
    process would not have found there.
    """
    program = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        f"from {module} import main; sys.exit(main())"
    )
    return [sys.executable, "-P", "-c", program, json.dumps(sys.path)]
