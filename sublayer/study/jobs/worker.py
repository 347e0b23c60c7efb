"""The process of a job: makes the run, resumed where it left off, and writes its status.

Its argument is the job's folder. On one machine the end of its standard input has it save and stop,
on a cluster the job's stop file; a signal does so on both.
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

from sublayer.system.fork_server import forked_argument
from sublayer.system.launch import at_end_of_input
from sublayer.system.lock import is_held
from sublayer.system.signals import ignore_from_now_on, interruption, take_over
from sublayer.system.stages import HeardStages, shown_by, stage
from sublayer.training.progress import Progress, Status

if TYPE_CHECKING:
    from sublayer.study.jobs.files import End, JobFiles, Order

_LOCAL_S, _SHARED_S = 0.25, 1.0
"""Between two statuses, at least: on one machine, and in a folder that many nodes share."""
_LOCK_S = 1.0
_END_S = 60.0
"""Seconds for which a full or absent file system is tried again with the end of a job."""


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
    """Make the run of a job's folder, and write its end; raise an error of the program itself."""
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
        from sublayer.study.jobs.run import Job, SharedData, finish_run, is_finished
    job = Job(data=SharedData(1), **vars(order.spec))
    threads = job.recipe.train.threads
    while True:
        if is_held(job.path):
            with stage(f"waiting for {job.path}, where another process works"):
                while is_held(job.path):
                    reporter.check_stop()
                    time.sleep(_LOCK_S)
        if is_finished(job):
            return  # made by the process for which this one waited
        if threads is not None:
            torch.set_num_threads(threads)
        # Others compute beside it, and a scheduler ends what takes more than its share.
        with limited_to(threads):
            data = job.find_data()
        if order.checksums and data.checksums != order.checksums:
            raise DataError("the text has changed since the comparison began: bring it back")
        with suppress(FolderHeld):  # another process took it first
            finish_run(replace(job, data=data), reporter, device=order.device)
            return


class _Reporter(Progress):
    """Writes the status of a job, from any thread."""

    is_alone = False

    def __init__(self, files: "JobFiles") -> None:
        """Report in the files of a job."""
        from sublayer.study.jobs.files import JobStatus

        self.host = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
        self.stop_file: Path | None = None
        """On a cluster: the file that asks the job to stop."""
        self._files = files
        self._lock = threading.RLock()
        self._status = JobStatus(self.host)
        self._written = -float("inf")
        self._change()

    def update(self, status: Status) -> None:
        """Write the progress of the training, unless the last was written a moment ago."""
        pause_s = _LOCAL_S if self.stop_file is None else _SHARED_S
        if time.monotonic() - self._written >= pause_s or status.step == status.steps:
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

    def end(self, end: "End") -> None:
        """Write the end of the job, as soon as that can be written."""
        until = time.monotonic() + _END_S
        while not self._change(end=end):
            if time.monotonic() > until:
                return
            time.sleep(_LOCK_S)

    def _change(self, **changes: Any) -> bool:
        """Replace the status; return whether it was written, for it is for people alone."""
        with self._lock:
            self._status = replace(self._status, **changes)
            self._written = time.monotonic()
            try:
                self._files.write_status(self._status)
            except OSError:
                return False
            return True
