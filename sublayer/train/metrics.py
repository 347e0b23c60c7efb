"""What a run has measured so far: ``metrics.jsonl`` always, TensorBoard events beside it."""

import json
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

METRICS = "metrics.jsonl"
EVENTS = "tensorboard"


def cut_back(path: Path, step: int) -> None:
    """Drop the lines of ``metrics.jsonl`` that lie after ``step`` or that a kill left half written."""
    if not path.exists():
        return
    kept = [line for line in path.read_text(encoding="utf-8").splitlines() if _step(line) <= step]
    partial = path.with_name(f".{path.name}")
    partial.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    os.replace(partial, path)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the complete lines of a ``metrics.jsonl``."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines if _step(line) < float("inf")]


class MetricsLog:
    """Appends a line per measurement; opened at the step that training goes on from."""

    def __init__(self, folder: Path, step: int) -> None:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        cut_back(folder / METRICS, step)
        lines = read_metrics(folder / METRICS)
        # The events say what the lines say: written anew, they hold nothing that a resumed run takes back.
        shutil.rmtree(folder / EVENTS, ignore_errors=True)
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


def _step(line: str) -> float:
    try:
        value = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return float("inf")
    return value if isinstance(value, int) else float("inf")
