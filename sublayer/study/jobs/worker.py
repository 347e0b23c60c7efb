"""The process of a job: makes or resumes the run, and writes its status.

Its argument is the job's folder. It saves and stops when its standard input closes, on a cluster at
the job's stop file, and on signals.
"""

import _thread
import os
import signal
import socket
import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sublayer.files.storage import is_held
from sublayer.system.processes import at_end_of_input, forked_argument
from sublayer.system.signals import ignore_from_now_on, interruption, take_over
from sublayer.system.terminal import HeardStages, shown_by, stage
from sublayer.training.log import Progress, Status

if TYPE_CHECKING:
    from sublayer.study.jobs.files import End, JobFiles, Order

_LOCAL_S, _SHARED_S = 0.25, 1.0
"""Minimum seconds between statuses: on one machine, and in a folder shared by many nodes."""
_LOCK_S = 1.0
_END_S = 60.0
"""Seconds of retrying to write a job's end on a full or absent file system."""


def main() -> int:
    """Make the run of the given folder, or serve forks that do; return 0 for any outcome."""
    os.dup2(2, 1)  # libraries print to standard error
    folder = forked_argument(_preload)
    if folder is None:
        return 0
    take_over()  # the imports take seconds
    with suppress(KeyboardInterrupt):
        make_run(Path(folder))
    ignore_from_now_on()
    return 0


def _preload() -> None:
    import tensorboardX

    from sublayer.objective import causal
    from sublayer.study.jobs import files, run

    del tensorboardX, causal, files, run


def make_run(folder: Path) -> None:
    """Make the run of a job's folder, and write its end; raise internal errors."""
    from sublayer.study.jobs.files import DONE, STOPPED, JobFiles, end_of

    files = JobFiles(folder)
    reporter = _Reporter(files)
    end = DONE
    try:
        order = files.read_job()
        if order.stop_file is None:
            at_end_of_input(lambda: _thread.interrupt_main(signal.SIGTERM))
        else:
            log = os.open(files.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
            os.dup2(log, 1)
            os.dup2(log, 2)
            os.close(log)
        reporter.stop_file = order.stop_file
        with shown_by(HeardStages(reporter.stage, reporter.note)):
            reporter.check_stop()
            _make(order, reporter)
    except BaseException as error:
        end = end_of(error)
        # A library may make another error of an interruption.
        if interruption.was_raised or isinstance(error, KeyboardInterrupt):
            end = STOPPED
        elif end.is_crash:
            raise
    finally:
        interruption.is_over = True
        reporter.end(end)


def _make(order: "Order", reporter: "_Reporter") -> None:
    from sublayer.errors import ConfigError, DataError, FolderHeld
    from sublayer.study.jobs.files import installed_versions

    here = installed_versions()
    for package, wanted in order.versions.items():
        if here[package] != wanted:
            raise ConfigError(
                f"{reporter.host} has {package} {here[package]}, and compare {wanted}: install the "
                "same on all nodes"
            )
    with stage("starting PyTorch"):
        import torch

        from sublayer.data.shards import limited_to
        from sublayer.study.jobs.run import Job, SharedData, finish_run
    job = Job(data=SharedData(1), **vars(order.spec))
    threads = job.recipe.train.threads
    while True:
        if is_held(job.path):
            with stage(f"waiting for {job.path}, in use by another process"):
                while is_held(job.path):
                    reporter.check_stop()
                    time.sleep(_LOCK_S)
        if job.is_finished():
            return  # made by the process that this one waited for
        if threads is not None:
            torch.set_num_threads(threads)
        # Others compute in parallel, and a scheduler ends jobs that exceed their share.
        with limited_to(threads):
            data = job.find_data()
        if order.checksums and data.checksums != order.checksums:
            raise DataError("the text has changed since the comparison began: restore it")
        with suppress(FolderHeld):  # another process took it first
            finish_run(replace(job, data=data), reporter, device=order.device)
            return


class _Reporter(Progress):
    """Writer of a job's status, from any thread."""

    is_alone = False

    def __init__(self, files: "JobFiles") -> None:
        """Report in the files of a job."""
        from sublayer.study.jobs.files import JobStatus

        self.host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        self.stop_file: Path | None = None
        """Stop file of the job, on a cluster."""
        self._files = files
        self._lock = threading.RLock()
        self._status = JobStatus(self.host)
        self._written = -float("inf")
        self._change()

    def update(self, status: Status) -> None:
        """Write the progress of the training, unless written a moment ago."""
        pause_s = _LOCAL_S if self.stop_file is None else _SHARED_S
        if time.monotonic() - self._written >= pause_s or status.step == status.steps:
            self._change(training=status, stage="")
            self.check_stop()

    def stage(self, text: str) -> None:
        """Write the stage; "" while it trains."""
        if text or self._status.training is not None:
            self._change(stage=text)

    def note(self, text: str) -> None:
        """Write a line for the command to print."""
        self._change(notes=(*self._status.notes, text))

    def warn(self, text: str) -> None:
        """Write a warning for the command to print, about one of its runs."""
        self._change(warnings=(*self._status.warnings, text))

    def check_stop(self) -> None:
        """Save and stop if the stop file exists."""
        with suppress(OSError):
            if self.stop_file is not None and self.stop_file.exists():
                self.stop_file = None
                signal.raise_signal(signal.SIGTERM)

    def end(self, end: "End") -> None:
        """Write the end of the job, as soon as possible."""
        until = time.monotonic() + _END_S
        while not self._change(end=end):
            if time.monotonic() > until:
                return
            time.sleep(_LOCK_S)

    def _change(self, **changes: Any) -> bool:
        """Replace the status, informative only; return whether it was written."""
        with self._lock:
            self._status = replace(self._status, **changes)
            self._written = time.monotonic()
            try:
                self._files.write_status(self._status)
            except OSError:
                return False
            return True
