"""What a run has measured so far: ``metrics.jsonl`` always, TensorBoard events beside it."""

import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field

from sublayer.errors import DataError
from sublayer.parsing import parse_json
from sublayer.storage import open_file, write_file
from sublayer.train.checkpoint import aside
from sublayer.typed import Count, Number, Typed, check_typed

METRICS = "metrics.jsonl"
EVENTS = "tensorboard"
_EVENT_FILES = "events.out.tfevents.*"
_MAX_LINE_BYTES = 1 << 16


class _Line(Typed):
    """A measurement after ``step`` steps, which took ``seconds`` from the run's beginning; the rest is by name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number] = Field(init=False)
    kind: Literal["train", "valid"]
    step: Count
    tokens: Count = 0
    seconds: Number = 0.0


def cut_back(path: Path, step: int) -> None:
    """Drop the lines of ``metrics.jsonl`` that lie after ``step`` or that a kill left half written.

    Where other lines are damaged, a copy of the file as it was is kept.
    """
    if not os.path.lexists(path):
        return
    lines = list(_lines(path))
    if any(content is None for _, content in lines[:-1]):
        shutil.copyfile(path, aside(path))
    kept = [line for line, content in lines if content is not None and content["step"] <= step]
    write_file(path, b"".join(line + b"\n" for line in kept))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the whole lines of a ``metrics.jsonl``; those that are damaged are left out."""
    return [content for _, content in _lines(path) if content is not None] if path.exists() else []


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Read line by line; the content of a damaged one is None, and of one that is too long a part is read."""
    with open_file(path) as file:
        while line := file.readline(_MAX_LINE_BYTES):
            yield line.rstrip(b"\n"), _content(line) if line.endswith(b"\n") else None


def _content(line: bytes) -> dict[str, Any] | None:
    try:
        content: dict[str, Any] = parse_json(line, METRICS, DataError)
        check_typed(content, _Line, METRICS, DataError)
    except DataError:
        return None
    return content


class MetricsLog:
    """Appends a line per measurement; opened at the step that training goes on from."""

    def __init__(self, folder: Path, step: int) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        cut_back(folder / METRICS, step)
        lines = read_metrics(folder / METRICS)
        # The events say what the lines say: written anew, they hold nothing that a resumed run takes back.
        for events in (folder / EVENTS).glob(_EVENT_FILES):
            events.unlink()
        self._events = EventFileWriter(str(folder / EVENTS))
        for line in lines:
            self._add_event(line)
        self._lines = (folder / METRICS).open("a", encoding="utf-8")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close both files."""
        self._lines.close()
        self._events.close()

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Record ``values`` as measured after ``step`` optimizer steps; ``kind`` is train or valid."""
        line = {"kind": kind, "step": step, **values}
        self._lines.write(json.dumps(line) + "\n")
        self._lines.flush()
        self._add_event(line)

    def sync(self) -> None:
        """Put what was written on disk, before a checkpoint refers to it."""
        os.fsync(self._lines.fileno())
        self._events.flush()

    def _add_event(self, line: Mapping[str, Any]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=f"{line['kind']}/{name}", simple_value=value)
            for name, value in line.items()
            if name not in ("kind", "step")
        ]
        self._events.add_event(Event(wall_time=time.time(), step=line["step"], summary=Summary(value=values)))
