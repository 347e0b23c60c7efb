"""The place where processes meet, reached by each of them or named in one line where it is not.

A library tells the same by a page of its own frames, and tries for longer.
"""

import errno
import socket
import time
from datetime import timedelta
from typing import Any

from torch.distributed.rendezvous import rendezvous

from sublayer.errors import ConfigError, TrainingError
from sublayer.system.launch import has_launchers_store, is_first_launched, meeting_place

_LOOKS_S = 0.1
_ANSWERS_S = 2.0


def reach(timeout: timedelta) -> tuple[Any, int, int]:
    """Return the store where processes meet, the number of this one, and how many they are.

    Raises TrainingError where nothing answers within ``timeout``, ConfigError where the first
    cannot answer there.
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
    with socket.socket() as own:
        # As who listens there: what has only just ended is no obstacle.
        own.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            own.bind(("", port))
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
