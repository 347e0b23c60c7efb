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
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

from sublayer.study.cluster.exchange import DIED, STOP, Progress, RunFiles
from sublayer.study.cluster.probe import answer, node_name
from sublayer.study.execution.child import Child
from sublayer.study.execution.job import FOLDER_HELD, Job
from sublayer.system.lock import is_held

LEASHED, FREE = "leashed", "free"
"""Whether the process ends with its standard input."""
_WRITE_S = 1.0
"""Between two looks at what there is to write, and whether to stop."""
_N_WRITES = 60
"""How often it is tried to write how a try ended."""


def main() -> int:
    """Answer a probe, or make a run, as the words after the path of modules say.

    What came of it is said in the study's folder alone; the exit code is 0 where it is.
    """
    _, _, leash, task, *words = sys.argv
    stopping = threading.Event()
    _listen(stopping, is_leashed=leash == LEASHED)
    if task == "probe":
        folder, token = words
        answer(Path(folder), token)
        return 0
    root, folder, number = words
    return _OneRun(Path(root), RunFiles(Path(folder)), int(number), stopping).make()


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

    def make(self) -> int:
        """Have the run made, and write what it ended with; return the exit code."""
        try:
            end = self._make()
        except OSError as error:
            end = {"end": DIED, "text": f"its process could not begin it ({error})"}
        return self._end(end)

    def _make(self) -> Mapping[str, Any]:
        job = self._files.read_job()
        log = os.open(self._files.log(self._number), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.close(log)
        self._files.begin(self._number)
        while self._is_free(job.path):
            end = self._try(job)
            # Another process may take the folder before the run's own does.
            if end["end"] != FOLDER_HELD:
                return end
        return {"end": FOLDER_HELD, "text": f"{job.path} is held by another process"}

    def _try(self, job: Job) -> Mapping[str, Any]:
        """Have the run made by a process of its own; return what it ended with."""
        self._ended.clear()
        child = Child(job, self._hear)
        written = None
        while not self._ended.wait(_WRITE_S):
            if self._is_stopped():
                child.stop()
            with self._lock:
                now = self._progress
            if now is not written:
                self._write_progress()
                written = now
        child.wait()
        self._write_progress()
        return child.end or {"end": DIED, "text": _describe_death(child.code)}

    def _write_progress(self) -> None:
        with self._lock:
            progress = self._progress
        # For people alone: the run goes on where it cannot be written.
        with suppress(OSError):
            self._files.write_progress(progress)

    def _is_stopped(self) -> bool:
        with suppress(OSError):
            return self._stopping.is_set() or self._stop_file.exists()
        return False

    def _is_free(self, folder: Path) -> bool:
        """Wait until no other process writes in the run's folder; return whether that came."""
        if is_held(folder):
            self._show(f"waiting for {folder}, where another process works")
        while is_held(folder):
            if self._is_stopped() or self._stopping.wait(_WRITE_S):
                return False
        self._show("starting")
        return True

    def _show(self, stage: str) -> None:
        with self._lock:
            self._progress = self._progress.model_copy(update={"stage": stage})
        self._write_progress()

    def _hear(self, child: Child, message: Mapping[str, Any] | None) -> None:
        if message is None or "end" in message:
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

    def _end(self, end: Mapping[str, Any]) -> int:
        """Write what the try ended with, as soon as that can be written; return the exit code."""
        for _ in range(_N_WRITES):
            try:
                self._files.write_end(self._number, {**end, "host": self._host})
            except OSError as error:
                why = error
                time.sleep(_WRITE_S)
            else:
                return 0
        sys.stderr.write(f"{end} cannot be written: {why}\n")
        return 1


def _describe_death(code: int) -> str:
    if code < 0:
        return f"its process was ended by signal {-code}, as happens where memory is lacking"
    return f"its process ended with code {code}"
