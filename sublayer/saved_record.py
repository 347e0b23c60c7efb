"""A run's ``record.json`` read back: the fields that commands and studies use, each of its type."""

from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from sublayer.errors import CheckpointError
from sublayer.parsing import read_json_object
from sublayer.typed import Count, Number, Typed, check_typed

RECORD = "record.json"


class Evaluation(Typed):
    """An evaluation during training: the step after which it was made, its loss, and other metrics by name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number] = Field(init=False)
    step: Count
    loss: Number


class _Data(Typed):
    checksums: dict[str, str]


class _Record(Typed):
    run: str
    step: Count
    tokens: Count
    tokens_per_s: Number
    valid: Evaluation
    seconds: Number
    peak_memory_bytes: Count | None = None
    precision: str
    threads: Count | None = None
    machine: dict[str, Any]
    versions: dict[str, str]
    commit: str | None
    data: _Data


def read_record(run: Path) -> dict[str, Any] | None:
    """Read the record of a run; None where it has none. Raises CheckpointError where it is damaged."""
    path = run / RECORD
    try:
        content = read_json_object(path, CheckpointError)
    except FileNotFoundError:
        return None
    check_typed(content, _Record, str(path), CheckpointError)
    return content
