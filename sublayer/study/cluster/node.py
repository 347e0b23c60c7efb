"""The process of a task on its node: it has one run made, and says in the study's folder how.

It takes little memory itself: the run is a process of its own, as where runs go side by side. A
signal, the end of its standard input where that is a leash, or the study's file ``stop`` have the
run saved and stopped.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType
from typing import Any

from sublayer.study.cluster.exchange import DIED, HELD, STOP, Progress, RunFiles
from sublayer.study.cluster.probe import answer, node_name
from sublayer.study.execution.child import Child
from sublayer.system.lock import is_held

LEASHED, FREE = "leashed", "free"
"""Whether the process ends with its standard input."""
_WRITE_S = 1.0
"""Between two looks at what there is to write, and whether to stop."""
_HELD_S = 60.0
"""How long another try may take to save and let go of the run's folder."""


def main() -> int:
    """Answer a probe, or make a run, as the words after the path of modules say; return 0.

    What came of it is said in the study's folder alone.
    """
    _, _, leash, task, *words = sys.argv
    stopping = threading.Event()
    _listen(stopping, is_leashed=leash == LEASHED)
    if task == "probe":
        folder, token = words
        answer(Path(folder), token)
        return 0
    root, folder, number = words
    _OneRun(Path(root), RunFiles(Path(folder)), int(number), stopping).make()
    return 0


def _listen(stopping: threading.Event, *, is_leashed: bool) -> None:
    def on_signal(number: int, frame: FrameType | None) -> None:
        stopping.set()

    for each in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(each, on_signal)
    if is_leashed:

        def wait_for_end() -> None:
            while os.read(0, 1):
                pass
            stopping.set()

        threading.Thread(target=wait_for_end, daemon=True).start()


class _OneRun:
    """A try at one run."""

    def __init__(self, root: Path, files: RunFiles, number: int, stopping: threading.Event) -> None:
        self._stop_file = root / STOP
        self._files = files
        self._number = number
        self._stopping = stopping
        self._host = node_name()
        self._ended = threading.Event()
        self._progress = Progress(number=number, host=self._host, stage="starting")
        self._lock = threading.Lock()

    def make(self) -> None:
        """Have the run made, and write what it ended with."""
        job = self._files.read_job()
        log = os.open(self._files.log(self._number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(log, 1)
        os.dup2(log, 2)
        self._files.begin(self._number)
        self._files.write_progress(self._progress)
        if not self._is_free(job.path):
            self._end({"end": HELD, "text": f"{job.path} is held by another process"})
            return
        child = Child(job, self._hear)
        written = self._progress
        while not self._ended.wait(_WRITE_S):
            if self._is_stopped():
                child.stop()
            with self._lock:
                now = self._progress
            if now is not written:
                self._files.write_progress(now)
                written = now
        child.wait()
        with self._lock:
            self._files.write_progress(self._progress)
        if child.end is None:
            self._end({"end": DIED, "text": _describe_death(child.code)})
        else:
            self._end(child.end)

    def _is_stopped(self) -> bool:
        return self._stopping.is_set() or self._stop_file.exists()

    def _is_free(self, folder: Path) -> bool:
        """Wait until no earlier try writes in the run's folder; return whether that came."""
        until = time.monotonic() + _HELD_S
        while is_held(folder):
            if time.monotonic() > until or self._stopping.wait(_WRITE_S):
                return False
        return True

    def _hear(self, child: Child, message: Mapping[str, Any] | None) -> None:
        if message is None:
            self._ended.set()
            return
        changes: dict[str, Any] = {}
        if "status" in message:
            changes = {"status": message["status"], "stage": ""}
        if "stage" in message:
            changes = {"stage": message["stage"]}
        for one, several in (("note", "notes"), ("warning", "warnings")):
            if one in message:
                changes = {several: [*getattr(self._progress, several), message[one]]}
        with self._lock:
            self._progress = self._progress.model_copy(update=changes)

    def _end(self, end: Mapping[str, Any]) -> None:
        self._files.write_end(self._number, {**end, "host": self._host})


def _describe_death(code: int) -> str:
    if code < 0:
        return f"its process was ended by signal {-code}, as happens where memory is lacking"
    return f"its process ended with code {code}"
