"""The process of one run of a comparison, of which several are trained side by side.

It reads its job from standard input, and writes to standard output how it goes; what libraries
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
from typing import Any

from sublayer.study.execution.process import read_line
from sublayer.system.signals import ignore_from_now_on, interruption, take_over
from sublayer.system.stage_displays import HeardStages, Say
from sublayer.system.stages import shown_by, stage
from sublayer.training.progress import Progress, Status

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
    """Make the run that standard input names, and return the exit code: 0, whatever came of it.

    What a user can mend is a message; any other error is raised.
    """
    take_over()
    channel = Channel()
    stages = HeardStages(lambda text: channel.send({"stage": text}), _note_by(channel))
    try:
        with shown_by(stages):
            end = _make_run(channel)
    except BaseException as error:
        described = _describe(error)
        if described is None:
            raise
        end = described
    interruption.is_over = True
    channel.send(end)
    ignore_from_now_on()
    return 0


def _make_run(channel: Channel) -> dict[str, Any]:
    line = read_line(at_end=_stop)
    # Signals are taken over by now: what is imported takes seconds.
    with stage("starting PyTorch"):
        import torch

    from sublayer.config.layering.layers import LoadedRecipe
    from sublayer.data.shards.workers import limited_to
    from sublayer.errors import DataError
    from sublayer.runs.session import prepare_data
    from sublayer.study.execution.job import DONE, read_job
    from sublayer.study.execution.one_run import Task, finish_run

    job = read_job(line)
    threads = job.recipe.train.threads
    if threads is not None:
        torch.set_num_threads(threads)
    progress = _SentProgress(channel)
    # Others compute beside it, and a scheduler ends what takes more than its share.
    with limited_to(threads):
        data = prepare_data(job.recipe)
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
    )
    finish_run(task, progress, device=job.device)
    return DONE


def _note_by(channel: Channel) -> Say:
    def send(text: str) -> None:
        channel.send({"note": text})

    return send


def _stop() -> None:
    _thread.interrupt_main(signal.SIGTERM)


def _describe(error: BaseException) -> dict[str, Any] | None:
    from sublayer.study.execution.job import STOPPED, end_message

    end = end_message(error)
    # A library may make another error of an interruption.
    if interruption.was_raised or isinstance(error, KeyboardInterrupt):
        return STOPPED
    return end
