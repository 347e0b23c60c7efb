"""A process that makes runs, as the process sees it that started it."""

import json
import subprocess
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Thread
from typing import Any

from sublayer.errors import TrainingError
from sublayer.study.execution.job import Job, read_end, write_job
from sublayer.system.python_process import python_command


class Child:
    """A process that makes a run, and then others. It stops where its standard input ends.

    ``hear`` is called from another thread with the child and each of its messages, of which the
    last of a run has an ``end``, and with None after the last of all.
    """

    def __init__(self, job: Job, hear: Callable[["Child", Mapping[str, Any] | None], None]) -> None:
        """Start the process with a run. Raises OSError where the system has no room for one."""
        self.end: Mapping[str, Any] | None
        """The message that its run ended with; None before, and where it died without."""
        self.code = 0
        """The exit code, negative for a signal, once it is waited for."""
        self._hear = hear
        command = python_command("sublayer.study.execution.worker")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        self._input = self._process.stdin
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        self.give(job)

    def give(self, job: Job) -> None:
        """Have it make a run, the one before being done."""
        self.job = job
        self.end = None
        with suppress(OSError):  # it is gone already, which its end tells
            self._input.write(write_job(job))
            self._input.flush()

    def stop(self) -> None:
        """Ask it to save and stop, or to end where it has no run."""
        with suppress(OSError):
            self._input.close()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self.wait()

    def wait(self) -> Exception | None:
        """Have it end, and wait for that; return what ended its run, None where that is done."""
        self.stop()
        code = self.code = self._process.wait()
        self._reader.join()
        if self.end is not None:
            return read_end(self.end, self.job.label)
        if code < 0:
            return TrainingError(
                f"{self.job.label}: its process was ended by signal {-code}, as happens where "
                "memory is lacking: the same command resumes, with fewer --jobs if need be"
            )
        return TrainingError(
            f"{self.job.label}: its process ended with code {code}, see what stands above: the "
            "same command resumes"
        )

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                try:
                    message = json.loads(line)
                except ValueError:  # cut off: it was killed
                    break
                if "end" in message:
                    self.end = message
                self._hear(self, message)
        self._hear(self, None)
