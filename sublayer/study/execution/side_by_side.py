"""Make several of a study's runs at a time, each in a process of its own."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any, NamedTuple

from sublayer.errors import Interrupted, SublayerError
from sublayer.study.execution.board import Board, Tally, default_board
from sublayer.study.execution.child import Child
from sublayer.study.execution.ended import describe_end
from sublayer.study.execution.job import read_status
from sublayer.study.execution.one_run import Outcome, Task, finish_run, interruption, is_finished
from sublayer.study.execution.task_job import job_of
from sublayer.system.stage_displays import HeardStages, format_seconds, say_nothing
from sublayer.system.stages import shown_by
from sublayer.training.graceful_stop import GracefulStop
from sublayer.training.progress import SilentProgress

_PATIENCE_S = 0.2
"""After so long without a message the clock and the signals are looked at."""
_Event = tuple[Child, Mapping[str, Any] | None]


class SideBySide:
    """Makes runs ``at_once`` at a time, ``total`` in all."""

    def __init__(self, total: int, at_once: int, device: str | None) -> None:
        self._at_once = at_once
        self._device = device
        self._tally = Tally(total, at_once)
        self._warned: set[str] = set()

    def __call__(self, tasks: Sequence[Task]) -> dict[Path, Outcome]:
        """Make the runs, or what is missing of them, and return their outcomes by their folders.

        A signal, or a run that cannot be made, stops the others, which save. Raises what that run's
        process raised, TrainingError where that died, and Interrupted.
        """
        outcomes = {}
        missing = []
        for task in tasks:
            if is_finished(task):
                outcomes[task.path] = finish_run(task, SilentProgress(), device=self._device)
                self._tally.done += 1
            else:
                missing.append(task)
        if missing:
            board = default_board(self._tally)
            crew = _Crew(missing, self._at_once, self._device, board, self._warned)
            outcomes |= crew.work()
        return outcomes


class _Started(NamedTuple):
    """A run that a process makes."""

    task: Task
    at: float
    is_whole: bool
    """Whether all of it is made now, and nothing before: others say little of the pace."""


class _Crew:
    """The processes that make some runs, and the runs that wait for one."""

    def __init__(
        self,
        tasks: Sequence[Task],
        at_once: int,
        device: str | None,
        board: Board,
        warned: set[str],
    ) -> None:
        self._waiting = deque(tasks)
        self._at_once = at_once
        self._device = device
        self._board = board
        self._warned = warned
        self._running: dict[Child, _Started] = {}
        self._events: Queue[_Event] = Queue()
        self._outcomes: dict[Path, Outcome] = {}
        self._is_stopping = False
        self._error: Exception | None = None

    def work(self) -> dict[Path, Outcome]:
        """Make all runs; return their outcomes by their folders."""
        try:
            own = HeardStages(say_nothing, self._board.note)
            with GracefulStop() as watch, self._board, shown_by(own):
                while self._running or (self._waiting and not self._is_stopping):
                    if watch.requested:
                        self._stop()
                    self._start()
                    self._hear()
                    self._board.refresh()
        finally:
            # None is left but after an error of our own, or a second Ctrl-C.
            for child in self._running:
                child.kill()
        if self._error is not None:
            raise self._error
        if self._is_stopping:
            tally = self._board.tally
            raise interruption(tally.done, tally.total)
        return self._outcomes

    def _start(self) -> None:
        while self._waiting and len(self._running) < self._at_once and not self._is_stopping:
            task = self._waiting.popleft()
            job = job_of(task, self._device)
            is_whole = not task.path.exists()
            try:
                child = Child(job, self._put)
            except OSError as error:
                self._fail(error)
                return
            self._running[child] = _Started(task, time.monotonic(), is_whole=is_whole)
            self._board.begin(task.label)

    def _put(self, child: Child, message: Mapping[str, Any] | None) -> None:
        self._events.put((child, message))

    def _hear(self) -> None:
        with suppress(Empty):
            child, message = self._events.get(timeout=_PATIENCE_S)
            label = child.job.label
            if message is None:
                self._end(child)
                return
            status = read_status(message)
            if status is not None:
                self._board.update(label, status)
            if "stage" in message:
                self._board.stage(label, message["stage"])
            if "note" in message:
                self._board.note(f"{label}: {message['note']}")
            warning = message.get("warning")
            if warning is not None and warning not in self._warned:
                self._warned.add(warning)
                self._board.note(f"{label}: {warning}")

    def _end(self, child: Child) -> None:
        started = self._running.pop(child)
        task = started.task
        self._board.end(task.label)
        error = child.wait()
        if error is not None:
            self._fail(error)
            return
        try:
            outcome = finish_run(task, SilentProgress(), device=self._device)
        except (SublayerError, OSError) as damage:
            self._fail(damage)
            return
        self._outcomes[task.path] = outcome
        tally = self._board.tally
        tally.done += 1
        seconds = time.monotonic() - started.at
        if started.is_whole:
            tally.seconds.append(seconds)
        text = describe_end(task, outcome)
        took = format_seconds(seconds)
        self._board.note(f"[{tally.describe()}] {task.label}: {text}, after {took}")

    def _fail(self, error: Exception) -> None:
        # What ends once all are asked to stop ends for that, whatever it says.
        if not self._is_stopping and not isinstance(error, Interrupted):
            self._error = error
        self._stop()

    def _stop(self) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        for child in self._running:
            child.stop()
