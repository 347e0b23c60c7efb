"""The process of a job: makes the run, resumed where it left off, and writes its status.

On a cluster its argument is the job's folder. On one machine it makes several runs, one after
another, beside other such processes: each line of standard input is the folder of a job, and the
end of standard input has it save and stop, as a signal does.
"""

import _thread
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublayer.system.launch import Lines, read_lines
from sublayer.system.lock import is_held
from sublayer.system.signals import ignore_from_now_on, interruption, take_over
from sublayer.system.stages import HeardStages, shown_by, stage
from sublayer.training.progress import Progress, Status

if TYPE_CHECKING:
    from sublayer.study.jobs.files import JobFiles, Order
    from sublayer.study.jobs.run import SharedData

_LOCAL_S, _SHARED_S = 0.25, 1.0
"""Between two statuses, at least: on one machine, and in a folder that many nodes share."""
_LOCK_S = 1.0
_END_S = 60.0
"""Seconds for which a full or absent file system is tried again with the end of a job."""


def main() -> int:
    """Make the runs of the given folders; return 0 for any outcome."""
    take_over()
    # Between two runs the end of standard input ends it, and no signal.
    interruption.is_over = True
    os.dup2(2, 1)  # libraries print to standard error
    folder = sys.argv[2] if len(sys.argv) > 2 else None
    worker = Worker(is_alone=folder is not None)
    if folder is not None:
        worker.make(Path(folder))
    else:
        lines = read_lines(at_end=_stop)
        is_done = True
        while is_done and (line := lines.get()) is not None:
            is_done = worker.make(Path(line.decode().rstrip("\n")), lines)
    ignore_from_now_on()
    return 0


def _stop() -> None:
    _thread.interrupt_main(signal.SIGTERM)


class Worker:
    """Makes runs, and keeps the data of the last for the next that reads the same."""

    def __init__(self, *, is_alone: bool) -> None:
        """``is_alone``: on a node of a cluster, where the job's folder has its log."""
        self._is_alone = is_alone
        self._data: SharedData | None = None

    def make(self, folder: Path, lines: Lines | None = None) -> bool:
        """Make the run of a job's folder, and write its end; return whether it is done.

        With the end of ``lines`` there already, nothing is begun. An error of the program itself is
        raised.
        """
        from sublayer.study.jobs.files import DONE, STOPPED, JobFiles, end_message

        files = JobFiles(folder)
        if self._is_alone:
            log = os.open(files.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
        reporter = _Reporter(files, is_shared=self._is_alone)
        end = DONE
        try:
            interruption.is_over = False
            if lines is not None and not lines.empty():
                raise KeyboardInterrupt
            with shown_by(HeardStages(reporter.stage, reporter.note)):
                self._make(files, reporter)
        except BaseException as error:
            end = end_message(error)
            # A library may make another error of an interruption.
            if interruption.was_raised or isinstance(error, KeyboardInterrupt):
                end = STOPPED
            elif end["end"] == "crash":
                raise
        finally:
            interruption.is_over = True
            reporter.end(end)
        return end is DONE

    def _make(self, files: "JobFiles", reporter: "_Reporter") -> None:
        # Signals are taken over by now: the import takes seconds.
        with stage("starting PyTorch"):
            from sublayer.errors import FolderHeld
            from sublayer.study.jobs.run import SharedData

        self._data = self._data or SharedData(1)
        order = files.read_job(self._data)
        reporter.stop_file = order.stop_file
        reporter.check_stop()
        if self._is_alone:
            _check_versions(order, reporter.host)
        while True:
            if self._is_alone:
                _wait_until_free(order.job.path, reporter)
            try:
                self._finish(order, reporter)
            except FolderHeld:  # another process took it first
                if not self._is_alone:
                    raise
            else:
                return

    def _finish(self, order: "Order", reporter: "_Reporter") -> None:
        import torch

        from sublayer.data.shards import limited_to
        from sublayer.errors import DataError
        from sublayer.study.jobs.run import finish_run, is_finished

        if self._is_alone and is_finished(order.job):
            return  # made by the process for which this one waited
        recipe = order.job.loaded.recipe
        threads = recipe.train.threads
        if threads is not None:
            torch.set_num_threads(threads)
        # Others compute beside it, and a scheduler ends what takes more than its share.
        with limited_to(threads):
            data = order.job.find_data()
        if order.checksums and data.checksums != order.checksums:
            raise DataError("the text has changed since the comparison began: bring it back")
        finish_run(replace(order.job, data=data), reporter, device=order.device)
        torch.cuda.empty_cache()  # others need the memory, and a next run counts its own


def _wait_until_free(folder: Path, reporter: "_Reporter") -> None:
    """Wait until no other process writes in a run's folder, or the stop file is there."""
    if is_held(folder):
        reporter.stage(f"waiting for {folder}, where another process works")
        while is_held(folder):
            reporter.check_stop()
            time.sleep(_LOCK_S)
        reporter.stage("starting")


def _check_versions(order: "Order", host: str) -> None:
    from sublayer.errors import ConfigError
    from sublayer.study.jobs.files import installed_versions

    here = installed_versions()
    for package, wanted in order.versions.items():
        if here[package] != wanted:
            raise ConfigError(
                f"{host} has {package} {here[package]}, and compare {wanted}: install the same on "
                "all nodes"
            )


class _Reporter(Progress):
    """Writes the status of a job, from any thread."""

    is_alone = False

    def __init__(self, files: "JobFiles", *, is_shared: bool) -> None:
        from sublayer.study.jobs.files import JobStatus

        self.host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        self.stop_file: Path | None = None
        self._files = files
        self._pause_s = _SHARED_S if is_shared else _LOCAL_S
        self._lock = threading.RLock()
        self._status = JobStatus(self.host)
        self._written = -float("inf")
        self._change()

    def update(self, status: Status) -> None:
        """Write the progress of the training, unless the last was written a moment ago."""
        if time.monotonic() - self._written >= self._pause_s or status.step == status.steps:
            self._change(training=status, stage="")
            self.check_stop()

    def stage(self, text: str) -> None:
        """Write the stage of the work; "" while it trains."""
        if text or self._status.training is not None:
            self._change(stage=text)

    def note(self, text: str) -> None:
        """Write a line that the command prints."""
        self._change(notes=(*self._status.notes, text))

    def warn(self, text: str) -> None:
        """Write a line that the command prints of one of its runs."""
        self._change(warnings=(*self._status.warnings, text))

    def check_stop(self) -> None:
        """Save and stop where the stop file is there."""
        with suppress(OSError):
            if self.stop_file is not None and self.stop_file.exists():
                self.stop_file = None
                signal.raise_signal(signal.SIGTERM)

    def end(self, end: Mapping[str, Any]) -> None:
        """Write the end of the job, as soon as that can be written."""
        until = time.monotonic() + _END_S
        while True:
            try:
                self._change(end=end, must=True)
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(_LOCK_S)
            else:
                return

    def _change(self, *, must: bool = False, **changes: Any) -> None:
        with self._lock:
            self._status = replace(self._status, **changes)
            self._written = time.monotonic()
            try:
                self._files.write_status(self._status)
            except OSError:  # a status is for people alone
                if must:
                    raise
