"""Where all runs stand, as a text in the study's folder."""

import time
from collections.abc import Mapping
from pathlib import Path

from sublayer.files.storage import write_file
from sublayer.study.cluster.exchange import Progress
from sublayer.study.execution.board import Tally

_WRITE_S = 5.0


class ProgressFile:
    """``progress.txt``: how many runs are done, and a line for each that waits or runs."""

    def __init__(self, folder: Path, tally: Tally) -> None:
        self._path = folder / "progress.txt"
        self._tally = tally
        self._last = -float("inf")

    def refresh(self, running: Mapping[str, Progress | None]) -> None:
        """Write it if that was some time ago; ``running`` are runs that the cluster has."""
        now = time.monotonic()
        if now - self._last < _WRITE_S and running:
            return
        self._last = now
        lines = [f"done: {self._tally.describe()}"]
        lines += [f"{run}: {_describe(progress)}" for run, progress in running.items()]
        write_file(self._path, "".join(f"{line}\n" for line in lines))


def _describe(progress: Progress | None) -> str:
    if progress is None:
        return "waiting"
    status = progress.read_status()
    where = "" if status is None else f"step {status.step}/{status.steps}"
    return f"on {progress.host}, {progress.stage or where}"
