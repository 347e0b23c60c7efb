"""A run's ``record.json`` read back: the fields that commands and studies use, each of its type."""

from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field

from sublayer.errors import CheckpointError
from sublayer.files.parsing import read_json_object
from sublayer.files.typed import Count, Number, Typed, check_typed

RECORD = "record.json"


class Evaluation(Typed):
    """An evaluation during training: its step, and metrics by name, the loss of a validation split
    among them."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number] = Field(init=False)
    step: Count


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
    flops_per_token: Count | None = None
    precision: str
    threads: Count | None = None
    machine: dict[str, Any]
    versions: dict[str, str]
    commit: str | None
    data: _Data


def read_record(run: Path) -> dict[str, Any] | None:
    """Read the record of a run, None without one; raise CheckpointError where it is damaged.

    All that stands in it is returned; only the fields that the program uses are checked.
    """
    path = run / RECORD
    try:
        content = read_json_object(path, CheckpointError)
    except FileNotFoundError:
        return None
    check_typed(content, _Record, str(path), CheckpointError)
    return content
