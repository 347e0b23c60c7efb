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
    from sublayer.study.jobs.run import Job, SharedData

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


@dataclass(frozen=True)
class Order:
    """A job as its process reads it."""

    job: "Job"
    checksums: Mapping[str, str]
    """Checksums of its text; empty: it is not prepared yet."""
    device: str | None
    """As on the command line."""
    versions: Mapping[str, str]
    """Versions of the packages of the command."""
    stop_file: Path | None
    """A file that asks it to save and stop, on a cluster."""


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
        inspecting = job.inspecting
        content = {
            "label": job.label,
            "path": str(job.path.absolute()),
            "recipe": absolute_paths(job.loaded.recipe).model_dump_json(),
            "scored": absolute_paths(job.scored).model_dump_json(),
            "checksums": dict(job.checksums),
            "device": device,
            "scoring": job.scoring.model_dump(),
            "finetunes": job.finetunes,
            "is_scored": job.is_scored,
            "members": [str(member.absolute()) for member in job.members],
            "inspecting": None if inspecting is None else inspecting.model_dump(),
            "plan": None if job.plan is None else dict(job.plan),
            "versions": installed_versions(),
            "stop_file": None if stop_file is None else str(stop_file),
        }
        write_file(self.folder / "job.json", f"{json.dumps(content)}\n")

    def read_job(self, data: "SharedData") -> Order:
        """Read the job, whose data are prepared by ``data``; raise OSError where it is not here."""
        from sublayer.study.jobs.run import Job

        content = json.loads((self.folder / "job.json").read_bytes())
        inspecting = content["inspecting"]
        job = Job(
            content["label"],
            Path(content["path"]),
            LoadedRecipe(Recipe.model_validate_json(content["recipe"]), {}, content["label"], ()),
            data,
            Recipe.model_validate_json(content["scored"]),
            Scoring.model_validate(content["scoring"]),
            content["finetunes"],
            content["is_scored"],
            tuple(map(Path, content["members"])),
            None if inspecting is None else Inspecting.model_validate(inspecting),
            content["plan"],
        )
        stop_file = content["stop_file"]
        return Order(
            job,
            content["checksums"],
            content["device"],
            content["versions"],
            None if stop_file is None else Path(stop_file),
        )

    def write_status(self, status: JobStatus) -> None:
        """Replace the status, whole, though it may not outlast a loss of power. Raises OSError."""
        partial = self.folder / "status.partial"
        partial.write_text(f"{json.dumps(asdict(status))}\n")
        os.replace(partial, self.folder / "status.json")

    def read_status(self) -> JobStatus | None:
        """Read the status; None before there is one, or while it cannot be read."""
        with suppress(OSError, ValueError):
            content = json.loads((self.folder / "status.json").read_bytes())
            training = content["training"]
            return JobStatus(
                content["host"],
                content["stage"],
                None if training is None else Status(**training),
                tuple(content["notes"]),
                tuple(content["warnings"]),
                content["end"],
            )
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
        return {
            "end": _SYSTEM,
            "errno": error.errno,
            "text": error.strerror,
            "file": error.filename,
        }
    return {"end": _CRASH, "text": f"{type(error).__name__}: {error}"}


def read_end(message: Mapping[str, Any], label: str) -> Exception | None:
    """Return the error that ended the job called ``label``; None where it is done."""
    end = message["end"]
    if end == DONE["end"]:
        return None
    if end == _SYSTEM:
        return OSError(message["errno"], message["text"], message["file"])
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
