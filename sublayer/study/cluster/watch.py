"""The tasks of a cluster that make some runs: submitted, watched through files, tried again."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from sublayer.counts import count
from sublayer.errors import Interrupted, SublayerError, TrainingError
from sublayer.study.cluster.asking import Asking
from sublayer.study.cluster.clock import Clock
from sublayer.study.cluster.cluster import Cluster, ClusterGone, NoAnswer, Refused
from sublayer.study.cluster.exchange import DIED, End, Progress
from sublayer.study.cluster.progress_file import ProgressFile
from sublayer.study.cluster.run_board import RunBoard
from sublayer.study.cluster.running import Running, read_ended
from sublayer.study.cluster.submissions import Submissions
from sublayer.study.cluster.tasks_file import TasksFile
from sublayer.study.cluster.tries import MOST_TRIES, Tries
from sublayer.study.execution.board import Board
from sublayer.study.execution.ended import describe_end
from sublayer.study.execution.job import FOLDER_HELD, STOPPED, read_end
from sublayer.study.execution.one_run import Outcome, Task
from sublayer.system.stage_displays import HeardStages, say_nothing
from sublayer.system.stages import shown_by
from sublayer.training.graceful_stop import GracefulStop

_AT_ONCE = 100
"""Tasks that wait or run at a time, where the site takes so many of one user."""
_LOOK_S = 0.5
"""Between two looks at the files of the runs."""
_SEEN_S = 90.0
"""After which all of what a node has written is seen, and can be read: file systems that are shared
may take a minute."""


@dataclass
class OfStudy:
    """What is the same for all runs of a study, one watch after another."""

    cluster: Cluster
    tasks_file: TasksFile
    board: Board
    command: str
    """Which joins the runs that are left."""
    clock: Clock

    def __post_init__(self) -> None:
        self.submissions = Submissions(self.clock)


class Watch:
    """The tasks that make some runs, and the runs that wait to be submitted."""

    def __init__(self, runs: Mapping[str, Task], of_study: OfStudy) -> None:
        self._runs = runs
        self._cluster = of_study.cluster
        self._tasks_file = of_study.tasks_file
        self._clock = of_study.clock
        self._waiting = of_study.submissions
        self._command = of_study.command
        self._board = of_study.board
        self._shown = RunBoard(self._board)
        self._tries = Tries(self._cluster, self._tasks_file)
        self._asking = Asking(self._cluster, self._board.note, self._clock)
        self._running: dict[str, Running] = {}
        self._outcomes: dict[Path, Outcome] = {}
        self._lost: dict[str, str] = {}
        self._error: Exception | None = None
        self._is_stopping = False
        self._file = ProgressFile(self._tasks_file.folder, of_study.board.tally)

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
                if self._tasks_file.is_stopping():
                    self._stop()
                self._submit()
                self._clock.sleep(_LOOK_S)
                self._look()
                self._ask()
                shown = {run: (each.progress, each.reason) for run, each in self._running.items()}
                self._file.refresh(shown)
        if self._error is not None:
            raise self._error
        if self._is_stopping:
            raise Interrupted(f"stopped by {self._tasks_file.stop_file}: {self._counted()}")
        if self._lost:
            raise self._give_up()
        self._tasks_file.write()
        return self._outcomes

    def _join(self) -> None:
        for run in self._runs:
            kept = self._tasks_file.runs.get(run)
            if kept is None or not kept.task:
                self._waiting.add(run)
            else:
                self._running[run] = Running(kept)
                self._waiting.take()
        if self._running:
            n_there = count(len(self._running), "run")
            self._board.note(f"{n_there} of before on {self._cluster.name}: joined")

    def _submit(self) -> None:
        while len(self._running) < _AT_ONCE and not self._is_stopping and self._waiting.is_due():
            run = self._waiting.pop()
            try:
                self._running[run] = Running(self._tries.submit(run, self._runs[run]))
                self._waiting.take()
            except ClusterGone:
                raise
            except (Refused, NoAnswer, OSError) as error:
                self._put_back(run, error)
            except SublayerError as error:
                self._tasks_file.end(run)
                self._fail(error)

    def _put_back(self, run: str, error: SublayerError | OSError) -> None:
        """Have a run that was not taken wait for its next try; fail where none is worth it."""
        if not self._waiting.refuse(run, n_there=len(self._running)):
            self._fail(error)
        elif self._waiting.is_news(str(error)):
            self._board.note(
                f"{self._runs[run].label} was not taken ({error}): it is tried again, and the "
                "pauses grow"
            )

    def _look(self) -> None:
        """Look at what the nodes have written."""
        for run, each in list(self._running.items()):
            files = self._tasks_file.files(run)
            progress = files.read_progress(each.submitted.number)
            if progress is not None and progress != each.stale:
                each.begun = each.begun or self._clock.now()
                each.progress = progress
                self._shown.show(self._runs[run].label, progress)
            try:
                ended = read_ended(self._runs[run], files, each.submitted.number)
            except (SublayerError, OSError) as error:
                self._wait_to_see(run, each, error)
                continue
            each.unseen = None
            if ended is not None:
                self._end(run, each, *ended)
            elif each.ended is not None and self._is_over(each.ended, self._cluster.grace_s):
                self._lose(run, each, "its node was lost, or its task was ended")

    def _wait_to_see(self, run: str, each: Running, error: SublayerError | OSError) -> None:
        """Look again later at what is not seen, or cannot be read; fail where it stays so."""
        if each.unseen is None:
            each.unseen = self._clock.now()
        if self._is_over(each.unseen, _SEEN_S):
            self._drop(run)
            self._fail(error)

    def _is_over(self, since: float, seconds: float) -> bool:
        return self._clock.now() - since > seconds

    def _ask(self) -> None:
        """Ask the scheduler which tasks it still has."""
        labels = {each.submitted.task: self._runs[run].label for run, each in self._running.items()}
        states = self._asking.ask(labels)
        if states is None:
            return
        for run, each in self._running.items():
            state = states.get(each.submitted.task)
            if state is None:
                each.ended = self._clock.now() if each.ended is None else each.ended
                continue
            each.ended = None
            each.reason = state.reason
            if not state.is_running and each.progress is not None:
                self._wait_again(run, each, each.progress)

    def _wait_again(self, run: str, each: Running, progress: Progress) -> None:
        label = self._runs[run].label
        self._shown.end(label)
        self._board.note(f"{label}: {progress.host} was lost; {self._cluster.name} tries it again")
        each.stale, each.progress, each.begun = progress, None, None

    def _end(self, run: str, each: Running, end: End, outcome: Outcome | None) -> None:
        task = self._runs[run]
        if outcome is not None:
            self._finish(run, end, outcome)
        elif end.end == DIED:
            self._lose(run, each, end.text)
        elif end.end in (STOPPED["end"], FOLDER_HELD) and self._tasks_file.is_stopping():
            self._drop(run)
        elif end.end == FOLDER_HELD:
            # It waited as long as it could: nothing was lost by it.
            self._drop(run)
            self._tries.begin_again(run, each.submitted)
            self._waiting.add(run, first=True)
        elif end.end == STOPPED["end"]:
            self._lose(run, each, "it was asked to stop, and saved")
        else:
            self._drop(run)
            error = read_end(end.model_dump(), task.label)
            assert error is not None, "a run that is done was read before"
            self._fail(error)

    def _finish(self, run: str, end: End, outcome: Outcome) -> None:
        task = self._runs[run]
        self._outcomes[task.path] = outcome
        self._board.finish(task.label, describe_end(task, outcome), f" on {end.host}")
        self._drop(run)

    def _drop(self, run: str) -> None:
        """Take a task off the board and off what is kept."""
        del self._running[run]
        self._shown.end(self._runs[run].label)
        self._tasks_file.end(run)
        self._waiting.hurry()

    def _lose(self, run: str, each: Running, reason: str) -> None:
        """Have a run tried again, from its checkpoint, or give it up."""
        task = self._runs[run]
        text = f"{reason} on {each.progress.host}" if each.progress is not None else reason
        self._drop(run)
        if self._is_stopping:
            self._cluster.cancel([each.submitted.task])
        elif self._tries.lose(run, task, each.submitted):
            self._board.note(f"{task.label}: {text}; tried again")
            self._waiting.add(run, first=True)
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
