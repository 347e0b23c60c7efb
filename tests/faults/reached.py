"""Notes which test is running where the code of a fault is reached; copied into the package."""

import os
from pathlib import Path

_seen: set[tuple[int, str]] = set()


def reach(number: int) -> None:
    test = os.environ.get("PYTEST_CURRENT_TEST", "")
    if (number, test) in _seen:
        return
    _seen.add((number, test))
    try:
        notes = Path(os.environ["SUBLAYER_FAULTS"]) / f"reached-{os.getpid()}"
        with notes.open("a", encoding="utf-8") as file:
            file.write(f"{number}\t{test}\n")
    except (OSError, KeyError):
        pass
