"""Say what is being done where it takes long, so that nobody waits before a silent program."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Say = Callable[[str], None]


def say_nothing(text: str) -> None:
    """Take what is said, and leave it."""


@contextmanager
def announced(what: str, say: Say, after_s: float = 1.0) -> Iterator[None]:
    """Say ``what`` is being done if it has not ended after so many seconds."""
    timer = threading.Timer(after_s, say, [what])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
