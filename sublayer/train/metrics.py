"""What a run has measured so far: ``metrics.jsonl`` always, TensorBoard events beside it."""

import json
import os
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

METRICS = "metrics.jsonl"


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
        self._lines = (folder / METRICS).open("a", encoding="utf-8")
        self._events = EventFileWriter(str(folder / "tensorboard"))
        if step > 0:
            self._forget_events_after(step)

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
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        self._lines.write(json.dumps({"kind": kind, "step": step, **values}) + "\n")
        self._lines.flush()
        summary = Summary(
            value=[Summary.Value(tag=f"{kind}/{name}", simple_value=value) for name, value in values.items()]
        )
        self._events.add_event(Event(wall_time=time.time(), step=step, summary=summary))

    def sync(self) -> None:
        """Put what was written on disk, before a checkpoint refers to it."""
        os.fsync(self._lines.fileno())
        self._events.flush()

    def _forget_events_after(self, step: int) -> None:
        from tensorboard.compat.proto.event_pb2 import Event, SessionLog

        restart = SessionLog(status=SessionLog.START)
        self._events.add_event(Event(wall_time=time.time(), step=step + 1, session_log=restart))


def _step(line: str) -> float:
    try:
        value = json.loads(line)["step"]
    except (ValueError, KeyError, TypeError):
        return float("inf")
    return value if isinstance(value, int) else float("inf")
