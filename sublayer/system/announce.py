"""Messages about work that takes long, so that the program is never silent for long."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]
"""Shows the user a line."""


def say_nothing(text: str) -> None:
    """Ignore a message."""


@contextmanager
def announced(what: str, say: Say, after_s: float = 1.0) -> Iterator[None]:
    """Say what is being done if it has not ended after some seconds.

    ``say`` is called from another thread.
    """
    timer = threading.Timer(after_s, say, [what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
