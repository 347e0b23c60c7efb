"""The standard input of a process that another one started."""

import os
import threading
from collections.abc import Callable


def read_line(at_end: Callable[[], None]) -> bytes:
    """Read a line of standard input; ``at_end`` is called, from another thread, where that ends.

    What reads standard input after this finds nothing there.
    """
    descriptor = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    # Without a buffer: nothing may be held by the thread that waits when the process ends.
    with os.fdopen(descriptor, "rb", buffering=0, closefd=False) as file:
        line = file.readline()
    threading.Thread(target=_call_at_end, args=(descriptor, at_end), daemon=True).start()
    return line


def _call_at_end(descriptor: int, at_end: Callable[[], None]) -> None:
    while os.read(descriptor, 1):
        pass
    at_end()
