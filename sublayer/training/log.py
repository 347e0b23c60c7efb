"""Log of a run: measurements in ``metrics.jsonl`` and TensorBoard, progress on a terminal."""

import json
import math
import os
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field

from sublayer.errors import DataError
from sublayer.files.checkpoints import aside
from sublayer.files.parsing import Count, Number, Typed, check_typed, parse_json
from sublayer.files.storage import open_file, write_file
from sublayer.system.terminal import Clock, TimedStage, display, format_seconds, note

METRICS = "metrics.jsonl"
EVENTS = "tensorboard"
_EVENT_FILES = "events.out.tfevents.*"
_MAX_LINE_BYTES = 1 << 16
_FLUSH_EVERY_S = 120
"""Seconds between flushes of events, since a flush waits for the disk."""


class _Line(Typed):
    """Measurement after ``step`` steps and ``seconds`` since the start, with metrics by name."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, Number] = Field(init=False)
    kind: Literal["train", "valid"]
    step: Count
    tokens: Count = 0
    seconds: Number = 0.0


def cut_back(path: Path, step: int) -> None:
    """Truncate ``metrics.jsonl`` after ``step``, and drop incomplete lines.

    The file, if any, is replaced atomically. If lines other than the last are damaged, they are
    dropped as well, and a copy of the original is kept.
    """
    if not os.path.lexists(path):
        return
    lines = list(_lines(path))
    if any(content is None for _, content in lines[:-1]):
        shutil.copyfile(path, aside(path))
    remaining = bytearray()
    for line, content in lines:
        if content is not None and content["step"] <= step:
            remaining += line + b"\n"
    write_file(path, bytes(remaining))


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Read the valid lines of a ``metrics.jsonl``; empty without a file.

    A line has its ``kind``, train or valid, the ``step`` after which it was measured, and metrics
    by name.
    """
    if not path.exists():
        return []
    return [content for _, content in _lines(path) if content is not None]


def mean_losses(lines: Sequence[Mapping[str, Any]]) -> list[tuple[Mapping[str, Any], float]]:
    """Pair evaluations with the mean training loss, in nats, since the previous evaluation.

    ``lines`` come from ``read_metrics``; an evaluation without a preceding training step is left
    out.
    """
    means = []
    begin = 0
    for line in lines:
        if line["kind"] != "valid":
            continue
        # A line has the mean over the steps since the previous line.
        total, previous = 0.0, begin
        for logged in lines:
            is_trained = logged["kind"] == "train" and "loss" in logged
            if is_trained and previous < logged["step"] <= line["step"]:
                total += logged["loss"] * (logged["step"] - begin)
                begin = logged["step"]
        if begin > previous:
            means.append((line, total / (begin - previous)))
        begin = line["step"]
    return means


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, Any] | None]]:
    """Read line by line; a damaged line has content None, and an overlong one comes in parts."""
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
    """Log with a line per measurement, opened at the step from which training continues.

    Opening it drops the lines after that step (``cut_back``), and rewrites the TensorBoard events.
    """

    def __init__(self, folder: Path, step: int) -> None:
        from tensorboardX.event_file_writer import EventsWriter

        cut_back(folder / METRICS, step)
        lines = read_metrics(folder / METRICS)
        # Events repeat the lines; they are rewritten to end where the resumed run starts.
        (folder / EVENTS).mkdir(exist_ok=True)
        for events in (folder / EVENTS).glob(_EVENT_FILES):
            events.unlink()
        self._events = EventsWriter(str(folder / EVENTS / "events"))
        self._flushed = -math.inf
        for line in lines:
            self._add_event(line)
        self._lines = (folder / METRICS).open("a", encoding="utf-8")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._lines.close()
        self._events.close()

    def write(self, kind: str, step: int, values: Mapping[str, float]) -> None:
        """Write ``values``, measured after ``step`` optimizer steps; ``kind`` is train or valid.

        The line is visible at once; ``sync`` makes it survive a power failure.
        """
        line = {"kind": kind, "step": step, **values}
        self._lines.write(json.dumps(line) + "\n")
        self._lines.flush()
        self._add_event(line)
        if time.monotonic() - self._flushed > _FLUSH_EVERY_S:
            self._flush_events()

    def sync(self) -> None:
        """Flush all lines to the disk, before a checkpoint refers to them."""
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


_FIRST_ESTIMATE_S = 2.0
"""Seconds of steps after which the duration of a run is estimated."""
_LONG_S = 20.0
"""Remaining seconds below which no estimate is printed."""


@dataclass(frozen=True)
class Status:
    """Progress of training after ``step`` optimizer steps."""

    step: int
    steps: int
    """Number of steps of the whole run."""
    loss: float
    """Newest loss that was read back from the device; NaN before the first."""
    tokens_per_s: float
    """Throughput of the run so far, by the time of its steps alone."""
    valid_loss: float | None = None
    """Loss of the last evaluation; None before the first."""

    def describe(self, remaining_s: float | None) -> str:
        """Format a status as one plain line, without the remaining time if that is None."""
        valid = "" if self.valid_loss is None else f"  valid {self.valid_loss:.4f}"
        eta = "" if remaining_s is None else f"  ETA {format_seconds(remaining_s)}"
        return (
            f"step {self.step:,}/{self.steps:,}  loss {self.loss:.4f}{valid}  "
            f"{self.tokens_per_s:,.0f} tokens/s{eta}"
        )


class Progress(ABC):
    """Progress display of a run, a context that shows it while entered."""

    is_alone = True
    """Whether the run has its own header; a comparison has one for all its runs."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return

    @abstractmethod
    def update(self, status: Status) -> None:
        """Show a new status; called after every step, at low cost."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Print a permanent note."""

    def warn(self, text: str) -> None:
        """Print a note on the data; a comparison prints it for only one of its runs."""
        self.note(text)


class ShownProgress(Progress):
    """Progress on the status line of a terminal, or in a pipe as a line every ten seconds.

    Notes and the line of the last step are permanent.
    """

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._stages = display()
        self._stage: TimedStage | None = None
        self._is_estimated = False
        self._begun: tuple[float, int] | None = None
        """Time and step of the first update."""

    def __enter__(self) -> Self:
        self._begun = None
        self._stages = display()
        self._stage = self._stages.begin("taking the first step")
        return self

    def __exit__(self, *_: object) -> None:
        if self._stage is not None:
            self._stages.end(self._stage)

    def update(self, status: Status) -> None:
        """Show the status; the last step's status is a permanent line."""
        begun, first = self._begun or (self._clock(), status.step)
        lasted_s, n_done = self._clock() - begun, status.step - first
        remaining_s = lasted_s / n_done * (status.steps - status.step) if n_done else None
        text = status.describe(remaining_s)
        if self._stage is not None:
            self._stage.is_timed = False
            self._stages.change(self._stage, text, status.step / status.steps)
        if status.step == status.steps or self._begun is None:
            self._stages.note(text)
        self._begun = begun, first
        # Once, after the first seconds of a long run.
        if remaining_s is None or self._is_estimated or lasted_s < _FIRST_ESTIMATE_S:
            return
        self._is_estimated = True
        if remaining_s >= _LONG_S:
            self.note(f"about {format_seconds(remaining_s)} to go, by the first steps")

    def note(self, text: str) -> None:
        """Print a line."""
        self._stages.note(text)


class SilentProgress(Progress):
    """Hidden progress; notes are still printed on standard error."""

    is_alone = False

    def update(self, status: Status) -> None:
        """Do nothing."""

    def note(self, text: str) -> None:
        """Print a line."""
        note(text)
