"""A name for one start of several processes, on which they agree in the store where they meet.

A launcher that starts processes again may give them the store of those before, as ``torchrun`` of
PyTorch 2.13 does. What that holds, such as the addresses of dead processes, must not be taken for
what the new ones say: they keep all under their start's name.
"""

import time
import uuid
from datetime import timedelta
from typing import Any

_LOOKS_S = 0.02


def agree_on_start(store: Any, rank: int, size: int, timeout: timedelta) -> str:
    """Return the name of this start, the same in all ``size`` processes and in no earlier ones.

    The first chooses it, and tells it each process that asks by a word of its own, until that has
    repeated it. Raises RuntimeError where one does not come within ``timeout``.
    """
    word = uuid.uuid4().hex
    end = time.monotonic() + timeout.total_seconds()
    if rank > 0:
        store.set(f"ask {rank}", word)
    told: dict[int, str] = {}
    while time.monotonic() < end:
        if rank > 0:
            asked, _, name = _read(store, f"tell {rank}").partition(" ")
            if asked == word:
                store.set(f"heard {rank}", name)
                return name
        elif _tell(store, size, word, told):
            return word
        time.sleep(_LOOKS_S)
    raise RuntimeError("Timed out waiting for the other processes to start")


def _tell(store: Any, size: int, name: str, told: dict[int, str]) -> bool:
    """Tell the name to each that asks; return whether all have heard it."""
    others = range(1, size)
    for other in others:
        asked = _read(store, f"ask {other}")
        if asked != told.get(other, ""):
            store.set(f"tell {other}", f"{asked} {name}")
            told[other] = asked
    return all(_read(store, f"heard {other}") == name for other in others)


def _read(store: Any, key: str) -> str:
    if not store.check([key]):
        return ""
    value: bytes = store.get(key)
    return value.decode()
