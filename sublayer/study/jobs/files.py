"""The files of a job's process: its job, its status and its log, in a folder of its own.

The command that starts a job writes ``job.json`` and reads ``status.json``, which the process
replaces as it goes; on a cluster both lie in the study's folder, which all nodes share.
"""

import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from sublayer.config.load import LoadedRecipe
from sublayer.config.recipe import Recipe
from sublayer.config.run_recipe import absolute_paths
from sublayer.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    FolderHeld,
    Interrupted,
    SublayerError,
    TrainingError,
)
from sublayer.files.storage import write_file
from sublayer.study.inspection import Inspecting
from sublayer.study.scoring import Scoring
from sublayer.system.memory import lacks_memory
from sublayer.training.progress import Status

if TYPE_CHECKING:
    from sublayer.study.jobs.run import Job

_ERRORS = {
    kind.__name__: kind
    for kind in (FolderHeld, ConfigError, DataError, CheckpointError, TrainingError, Interrupted)
}
"""By name; a subclass before its base."""
_NO_MEMORY, _SYSTEM, _CRASH = "memory", "system", "crash"
DONE: Mapping[str, Any] = {"end": "done"}
STOPPED: Mapping[str, Any] = {"end": Interrupted.__name__, "text": "interrupted"}


@dataclass(frozen=True)
class JobStatus:
    """The state of a job, as its process writes it."""

    host: str
    stage: str = "starting"
    """"" while it trains."""
    training: Status | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    end: Mapping[str, Any] | None = None
    """The end of the process as ``end_message`` has it; None before."""


_STATUS = TypeAdapter(JobStatus)


class Order(BaseModel):
    """A job as its process reads it, by absolute paths."""

    model_config = ConfigDict(frozen=True)

    label: str
    path: Path
    recipe: Recipe
    scored: Recipe
    scoring: Scoring
    finetunes: bool
    is_scored: bool
    members: tuple[Path, ...]
    inspecting: Inspecting | None
    plan: dict[str, Any] | None
    checksums: dict[str, str]
    """Checksums of its text; empty: it is not prepared yet."""
    device: str | None
    """As on the command line."""
    versions: dict[str, str]
    """Versions of the packages of the command."""
    stop_file: Path | None
    """A file that asks it to save and stop, on a cluster."""

    def job(self) -> "Job":
        """Return the job, whose data are not prepared."""
        from sublayer.study.jobs.run import Job, SharedData

        return Job(
            self.label,
            self.path,
            LoadedRecipe(self.recipe, {}, self.label, ()),
            SharedData(1),
            self.scored,
            self.scoring,
            self.finetunes,
            self.is_scored,
            self.members,
            self.inspecting,
            self.plan,
        )


@dataclass(frozen=True)
class JobFiles:
    """The files of one job."""

    folder: Path

    @property
    def log(self) -> Path:
        """The file of all that the job's processes print, try after try."""
        return self.folder / "log.txt"

    def write_job(self, job: "Job", device: str | None, stop_file: Path | None = None) -> None:
        """Write a job for its next process, by absolute paths; forget the status of the last."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "status.json").unlink(missing_ok=True)
        order = Order(
            label=job.label,
            path=job.path.absolute(),
            recipe=absolute_paths(job.loaded.recipe),
            scored=absolute_paths(job.scored),
            scoring=job.scoring,
            finetunes=job.finetunes,
            is_scored=job.is_scored,
            members=tuple(member.absolute() for member in job.members),
            inspecting=job.inspecting,
            plan=None if job.plan is None else dict(job.plan),
            checksums=dict(job.checksums),
            device=device,
            versions=installed_versions(),
            stop_file=stop_file,
        )
        write_file(self.folder / "job.json", f"{order.model_dump_json()}\n")

    def read_job(self) -> Order:
        """Read the job; raise OSError where it is not here."""
        return Order.model_validate_json((self.folder / "job.json").read_bytes())

    def write_status(self, status: JobStatus) -> None:
        """Replace the status, whole, though it may not outlast a loss of power. Raises OSError."""
        partial = self.folder / "status.partial"
        partial.write_text(f"{json.dumps(asdict(status))}\n")
        os.replace(partial, self.folder / "status.json")

    def read_status(self) -> JobStatus | None:
        """Read the status; None before there is one, or while it cannot be read."""
        with suppress(OSError, ValueError):
            content = json.loads((self.folder / "status.json").read_bytes())
            return _STATUS.validate_python(content)
        return None

    def last_lines(self, n_lines: int = 3) -> str:
        """Return the last lines of the log, in one; "" without one."""
        with suppress(OSError):
            return " | ".join(self.log.read_text(errors="replace").splitlines()[-n_lines:])
        return ""


def installed_versions() -> dict[str, str]:
    """Return the versions on which the numbers of a run depend."""
    versions = {name: version(name) for name in ("sublayer", "torch", "numpy", "tokenizers")}
    return {**versions, "python": platform.python_version()}


def end_message(error: BaseException) -> dict[str, Any]:
    """Describe the error that ended a job's process."""
    for name, kind in _ERRORS.items():
        if isinstance(error, kind):
            return {"end": name, "text": str(error)}
    if lacks_memory(error):
        return {"end": _NO_MEMORY}
    if isinstance(error, OSError):
        return {"end": _SYSTEM, "parts": [error.errno, error.strerror, error.filename]}
    return {"end": _CRASH, "text": f"{type(error).__name__}: {error}"}


def read_end(message: Mapping[str, Any], label: str) -> Exception | None:
    """Return the error that ended the job called ``label``; None where it is done."""
    end = message["end"]
    if end == DONE["end"]:
        return None
    if end == _SYSTEM:
        return OSError(*message["parts"])
    if end == _NO_MEMORY:
        return ConfigError(
            f"{label} found too little memory beside the others: the same command resumes with "
            "fewer --jobs"
        )
    if end == _CRASH:
        return TrainingError(
            f"{label}: its process failed ({message['text']}), see what it printed: the same "
            "command resumes"
        )
    kind: type[SublayerError] = _ERRORS[end]
    return kind(f"{label}: {message['text']}")
