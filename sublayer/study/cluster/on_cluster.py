"""Make a study's runs on a cluster: tasks are submitted, watched through files, and tried again."""

import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sublayer.counts import count
from sublayer.errors import CheckpointError, ConfigError, Interrupted, SublayerError, TrainingError
from sublayer.study.cluster.cluster import Cluster
from sublayer.study.cluster.exchange import DIED, HELD, End, Progress, list_names
from sublayer.study.cluster.progress_file import ProgressFile
from sublayer.study.cluster.run_board import RunBoard
from sublayer.study.cluster.tasks_file import Submitted, TasksFile
from sublayer.study.cluster.tries import MOST_TRIES, Tries
from sublayer.study.execution.board import Board, Tally, default_board
from sublayer.study.execution.ended import describe_end
from sublayer.study.execution.job import DONE, STOPPED, read_end
from sublayer.study.execution.one_run import Outcome, Task, finish_run, is_finished
from sublayer.system.stage_displays import HeardStages, format_seconds, say_nothing
from sublayer.system.stages import shown_by
from sublayer.training.graceful_stop import GracefulStop
from sublayer.training.progress import SilentProgress

_AT_ONCE = 100
"""Tasks that wait or run at a time: sites limit what one user may submit."""
_LOOK_S = 0.5
"""Between two looks at the files of the runs."""
_SEEN_S = 90.0
"""After which all of what a node has written is seen: file systems that are shared may take a
minute."""


class OnCluster:
    """Makes runs on a cluster, ``total`` in all; ``command`` joins those that are left there."""

    def __init__(self, total: int, cluster: Cluster, tasks_file: TasksFile, command: str) -> None:
        self._cluster = cluster
        self._tasks_file = tasks_file
        self._command = command
        self._tally = Tally(total, 1)
        self._warned: set[str] = set()

    def __call__(self, tasks: Sequence[Task]) -> dict[Path, Outcome]:
        """Make the runs, or what is missing of them, and return their outcomes by their folders.

        A signal leaves them on the cluster and raises Interrupted; a run that cannot be made stops
        the others, which save, and is raised. Raises TrainingError, once all others are done, where
        runs were lost too often.
        """
        study = self._tasks_file.study
        runs = {str(task.path.absolute().relative_to(study)): task for task in tasks}
        known = self._cluster.active([each.task for each in self._tasks_file.runs.values()])
        outcomes = {}
        missing = {}
        for run, task in runs.items():
            kept = self._tasks_file.runs.get(run)
            if (kept is None or kept.task not in known) and is_finished(task):
                outcomes[task.path] = finish_run(task, SilentProgress(), device=None)
                self._tasks_file.end(run)
                self._tally.done += 1
            else:
                missing[run] = task
        if missing:
            watch = _Watch(
                missing, self._cluster, self._tasks_file, self._tally, self._warned, self._command
            )
            outcomes |= watch.work()
        return outcomes


@dataclass
class _Running:
    """A task that the cluster has."""

    submitted: Submitted
    begun: float | None = None
    """When its node first spoke."""
    progress: Progress | None = None
    stale: Progress | None = None
    """What a node said that was lost, where the scheduler tries again by itself."""
    ended: float | None = None
    """When the scheduler first said that it has ended."""


