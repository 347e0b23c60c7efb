"""Work beside training, in a thread that may give way to it."""

import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

_NICE = 10
"""By how much its thread gives way, in the units of ``nice``: beside a busy core it has a tenth."""


class Background:
    """One piece of work at a time in a thread of its own; what it raises is raised in ``wait``."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    @property
    def has_failed(self) -> bool:
        """Whether ``wait`` would raise now."""
        return self._error is not None

    def start(self, work: Callable[[], object]) -> None:
        """Begin ``work``, after what was begun before; raises what that raised."""
        self.wait()
        # Who ends because another process is lost does not wait for work that waits for it.
        self._thread = threading.Thread(target=self._run, args=(work,), daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait until what was begun is done; raise what it raised, once."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        error, self._error = self._error, None
        if error is not None:
            raise error

    def _run(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as error:
            self._error = error


def give_way() -> None:
    """Lower the priority of the thread that calls, where threads have their own."""
    if sys.platform == "linux":
        own = threading.get_native_id()
        # Where it is not allowed, the work is done all the same.
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, own, os.getpriority(os.PRIO_PROCESS, own) + _NICE)
