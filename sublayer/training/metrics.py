"""A run's measurements, written and read: ``metrics.jsonl``, and TensorBoard events."""

import json
import math
import os
import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field

from sublayer.errors import DataError
from sublayer.files.checkpoints import aside
from sublayer.files.parsing import Count, Number, Typed, check_typed, parse_json
from sublayer.files.storage import open_file, write_file

METRICS = "metrics.jsonl"
EVENTS = "tensorboard"
_EVENT_FILES = "events.out.tfevents.*"
_MAX_LINE_BYTES = 1 << 16
_FLUSH_EVERY_S = 120
"""Events are seen as late as that: to flush them waits for the disk."""


class _Line(Typed):
    """A measurement after ``step`` steps and ``seconds`` since the start; metrics by name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number] = Field(init=False)
    kind: Literal["train", "valid"]
    step: Count
    tokens: Count = 0
    seconds: Number = 0.0


def cut_back(path: Path, step: int) -> None:
    """Truncate ``metrics.jsonl`` after ``step``, and drop incomplete lines.

    The file, if there is one, is replaced atomically. Where other lines than the last are damaged,
    they are dropped too, and a copy of the original is kept.
    """
    if not os.path.lexists(path):
        return
    lines = list(_lines(path))
    if any(content is None for _, content in lines[:-1]):
        shutil.copyfile(path, aside(path))
    kept = bytearray()
    for line, content in lines:
        if content is not None and content["step"] <= step:
            kept += line + b"\n"
    write_file(path, bytes(kept))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the undamaged lines of a ``metrics.jsonl``; none without a file.

    A line has its ``kind``, train or valid, the ``step`` after which it was measured, and metrics
    by name.
    """
    if not path.exists():
        return []
    return [content for _, content in _lines(path) if content is not None]


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Read line by line; a damaged line has content None, one that is too long comes in parts."""
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
    """A log with a line per measurement, opened at the step that training continues from.

    Opening drops lines after that step, as ``cut_back`` does, and rewrites the TensorBoard events.
    """

    def __init__(self, folder: Path, step: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter

        cut_back(folder / METRICS, step)
        lines = read_metrics(folder / METRICS)
        # Events repeat the lines: rewritten, they end where the resumed run starts.
        (folder / EVENTS).mkdir(exist_ok=True)
        for events in (folder / EVENTS).glob(_EVENT_FILES):
            events.unlink()
        self._events = EventsWriter(str(folder / EVENTS / "events"))
        self._flushed = -math.inf
        for line in lines:
            self._add_event(line)
        self._lines = (folder / METRICS).open("a", encoding="utf-8")

    def __enter__(self) -> Self:
        """Return itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close both files."""
        self._lines.close()
        self._events.close()

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Write ``values``, measured after ``step`` optimizer steps; ``kind`` is train or valid.

        The line is visible at once; ``sync`` makes it survive a power cut.
        """
        line = {"kind": kind, "step": step, **values}
        self._lines.write(json.dumps(line) + "\n")
        self._lines.flush()
        self._add_event(line)
        if time.monotonic() - self._flushed > _FLUSH_EVERY_S:
            self._flush_events()

    def sync(self) -> None:
        """Flush all lines to the disk, before a checkpoint refers to it."""
        os.fsync(self._lines.fileno())
        self._flush_events()

    def _flush_events(self) -> None:
        self._events.flush()
        self._flushed = time.monotonic()

    def _add_event(self, line: Mapping[str, Any]) -> None:
        from tensorboardX.proto.event_pb2 import Event
        from tensorboardX.proto.summary_pb2 import Summary

        values = [
            Summary.Value(tag=f"{line['kind']}/{name}", simple_value=value)
            for name, value in line.items()
            if name not in ("kind", "step")
        ]
        summary = Summary(value=values)
        self._events.write_event(Event(wall_time=time.time(), step=line["step"], summary=summary))
