"""A run in a process of its own, as the process sees it that started it."""

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
    """A process that makes one run. It stops where its standard input ends, also with its parent.

    ``hear`` is called from another thread with the child and each of its messages, and with None
    after the last.
    """

    def __init__(self, job: Job, hear: Callable[["Child", Mapping[str, Any] | None], None]) -> None:
        """Start the process. Raises OSError where the system has no room for one."""
        self.job = job
        self.end: Mapping[str, Any] | None = None
        """The message that it ended with; None before, and where it died without."""
        self.code = 0
        """The exit code, negative for a signal, once it is waited for."""
        self._hear = hear
        command = python_command("sublayer.study.execution.worker")
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert self._process.stdin is not None
        self._input = self._process.stdin
        self._reader = Thread(target=self._read, daemon=True)
        self._reader.start()
        with suppress(OSError):  # it is gone already, which its end tells
            self._input.write(write_job(job))
            self._input.flush()

    def stop(self) -> None:
        """Ask it to save and stop."""
        with suppress(OSError):
            self._input.close()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()
        self.wait()

    def wait(self) -> Exception | None:
        """Wait until it has ended, and return what ended it; None where its run is done."""
        code = self.code = self._process.wait()
        self._reader.join()
        self.stop()
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
