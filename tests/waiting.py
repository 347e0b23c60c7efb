"""Somebody who waits for a lock of the cache, and what another process does meanwhile."""

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from sublayer.system.lock import held
from sublayer.system.stage_displays import HeardStages
from sublayer.system.stages import shown_by


def waits_until(
    folder: Path, line: str, waits: Callable[[], Any], meanwhile: Callable[[], Any]
) -> Any:
    """Return what ``waits`` returns, which says ``line`` while ``folder`` is held.

    Once it does, ``meanwhile`` is called, and the folder is let go.
    """
    is_waiting = threading.Event()
    results = []

    def hear(text: str) -> None:
        if text == line:
            is_waiting.set()

    waiting = threading.Thread(target=lambda: results.append(waits()))
    with shown_by(HeardStages(hear, hear)):
        with held(folder):
            waiting.start()
            assert is_waiting.wait(60), f"it waits and says: {line}"
            meanwhile()
        waiting.join()
    [result] = results
    return result
