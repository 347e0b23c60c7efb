"""Make several of a study's runs at a time, by as many processes."""

from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from sublayer.errors import Interrupted, SublayerError
from sublayer.study.execution.board import Board, Tally, default_board
from sublayer.study.execution.child import Child
from sublayer.study.execution.ended import describe_end
from sublayer.study.execution.job import DONE, read_status
from sublayer.study.execution.one_run import Outcome, Task, finish_run, interruption, is_finished
from sublayer.study.execution.task_job import job_of
from sublayer.system.stage_displays import HeardStages, say_nothing
from sublayer.system.stages import shown_by
from sublayer.training.graceful_stop import GracefulStop
from sublayer.training.progress import SilentProgress

_PATIENCE_S = 0.2
"""After so long without a message the clock and the signals are looked at."""
_Event = tuple[Child, Mapping[str, Any] | None]


class SideBySide:
    """Makes runs ``at_once`` at a time, ``total`` in all, by processes that stay to the end."""

    def __init__(self, total: int, at_once: int, device: str | None) -> None:
        self._device = device
        self._board = default_board(Tally(total))
        self._crew = _Crew(at_once, device, self._board)

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
                self._board.tally.find()
            else:
                missing.append(task)
        if missing:
            outcomes |= self._crew.work(missing)
        return outcomes

    def close(self) -> None:
        """End the processes."""
        self._crew.leave()


class _Crew:
    """The processes that make runs, and the runs that wait for one."""

    def __init__(self, at_once: int, device: str | None, board: Board) -> None:
        self._waiting: deque[Task] = deque()
        self._at_once = at_once
        self._device = device
        self._board = board
        self._running: dict[Child, Task] = {}
        self._idle: list[Child] = []
        self._events: Queue[_Event] = Queue()
        self._outcomes: dict[Path, Outcome] = {}
        self._is_stopping = False
        self._error: Exception | None = None

    def work(self, tasks: Sequence[Task]) -> dict[Path, Outcome]:
        """Make runs; return their outcomes by their folders."""
        self._waiting.extend(tasks)
        self._outcomes = {}
        try:
            own = HeardStages(say_nothing, self._board.note)
            with GracefulStop() as watch, self._board, shown_by(own):
                while self._running or (self._waiting and not self._is_stopping):
                    if watch.requested:
                        self._stop()
                    self._start()
                    self._hear()
        except BaseException:  # an error of our own, or a second Ctrl-C
            for child in (*self._running, *self._idle):
                child.kill()
            self._idle.clear()
            raise
        if self._error is not None:
            raise self._error
        if self._is_stopping:
            tally = self._board.tally
            raise interruption(tally.done, tally.total)
        return self._outcomes

    def leave(self) -> None:
        """End the processes, which have no run."""
        for child in self._idle:
            child.wait()
        self._idle.clear()

    def _start(self) -> None:
        """Have as many runs made as there may be at a time, by processes that are there first."""
        while self._waiting and len(self._running) < self._at_once and not self._is_stopping:
            task = self._waiting.popleft()
            job = job_of(task, self._device)
            if self._idle:
                child = self._idle.pop()
                child.give(job)
            else:
                try:
                    child = Child(job, self._put)
                except OSError as error:
                    self._fail(error)
                    return
            self._running[child] = task
            self._board.begin(task.label)

    def _put(self, child: Child, message: Mapping[str, Any] | None) -> None:
        self._events.put((child, message))

    def _hear(self) -> None:
        with suppress(Empty):
            child, message = self._events.get(timeout=_PATIENCE_S)
            if child not in self._running:  # it has ended without a run
                self._idle.remove(child)
                child.wait()
                return
            label = child.job.label
            if message is None:
                self._lose(child)
                return
            status = read_status(message)
            if status is not None:
                self._board.update(label, status)
            if "stage" in message:
                self._board.stage(label, message["stage"])
            if "note" in message:
                self._board.note(f"{label}: {message['note']}")
            if "warning" in message:
                self._board.warn(label, message["warning"])
            if message == DONE:
                self._finish(child)

    def _lose(self, child: Child) -> None:
        """Stop all, as a process has ended whose run is not done."""
        self._board.drop(self._running.pop(child).label)
        error = child.wait()
        assert error is not None, "a run that is done was finished before"
        self._fail(error)

    def _finish(self, child: Child) -> None:
        task = self._running.pop(child)
        self._idle.append(child)
        try:
            outcome = finish_run(task, SilentProgress(), device=self._device)
        except (SublayerError, OSError) as damage:
            self._board.drop(task.label)
            self._fail(damage)
            return
        self._outcomes[task.path] = outcome
        self._board.finish(task.label, describe_end(task, outcome))

    def _fail(self, error: Exception) -> None:
        # What ends once all are asked to stop ends for that, whatever it says.
        if not self._is_stopping and not isinstance(error, Interrupted):
            self._error = error
        self._stop()

    def _stop(self) -> None:
        if self._is_stopping:
            return
        self._is_stopping = True
        for child in (*self._running, *self._idle):
            child.stop()
