"""Where all runs stand, as a text in the study's folder."""

import time
from collections.abc import Mapping
from contextlib import suppress
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
        self._written = ""

    def refresh(self, running: Mapping[str, tuple[Progress | None, str]]) -> None:
        """Write it if that was some time ago, or nothing runs, and it says something new.

        ``running`` are runs that the cluster has: where each stands, and why it waits.
        """
        lines = [f"done: {self._tally.describe()}"]
        lines += [f"{run}: {_describe(*each)}" for run, each in running.items()]
        text = "".join(f"{line}\n" for line in lines)
        now = time.monotonic()
        is_early = bool(running) and now - self._last < _WRITE_S
        if is_early or text == self._written:
            return
        self._last, self._written = now, text
        # For people alone: where it cannot be written, the next one may be.
        with suppress(OSError):
            write_file(self._path, text)


def _describe(progress: Progress | None, reason: str) -> str:
    if progress is None:
        return f"waiting ({reason})" if reason else "waiting"
    status = progress.read_status()
    where = "" if status is None else f"step {status.step}/{status.steps}"
    return f"on {progress.host}, {progress.stage or where}"
