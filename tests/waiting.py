"""Somebody who waits for a lock of the cache, and what another process does meanwhile."""

import threading

from sublayer.files.storage import held
from sublayer.system.terminal import HeardStages, shown_by


def waits_until(folder, line, waits, meanwhile):
    """Return what ``waits`` returns, which says ``line`` while ``folder`` is held."""
    is_waiting, results = threading.Event(), []

    hear = lambda text: is_waiting.set() if text == line else None  # noqa: E731
    waiting = threading.Thread(target=lambda: results.append(waits()))
    with shown_by(HeardStages(hear, hear)):
        with held(folder):
            waiting.start()
            assert is_waiting.wait(60), f"it waits and says: {line}"
            meanwhile()
        waiting.join()
    [result] = results
    return result
