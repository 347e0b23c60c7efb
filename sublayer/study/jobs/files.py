"""Files of a job's process: its job, its status and its log, in a separate folder.

The command that starts a job writes ``job.json`` and reads ``status.json``, which the process
replaces repeatedly; on a cluster both lie in the study's folder, shared by all nodes.
"""

import json
import os
import platform
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, TypeAdapter

from sublayer.config.load import absolute_paths
from sublayer.config.plugins import keep_plugins, load_plugins, used_plugins
from sublayer.config.recipe import Recipe
from sublayer.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    FolderHeld,
    Interrupted,
    TrainingError,
)
from sublayer.files.storage import write_file
from sublayer.study.inspection import Inspecting
from sublayer.study.question import WHOLE_TEST, Scoring
from sublayer.system.machine import lacks_memory
from sublayer.training.log import Status

_ERRORS = {
    kind.__name__: kind
    for kind in (FolderHeld, ConfigError, DataError, CheckpointError, TrainingError, Interrupted)
}
"""By name; a subclass before its base."""
_CRASH = "crash"


@dataclass(frozen=True)
class End:
    """The end of a job's process: an error by its class and its arguments, or none."""

    error: str = ""
    arguments: tuple[int | str | None, ...] = ()

    @property
    def is_crash(self) -> bool:
        """True for an error of the program."""
        return self.error == _CRASH

    def exception(self, label: str) -> Exception:
        """Return the error of the job called ``label``."""
        if self.error == "OSError":
            return OSError(*self.arguments)
        kind = TrainingError if self.is_crash else _ERRORS[self.error]
        return kind(f"{label}: {self.arguments[0]}")


DONE, STOPPED = End(), End("Interrupted", ("interrupted",))


def end_of(error: BaseException) -> End:
    """Describe the error that ended a job's process."""
    if isinstance(error, OSError):
        return End("OSError", (error.errno, error.strerror, error.filename))
    for name, kind in _ERRORS.items():
        if isinstance(error, kind):
            return End(name, (str(error),))
    if lacks_memory(error):
        text = "too little memory for parallel runs: resume with the same command and fewer --jobs"
        return End("ConfigError", (text,))
    text = f"its process failed ({type(error).__name__}: {error}), see its output"
    return End(_CRASH, (f"{text}: the same command resumes",))


@dataclass(frozen=True)
class JobStatus:
    """The state of a job, as its process writes it."""

    host: str
    stage: str = "starting"
    """The stage; "" while it trains."""
    training: Status | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    end: End | None = None
    """None until the process ends."""


_STATUS = TypeAdapter(JobStatus)


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A run of a study, missing or present, without its data."""

    label: str
    """The arm, its trial and the seed, for people."""
    path: Path
    recipe: Recipe
    scored: Recipe
    """The recipe with the scoring objective."""
    scoring: Scoring = WHOLE_TEST
    """The scored split and windows."""
    finetunes: bool = False
    """True for a run of a stage of tasks, fine-tuned and scored as in `sublayer finetune`."""
    is_scored: bool = True
    """True if it is scored on the study's split; trials are selected by validation."""
    members: tuple[Path, ...] = ()
    """Runs of an ensemble, to average their answers without training; ``recipe`` is the first's."""
    inspecting: Inspecting | None = None
    """The inspection of its layers on the scored text; None: none."""
    plan: Mapping[str, Any] | None = None
    """The study's sealed plan, kept at the run's start; None without one."""


class Order(BaseModel):
    """A job as its process reads it, by absolute paths."""

    model_config = ConfigDict(frozen=True)

    spec: JobSpec
    checksums: dict[str, str]
    """Checksums of its text; empty before the text is prepared."""
    device: str | None
    """As on the command line."""
    versions: dict[str, str]
    """Versions of the packages of the command."""
    stop_file: Path | None
    """Stop file on a cluster: it asks the job to save and stop."""
    plugins: tuple[str, ...] = ()
    """Files in the job's folder with the plugins of the command that the recipe uses."""


@dataclass(frozen=True)
class JobFiles:
    """The files of one job."""

    folder: Path

    @property
    def log(self) -> Path:
        """The log file of all tries of the job's processes."""
        return self.folder / "log.txt"

    def write_job(
        self,
        job: JobSpec,
        checksums: Mapping[str, str],
        device: str | None,
        stop_file: Path | None = None,
    ) -> None:
        """Write a job for its next process, with absolute paths; remove the last status."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.forget_status()
        spec = replace(
            job,
            path=job.path.absolute(),
            recipe=absolute_paths(job.recipe),
            scored=absolute_paths(job.scored),
            members=tuple(member.absolute() for member in job.members),
        )
        plugins = used_plugins(job.recipe.model, job.recipe.optimizer)
        keep_plugins(self.folder, plugins)
        order = Order(
            spec=spec,
            checksums=dict(checksums),
            device=device,
            versions=installed_versions(),
            stop_file=stop_file,
            plugins=tuple(plugin.filename for plugin in plugins),
        )
        write_file(self.folder / "job.json", f"{order.model_dump_json()}\n")

    def read_job(self) -> Order:
        """Read the job, and load its plugins; raise OSError if it is missing."""
        content = (self.folder / "job.json").read_bytes()
        load_plugins(self.folder / name for name in json.loads(content).get("plugins", ()))
        return Order.model_validate_json(content)

    def write_status(self, status: JobStatus) -> None:
        """Replace the status atomically, without sync to disk. Raises OSError."""
        partial = self.folder / "status.partial"
        partial.write_text(f"{json.dumps(asdict(status))}\n")
        os.replace(partial, self.folder / "status.json")

    def forget_status(self) -> None:
        """Remove the status of an ended process."""
        (self.folder / "status.json").unlink(missing_ok=True)

    def read_status(self) -> JobStatus | None:
        """Read the status; None if it is missing, or unreadable."""
        with suppress(OSError, ValueError):
            return _STATUS.validate_json((self.folder / "status.json").read_bytes())
        return None


def installed_versions() -> dict[str, str]:
    """Return the versions that affect the numbers of a run."""
    versions = {name: version(name) for name in ("sublayer", "torch", "numpy", "tokenizers")}
    return {**versions, "python": platform.python_version()}
