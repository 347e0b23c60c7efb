"""What the process of a run is told, and what it tells: one JSON object a line, each way."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sublayer.config.recipe import Recipe
from sublayer.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    FolderHeld,
    Interrupted,
    SublayerError,
    TrainingError,
)
from sublayer.study.inspection import Inspecting
from sublayer.study.scoring import WHOLE_TEST, Scoring
from sublayer.system.memory import lacks_memory
from sublayer.training.progress import Status

_ERRORS = {
    kind.__name__: kind
    for kind in (FolderHeld, ConfigError, DataError, CheckpointError, TrainingError, Interrupted)
}
"""By name; what is a kind of another stands before it."""
_NO_MEMORY = "memory"
_SYSTEM = "system"
DONE: dict[str, Any] = {"end": "done"}
FOLDER_HELD = FolderHeld.__name__
"""What a run ends with whose folder another process holds."""
STOPPED: dict[str, Any] = {"end": Interrupted.__name__, "text": "interrupted"}


@dataclass(frozen=True)
class Job:
    """A run for a process of its own; what it reads, it reads again."""

    label: str
    path: Path
    recipe: Recipe
    scored: Recipe
    """The recipe by whose objective it is scored."""
    checksums: Mapping[str, str]
    """Of the text that it must find; none where that is not known."""
    device: str | None
    scoring: Scoring = WHOLE_TEST
    """What it is scored on, and how."""
    finetunes: bool = False
    """Whether it is a stage of tasks."""
    is_scored: bool = True
    """Whether it is scored on the study's split."""
    members: Sequence[Path] = ()
    """Runs whose answers are averaged, instead of a training."""
    inspecting: Inspecting | None = None
    """What is measured inside it; None: nothing."""
    plan: Mapping[str, Any] | None = None
    """The study's sealed plan."""


def write_job(job: Job) -> bytes:
    """Write a job as one line."""
    inspecting = job.inspecting
    content = {
        "label": job.label,
        "path": str(job.path),
        "recipe": job.recipe.model_dump_json(),
        "scored": job.scored.model_dump_json(),
        "checksums": dict(job.checksums),
        "device": job.device,
        "scoring": job.scoring.model_dump(),
        "finetunes": job.finetunes,
        "is_scored": job.is_scored,
        "members": list(map(str, job.members)),
        "inspecting": None if inspecting is None else inspecting.model_dump(),
        "plan": None if job.plan is None else dict(job.plan),
    }
    return f"{json.dumps(content)}\n".encode()


def read_job(line: bytes) -> Job:
    """Read what ``write_job`` wrote."""
    content = json.loads(line)
    inspecting = content["inspecting"]
    return Job(
        content["label"],
        Path(content["path"]),
        Recipe.model_validate_json(content["recipe"]),
        Recipe.model_validate_json(content["scored"]),
        content["checksums"],
        content["device"],
        Scoring.model_validate(content["scoring"]),
        content["finetunes"],
        content["is_scored"],
        tuple(map(Path, content["members"])),
        None if inspecting is None else Inspecting.model_validate(inspecting),
        content.get("plan"),
    )


def status_message(status: Status) -> dict[str, Any]:
    """Write where a training stands."""
    return {"status": asdict(status)}


def read_status(message: Mapping[str, Any]) -> Status | None:
    """Read what ``status_message`` wrote; None for another message."""
    fields = message.get("status")
    return None if fields is None else Status(**fields)


def end_message(error: BaseException) -> dict[str, Any] | None:
    """Write an error that ends a run; None for one that no user can mend."""
    for name, kind in _ERRORS.items():
        if isinstance(error, kind):
            return {"end": name, "text": str(error)}
    if lacks_memory(error):
        return {"end": _NO_MEMORY, "text": str(error)}
    if isinstance(error, OSError):
        return {
            "end": _SYSTEM,
            "errno": error.errno,
            "text": error.strerror,
            "file": error.filename,
        }
    return None


def read_end(message: Mapping[str, Any], label: str) -> Exception | None:
    """Read the error that ended the run called ``label``; None where it is done."""
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
    kind: type[SublayerError] = _ERRORS[end]
    return kind(f"{label}: {message['text']}")
