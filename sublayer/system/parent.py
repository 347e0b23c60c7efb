"""The standard input of a process that another one started."""

import os
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread

Lines = SimpleQueue[bytes | None]
"""Lines as they come; None follows the last."""


def read_lines(at_end: Callable[[], None]) -> Lines:
    """Read standard input from a thread of its own, which calls ``at_end`` after the last line.

    Whatever else reads standard input after this finds nothing there.
    """
    descriptor = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    lines: Lines = SimpleQueue()
    Thread(target=_read, args=(descriptor, lines, at_end), daemon=True).start()
    return lines


def _read(descriptor: int, lines: Lines, at_end: Callable[[], None]) -> None:
    # Without a buffer: the thread may hold nothing when the process ends.
    with os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file:
        for line in iter(file.readline, b""):
            lines.put(line)
    lines.put(None)
    at_end()
