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


class Input(Typed):
    """An input of a run or a study: a split by its name, ``tokenizer``, ``init.run``,
    ``watch.NAME``, ``probes.NAME``.

    ``value`` is shown to people; inputs are equal where their ``digest`` is.
    """

    name: str
    value: str
    digest: str


class _Data(Typed):
    checksums: dict[str, str]
    tokenizer: str = ""
    vocab_size: Count = 0
    train: dict[str, Count] = {}
    valid: dict[str, Count] = {}
    test: dict[str, Count] = {}
    watched: dict[str, dict[str, Count]] = {}


class _Minutes(Typed):
    asked: Number
    used: Number
    note: str | None = None


class _Parameters(Typed):
    total: Count


class _Lengthening(Typed):
    at_step: Count
    from_steps: Count
    to_steps: Count


class _Record(Typed):
    run: str
    step: Count
    tokens: Count
    tokens_per_s: Number
    title: str = ""
    valid: Evaluation
    task_bests: dict[str, Evaluation] = {}
    probes: dict[str, dict[str, Any]] = {}
    lengthened: list[_Lengthening] = []
    minutes: _Minutes | None = None
    parameters: _Parameters | None = None
    date: str = ""
    processes: Count = 1
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
    return check_record(content, path)


def check_record(content: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return a record's content; raise CheckpointError where a field has another type."""
    check_typed(content, _Record, str(path), CheckpointError)
    return content
