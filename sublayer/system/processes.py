"""Processes: environment variables of a launcher (``torchrun``), Python commands, a fork server.

The fork server is a process that imports a program once and forks a process per use. A fork is safe
on Linux as long as the server has no Python threads and has computed nothing: OpenMP, oneDNN and
CUDA start in the forked processes, and OpenBLAS ends its threads at a fork. A forked process has
the memory, signals, exit code and standard input of a newly started one. On other systems a process
is newly started.
"""

import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from sublayer.errors import ConfigError
from sublayer.system.signals import SIGNALS

_LOOK_S = 0.05
_STATUS_NUMBER = struct.Struct("i")
_MOST_DIGITS = 9
_PORTS = range(1, 1 << 16)
_REMEDY = "start the processes with torchrun, which sets it"


def n_launched() -> int:
    """Return the world size; 1 without ``torchrun``.

    Raises ConfigError, as all functions of this module do, for variables without a valid value.
    """
    return _number("WORLD_SIZE", "1", least=1)


def is_launched() -> bool:
    """Check whether a launcher, which restarts failed processes, started this one."""
    return "WORLD_SIZE" in os.environ


def own_gpu_number() -> int:
    """Return this process's local rank, which is also its GPU's number."""
    return _number("LOCAL_RANK", "0")


def restart_count() -> int:
    """Return the launcher's restart count; 0 without a launcher."""
    return _number("TORCHELASTIC_RESTART_COUNT", "0")


def is_first_launched() -> bool:
    """Check whether this process is rank 0, before or after it joins the process group."""
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
        raise ConfigError(f"MASTER_PORT = {port} is not a port from 1 to {_PORTS[-1]}: {_REMEDY}")
    return address, port


def check_launch() -> None:
    """Raise ConfigError where a launched process lacks its rank or rendezvous address.

    Without the check a library would raise a traceback, or wait for processes that do not exist.
    """
    n_processes = n_launched()
    if n_processes == 1:
        return
    rank = _rank()
    if rank >= n_processes:
        raise ConfigError(
            f"RANK = {rank} must be at least 0 and below WORLD_SIZE = {n_processes}: {_REMEDY}"
        )
    own_gpu_number()
    restart_count()
    meeting_place()


def _rank() -> int:
    return _number("RANK")


def _number(name: str, alone: str = "", *, least: int = 0) -> int:
    """Return a variable's integer, by default ``alone``; "" makes the variable mandatory."""
    text = os.environ.get(name) or alone
    if not text.isdecimal() or len(text) > _MOST_DIGITS or int(text) < least:
        value = text[:40] or "unset"
        raise ConfigError(f"{name} = {value} is not an integer of at least {least}: {_REMEDY}")
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

    threading.Thread(target=wait, daemon=True).start()


def python_command(module: str) -> list[str]:
    """Return the command that calls a module's ``main`` and exits with its code.

    The import path is this process's, so that the package is the same and the working directory is
    not added.
    """
    program = (
        "import json, sys; sys.path[:] = json.loads(sys.argv[1]); "
        f"from {module} import main; sys.exit(main())"
    )
    return [sys.executable, "-P", "-c", program, json.dumps(sys.path)]


class ForkServer:
    """Server that forks processes of a module's ``main``, which begins with ``forked_argument``."""

    def __init__(self, module: str) -> None:
        self._command = python_command(module)
        self._server: subprocess.Popen[bytes] | None = None

    def start(self, argument: str) -> "subprocess.Popen[bytes] | Forked":
        """Start a process with a pipe as its standard input. Raises OSError."""
        if sys.platform != "linux":
            return subprocess.Popen([*self._command, argument], stdin=subprocess.PIPE)
        if self._server is None or self._server.poll() is not None:
            self.close()
            self._requests, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
            with theirs:
                self._server = subprocess.Popen(self._command, stdin=theirs.fileno())
        return Forked(self._requests, argument)

    def close(self, *, at_once: bool = False) -> None:
        """End the server, but not its processes; ``at_once`` drops its pending forks."""
        if self._server is not None:
            if at_once:
                self._server.kill()
            self._requests.close()
            self._server.wait()
            self._server = None


class Forked:
    """Forked process, with the interface of ``subprocess.Popen``."""

    def __init__(self, requests: socket.socket, argument: str) -> None:
        (their_input, own_input), (status, their_status) = os.pipe(), os.pipe()
        os.set_blocking(status, False)
        self.stdin = os.fdopen(own_input, "wb")
        self._status = os.fdopen(status, "rb", buffering=0)
        self.pid: int | None = None
        self.returncode: int | None = None
        try:
            socket.send_fds(requests, [argument.encode()], [their_input, their_status])
        finally:
            os.close(their_input)
            os.close(their_status)

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; None while the process runs."""
        while (
            self.returncode is None
            and (number := self._status.read(_STATUS_NUMBER.size)) is not None
        ):
            if number and self.pid is None:
                (self.pid,) = _STATUS_NUMBER.unpack(number)
            else:
                # Without a process number the server was killed, or has not forked yet.
                lost = 1 if self.pid is None else -signal.SIGKILL
                self.returncode = _STATUS_NUMBER.unpack(number)[0] if number else lost
                self._status.close()
        return self.returncode

    def wait(self) -> int:
        """Wait until the process has ended, and return its exit code."""
        while (code := self.poll()) is None:
            time.sleep(_LOOK_S)
        return code

    def kill(self) -> None:
        """Kill the process, if it has started."""
        if self.poll() is None and self.pid is not None:
            os.kill(self.pid, signal.SIGKILL)


def forked_argument(preload: Callable[[], None]) -> str | None:
    """Return the argument of this started or forked process; None when the server ends.

    ``preload`` imports the libraries of a server's processes.
    """
    if len(sys.argv) > 2:
        return sys.argv[2]
    for number in SIGNALS:
        signal.signal(number, signal.SIG_IGN)  # the forked processes handle them
    preload()
    # Locks that other threads hold would remain locked in a fork.
    can_fork = threading.active_count() == 1
    statuses: dict[int, int] = {}
    with socket.socket(fileno=os.dup(0)) as requests:
        while True:
            if select.select([requests], [], [], _LOOK_S if statuses else None)[0]:
                argument, (*descriptors,), *_ = socket.recv_fds(requests, 1 << 16, 2)
                if not argument:
                    return None
                own_input, status = descriptors
                os.set_inheritable(status, False)  # a later process would hold it open
                try:
                    text = argument.decode()
                    if can_fork:
                        process = os.fork()
                    else:  # the forked process, which keeps only its own status pipe
                        command = [*sys.orig_argv, text]
                        moves = ((own_input, 0), (status, status))
                        actions = [(os.POSIX_SPAWN_DUP2, *move) for move in moves]
                        process = os.posix_spawn(
                            sys.executable, command, os.environ, file_actions=actions
                        )
                except OSError:  # too little memory, or too many processes: close the status pipe
                    os.close(status)
                else:
                    if not process:
                        for other in statuses.values():
                            os.close(other)
                        os.dup2(own_input, 0)
                        return text
                    with suppress(OSError):  # no process waits for it
                        os.write(status, _STATUS_NUMBER.pack(process))
                    statuses[process] = status
                os.close(own_input)
            while statuses and (ended := os.waitpid(-1, os.WNOHANG))[0]:
                status = statuses.pop(ended[0])
                with suppress(OSError):  # no process waits for it
                    os.write(status, _STATUS_NUMBER.pack(os.waitstatus_to_exitcode(ended[1])))
                os.close(status)
