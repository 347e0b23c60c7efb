"""The files through which a comparison and the node of a run talk: JSON in the shared folder."""

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sublayer.errors import CheckpointError
from sublayer.files.storage import write_file
from sublayer.files.typed import Count, Typed, read_typed
from sublayer.study.execution.job import Job, read_job, read_status, write_job
from sublayer.training.progress import Status

CLUSTER = "cluster"
"""The folder, in a study's, of all that its cluster needs."""
STOP = "stop"
"""A file in it that asks all runs to save and stop."""


class Progress(Typed):
    """Where a run stands on its node, at a try."""

    number: Count
    """Of the try, from 1."""
    host: str
    stage: str = ""
    status: dict[str, Any] | None = None
    notes: list[str] = []
    warnings: list[str] = []

    def read_status(self) -> Status | None:
        """Return where its training stands; None before that."""
        return read_status({"status": self.status})


class End(Typed):
    """What a try ended with: ``end`` as ``job.read_end`` has it, or ``DIED``."""

    end: str
    text: str = ""
    host: str = ""
    errno: int | None = None
    file: str | None = None


DIED = "died"
"""The process of the run ended without a word, as where it is killed."""


@dataclass(frozen=True)
class RunFiles:
    """The files of one run below a study's ``cluster`` folder."""

    folder: Path

    def write_job(self, job: Job) -> None:
        """Say what the run is."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_file(self.folder / "job.json", write_job(job))

    def read_job(self) -> Job:
        """Return what the run is. Raises OSError where the folder is not here."""
        return read_job((self.folder / "job.json").read_bytes())

    def log(self, number: int) -> Path:
        """Return the file of what a try's processes print."""
        return self.folder / f"log-{number}.txt"

    def write_progress(self, progress: Progress) -> None:
        """Say where the run stands."""
        write_file(self.folder / "progress.json", f"{progress.model_dump_json()}\n")

    def read_progress(self, number: int) -> Progress | None:
        """Return where a try stands; None where it has not begun, or that cannot be read."""
        # It is for people alone: what a try came to stands elsewhere.
        with suppress(OSError, CheckpointError):
            progress = read_typed(self.folder / "progress.json", Progress, CheckpointError)
            return progress if progress.number == number else None
        return None

    def begin(self, number: int) -> None:
        """Forget how a try ended that a scheduler has begun again."""
        (self.folder / _end_name(number)).unlink(missing_ok=True)

    def write_end(self, number: int, end: Mapping[str, Any]) -> None:
        """Say how a try ended."""
        write_file(self.folder / _end_name(number), f"{json.dumps(end)}\n")

    def read_end(self, number: int) -> End | None:
        """Return how a try ended; None where it did not say.

        Raises OSError and CheckpointError where that cannot be read.
        """
        # Listed, so that a shared file system looks for what is new.
        if _end_name(number) not in list_names(self.folder):
            return None
        return read_typed(self.folder / _end_name(number), End, CheckpointError)


def list_names(folder: Path) -> Sequence[str]:
    """Return the names in a folder; none where it is missing. Raises OSError."""
    try:
        return [path.name for path in folder.iterdir()]
    except FileNotFoundError:
        return ()


def _end_name(number: int) -> str:
    return f"end-{number}.json"