class _Watch:
    """The tasks that make some runs, and the runs that wait to be submitted."""

    def __init__(
        self,
        runs: Mapping[str, Task],
        cluster: Cluster,
        tasks_file: TasksFile,
        tally: Tally,
        warned: set[str],
        command: str,
    ) -> None:
        self._runs = runs
        self._cluster = cluster
        self._tasks_file = tasks_file
        self._board: Board = default_board(tally)
        self._shown = RunBoard(self._board, warned)
        self._tries = Tries(cluster, tasks_file)
        self._command = command
        self._waiting: deque[str] = deque()
        self._running: dict[str, _Running] = {}
        self._outcomes: dict[Path, Outcome] = {}
        self._lost: dict[str, str] = {}
        self._error: Exception | None = None
        self._is_stopping = False
        self._asked = -float("inf")
        self._file = ProgressFile(tasks_file.folder, tally)

    def work(self) -> dict[Path, Outcome]:
        """Make all runs; return their outcomes by their folders."""
        self._tasks_file.write()
        self._tasks_file.stop_file.unlink(missing_ok=True)
        own = HeardStages(say_nothing, self._board.note)
        with GracefulStop() as signals, self._board, shown_by(own):
            self._join()
            while self._running or (self._waiting and not self._is_stopping):
                if signals.requested:
                    raise self._leave()
                if self._tasks_file.stop_file.exists():
                    self._stop()
                self._submit()
                time.sleep(_LOOK_S)
                self._look()
                self._ask()
                self._board.refresh()
                self._file.refresh({run: each.progress for run, each in self._running.items()})
        if self._error is not None:
            raise self._error
        if self._is_stopping:
            raise Interrupted(f"stopped by {self._tasks_file.stop_file}: {self._counted()}")
        if self._lost:
            raise self._give_up()
        return self._outcomes

    def _join(self) -> None:
        for run in self._runs:
            kept = self._tasks_file.runs.get(run)
            if kept is None or not kept.task:
                self._waiting.append(run)
            else:
                self._running[run] = _Running(kept)
        if self._running:
            n_there = count(len(self._running), "run")
            self._board.note(f"{n_there} of before on {self._cluster.name}: joined")

    def _submit(self) -> None:
        while self._waiting and len(self._running) < _AT_ONCE and not self._is_stopping:
            run = self._waiting.popleft()
            try:
                self._running[run] = _Running(self._tries.submit(run, self._runs[run]))
            except (SublayerError, OSError) as error:
                self._tasks_file.end(run)
                self._fail(error)

    def _look(self) -> None:
        """Look at what the nodes have written."""
        now = time.monotonic()
        for run, each in list(self._running.items()):
            files = self._tasks_file.files(run)
            number = each.submitted.number
            try:
                progress = files.read_progress(number)
                end = files.read_end(number)
            except CheckpointError as error:
                self._drop(run)
                self._fail(error)
                continue
            if progress is not None and progress != each.stale:
                each.begun = each.begun or time.monotonic()
                each.progress = progress
                self._shown.show(self._runs[run].label, progress)
            if end is not None:
                self._end(run, each, end)
            elif each.ended is not None and now - each.ended > self._cluster.grace_s:
                self._lose(run, each, "its node was lost, or its task was ended")

    def _ask(self) -> None:
        """Ask the scheduler which tasks it still has."""
        now = time.monotonic()
        if now - self._asked < self._cluster.patience_s or not self._running:
            return
        self._asked = now
        active = self._cluster.active([each.submitted.task for each in self._running.values()])
        for run, each in self._running.items():
            task = each.submitted.task
            if task in active:
                each.ended = None
                if not active[task] and each.progress is not None:
                    self._wait_again(run, each, each.progress)
            elif each.ended is None:
                each.ended = now

    def _wait_again(self, run: str, each: _Running, progress: Progress) -> None:
        label = self._runs[run].label
        self._shown.end(label)
        self._board.note(f"{label}: {progress.host} was lost; {self._cluster.name} tries it again")
        each.stale, each.progress, each.begun = progress, None, None

    def _end(self, run: str, each: _Running, end: End) -> None:
        task = self._runs[run]
        if end.end == DONE["end"]:
            self._finish(run, each, end)
        elif end.end in (DIED, HELD):
            self._lose(run, each, end.text)
        elif end.end == STOPPED["end"] and self._tasks_file.stop_file.exists():
            self._drop(run)
        elif end.end == STOPPED["end"]:
            self._lose(run, each, "it was asked to stop, and saved")
        else:
            self._drop(run)
            error = read_end(end.model_dump(), task.label)
            assert error is not None, "a run that is done was read before"
            self._fail(error)

    def _finish(self, run: str, each: _Running, end: End) -> None:
        task = self._runs[run]
        try:
            _wait_until_seen(task)
            outcome = finish_run(task, SilentProgress(), device=None)
        except (SublayerError, OSError) as damage:
            self._drop(run)
            self._fail(damage)
            return
        self._outcomes[task.path] = outcome
        tally = self._board.tally
        tally.done += 1
        took = ""
        if each.begun is not None:
            seconds = time.monotonic() - each.begun
            tally.seconds.append(seconds)
            took = f", after {format_seconds(seconds)}"
        self._drop(run)
        text = describe_end(task, outcome)
        self._board.note(f"[{tally.describe()}] {task.label}: {text}{took} on {end.host}")

    def _drop(self, run: str) -> None:
        """Take a task off the board and off what is kept."""
        del self._running[run]
        self._shown.end(self._runs[run].label)
        self._tasks_file.end(run)

    def _lose(self, run: str, each: _Running, reason: str) -> None:
        """Have a run tried again, from its checkpoint, or give it up."""
        task = self._runs[run]
        text = f"{reason} on {each.progress.host}" if each.progress is not None else reason
        self._drop(run)
        if self._is_stopping:
            self._cluster.cancel([each.submitted.task])
        elif self._tries.lose(run, task, each.submitted):
            self._board.note(f"{task.label}: {text}; tried again")
            self._waiting.appendleft(run)
        else:
            self._lost[task.label] = text
            self._board.note(f"{task.label}: {text}; given up after {MOST_TRIES} tries")

    def _fail(self, error: Exception) -> None:
        """Have all other runs save and stop, and the error raised once they have."""
        if self._error is None and not isinstance(error, Interrupted):
            self._error = error
        self._tasks_file.stop_file.touch()
        self._stop()

    def _stop(self) -> None:
        """Submit nothing more, and take back what has not begun; the others see the file."""
        if self._is_stopping:
            return
        self._is_stopping = True
        unbegun = [each for each in self._running.items() if each[1].progress is None]
        self._cluster.cancel([each.submitted.task for _, each in unbegun])

    def _leave(self) -> Interrupted:
        """Return what is said where the command ends and the runs go on."""
        n_there = len(self._running)
        go_on = f"{count(n_there, 'run')} {'goes' if n_there == 1 else 'go'} on"
        left = f"; {len(self._waiting)} not submitted yet" if self._waiting else ""
        return Interrupted(
            f"left with {self._counted()}; {go_on} on {self._cluster.name}{left}: joined again by "
            f"{self._command}; a file {self._tasks_file.stop_file} has them save and stop"
        )

    def _counted(self) -> str:
        tally = self._board.tally
        return f"{tally.done} of {count(tally.total, 'run')} done"

    def _give_up(self) -> TrainingError:
        label, reason = next(iter(self._lost.items()))
        return TrainingError(
            f"{self._counted()}, and {count(len(self._lost), 'run')} lost {MOST_TRIES} times in a "
            f"row, {label} first: {reason}; {self._tasks_file.folder} has their logs, and the same "
            "command tries again"
        )


def _wait_until_seen(task: Task) -> None:
    """Wait until what a node has written of a run is seen here: on most systems it is at once."""
    until = time.monotonic() + _SEEN_S
    while not is_finished(task):
        if time.monotonic() > until:
            raise ConfigError(
                f"{task.label}: its node says that it is done, and {task.path} does not: the "
                "study's folder must be the same on all nodes"
            )
        list_names(task.path)
        time.sleep(_LOOK_S)
