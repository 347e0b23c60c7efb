"""Preparations that were stopped: their shards lie in the cache until one goes on with them."""

import time
from pathlib import Path

from sublayer.counts import count
from sublayer.system.lock import is_held
from sublayer.system.stages import note

_DAY_S = 24 * 3600
_MOST_NAMED = 5


def unfinished_folder(path: Path, shard_bytes: int) -> Path:
    """Return where the shards of what is to become the file ``path`` are kept."""
    return path.with_name(f"{path.name}.{shard_bytes}.unfinished")


def note_unfinished(path: Path) -> None:
    """Say which preparations of other texts than that of ``path`` lie beside it, and take room."""
    found = []
    for folder in sorted(path.parent.glob("*.unfinished")):
        if folder.name.startswith(f"{path.name}.") or is_held(folder):
            continue
        described = _described(folder)
        if described is not None:
            found.append(described)
    if not found:
        return
    named = "; ".join(found[:_MOST_NAMED])
    if len(found) > _MOST_NAMED:
        named += f"; and {count(len(found) - _MOST_NAMED, 'other')}"
    note(
        f"{path.parent} keeps what was stopped or is of a text that changed: {named}. "
        "Delete what will not be gone on with"
    )


def _described(folder: Path) -> str | None:
    """Return a folder's name, size and age; None where another process removes it meanwhile."""
    try:
        statuses = [file.stat() for file in folder.iterdir()]
        newest = max(status.st_mtime for status in (folder.stat(), *statuses))
    except OSError:
        return None
    n_bytes = sum(status.st_size for status in statuses)
    n_days = max(0, int((time.time() - newest) / _DAY_S))
    age = f"{count(n_days, 'day')} old" if n_days else "of today"
    return f"{folder.name} ({n_bytes / 1e6:,.0f} MB, {age})"
