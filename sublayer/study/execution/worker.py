"""A process that makes runs of a comparison, one after another, beside others.

It reads its jobs from standard input, and writes to standard output how they go; what libraries
print goes to standard error. Where standard input ends, whoever started the process is gone or
wants it to stop: it saves and stops, as after a signal.
"""

import _thread
import json
import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from sublayer.study.execution.process import Lines, read_lines
from sublayer.system.signals import ignore_from_now_on, interruption, take_over
from sublayer.system.stage_displays import HeardStages
from sublayer.system.stages import shown_by, stage
from sublayer.training.progress import Progress, Status

if TYPE_CHECKING:
    from sublayer.study.execution.shared_data import SharedData

_STATUS_S = 0.25
"""Between two statuses, at least: nobody reads faster."""


class Channel:
    """Writes messages to what was standard output, from any thread."""

    def __init__(self) -> None:
        self._file = os.fdopen(os.dup(1), "w", encoding="utf-8")
        self._lock = threading.Lock()
        os.dup2(2, 1)

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a message; lose it where nobody reads any more."""
        with self._lock, suppress(OSError):
            self._file.write(f"{json.dumps(message)}\n")
            self._file.flush()


class _SentProgress(Progress):
    """Progress that somebody else shows."""

    is_alone = False

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._last = -float("inf")

    def update(self, status: Status) -> None:
        from sublayer.study.execution.job import status_message

        now = time.monotonic()
        if now - self._last >= _STATUS_S or status.step == status.steps:
            self._last = now
            self._channel.send(status_message(status))

    def note(self, text: str) -> None:
        self._channel.send({"note": text})

    def warn(self, text: str) -> None:
        self._channel.send({"warning": text})


def main() -> int:
    """Make the runs that standard input names, a line each; return 0, whatever came of them.

    The end of each run is a message, and after one that is not done the process ends too. An error
    that no user can mend is raised.
    """
    take_over()
    # Between two runs the end of standard input ends it, and no signal.
    interruption.is_over = True
    channel = Channel()
    lines = read_lines(at_end=_stop)
    worker = _Worker(channel)
    is_done = True
    while is_done and (line := lines.get()) is not None:
        end = worker.attend(line, lines)
        channel.send(end)
        is_done = end["end"] == "done"
    ignore_from_now_on()
    return 0


class _Worker:
    """Makes runs, and keeps the data of the last for the next that reads the same."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._data: SharedData | None = None

    def attend(self, line: bytes, lines: Lines) -> dict[str, Any]:
        """Make the run of a line, and return the message that it ends with.

        ``lines`` are those that follow: where their end is there already, nothing is begun.
        """
        send = self._channel.send
        stages = HeardStages(lambda text: send({"stage": text}), lambda text: send({"note": text}))
        try:
            interruption.is_over = False
            if not lines.empty():
                raise KeyboardInterrupt
            with shown_by(stages):
                end = self._make_run(line)
        except BaseException as error:
            described = _describe(error)
            if described is None:
                raise
            end = described
        interruption.is_over = True
        return end

    def _make_run(self, line: bytes) -> dict[str, Any]:
        # Signals are taken over by now: what is imported takes seconds.
        with stage("starting PyTorch"):
            import torch

            from sublayer.config.layering.layers import LoadedRecipe
            from sublayer.data.shards.workers import limited_to
            from sublayer.errors import DataError
            from sublayer.study.execution.job import DONE, read_job
            from sublayer.study.execution.one_run import Task, finish_run
            from sublayer.study.execution.shared_data import SharedData

        job = read_job(line)
        threads = job.recipe.train.threads
        if threads is not None:
            torch.set_num_threads(threads)
        self._data = self._data or SharedData(1)
        # Others compute beside it, and a scheduler ends what takes more than its share.
        with limited_to(threads):
            data = self._data.of(job.recipe)
        if job.checksums and data.checksums != job.checksums:
            raise DataError("the text has changed since the comparison began: bring it back")
        loaded = LoadedRecipe(job.recipe, {}, job.label, ())
        task = Task(
            job.label,
            job.path,
            loaded,
            data,
            job.scored,
            job.scoring,
            finetunes=job.finetunes,
            is_scored=job.is_scored,
            members=job.members,
            inspecting=job.inspecting,
            plan=job.plan,
        )
        finish_run(task, _SentProgress(self._channel), device=job.device)
        torch.cuda.empty_cache()  # others need the memory, and a next run counts its own
        return DONE


def _stop() -> None:
    _thread.interrupt_main(signal.SIGTERM)


def _describe(error: BaseException) -> dict[str, Any] | None:
    from sublayer.study.execution.job import STOPPED, end_message

    end = end_message(error)
    # A library may make another error of an interruption.
    if interruption.was_raised or isinstance(error, KeyboardInterrupt):
        return STOPPED
    return end
