"""The loop over a study's jobs: submit missing runs, poll them, resubmit lost ones; their display.

Progress is shown on standard error: live bars on a terminal, lines in a pipe.
"""

import hashlib
import shutil
import tempfile
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TextIO

from sublayer.errors import Interrupted, SublayerError, TrainingError
from sublayer.files.checkpoints import RECORD
from sublayer.loading import CHECKPOINTS_NAME
from sublayer.numbers import count
from sublayer.study.jobs.backends import Backend, Needs, SchedulerError
from sublayer.study.jobs.files import DONE, STOPPED, JobFiles, JobStatus
from sublayer.study.jobs.run import Job, Outcome, finish_run
from sublayer.system.signals import GracefulStop
from sublayer.system.terminal import (
    HeardStages,
    console_of,
    format_seconds,
    is_live,
    lasting_stderr,
    live_lines,
    print_line,
    print_wrapped,
    say_nothing,
    shown_by,
    start_ticking,
)
from sublayer.training.log import Progress, SilentProgress, Status

if TYPE_CHECKING:
    from rich.console import Group

MOST_TRIES = 3
"""Maximum tries in a row of a run that loses its jobs without a new checkpoint."""
CLUSTER = "cluster"
"""Subfolder of a study for the files of its jobs on a cluster."""
_PAUSE_S = 30.0
"""Seconds after a refusal until the next submission: sites limit the jobs of a user."""
_SEEN_S = 90.0
"""Seconds until a node's result is visible here: shared file systems may take a minute."""
_SILENCE_S = 120.0
"""Seconds without an answer of a scheduler, until a note."""
_USUAL = {"", "None", "Priority", "Resources", "BeginTime"}
"""Transient reasons to wait."""
_FIRST_ESTIMATE_S = 2.0
"""Seconds until the first estimate of the remaining time."""
_LEAST_WORK = 0.01
"""Minimum share of a run for an estimate of the pace."""
_LEAST_PAUSE_S, _MOST_PAUSE_S = 5.0, 60.0
"""Seconds between lines in a pipe, if no run ends: a twentieth of the time so far, within these."""
_LOOK_S = 0.5


@dataclass
class _BoardRow:
    """An active run."""

    begun: float
    stage: str = "starting"
    """Its stage; "" while it trains."""
    status: Status | None = None
    first: tuple[float, int] = (0.0, 0)
    """Time and step of its first status."""

    @property
    def fraction(self) -> float:
        return 0.0 if self.status is None else self.status.step / self.status.steps

    @property
    def where(self) -> str:
        status = self.status
        if status is None or self.stage:
            return self.stage
        return f"step {status.step:,}/{status.steps:,}, loss {status.loss:.4f}"

    def left_s(self, now: float) -> float | None:
        """Return the seconds for its remaining steps; None until known."""
        at, first = self.first
        if self.status is None or self.status.step <= first:
            return None
        return (now - at) / (self.status.step - first) * (self.status.steps - self.status.step)


class Board(ABC):
    """Display of a comparison's runs by label; entered while some are active, repeatedly.

    ``done`` of ``total`` runs are done. The pace counts only work done here, not runs of earlier
    commands.
    """

    def __init__(
        self, total: int, stream: TextIO, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.total = total
        self.done = 0
        self._left = float(total)
        """Remaining work, in runs."""
        self._worked = 0.0
        self._begun: float | None = None
        self._stream = stream
        self._clock = clock
        self._rows: dict[str, _BoardRow] = {}
        self._warned: set[str] = set()

    def find(self) -> None:
        """Count a run done earlier."""
        self.done += 1
        self._left -= 1.0

    def _work(self, share: float) -> None:
        """Count a share of a run done now; the first starts the clock."""
        self._left -= share
        if self._begun is None:
            self._begun = self._clock()
        else:
            self._worked += share

    def describe(self) -> str:
        """Format the progress, as ``3/80, about 12:03 to go``."""
        elapsed = 0.0 if self._begun is None else self._clock() - self._begun
        if elapsed < _FIRST_ESTIMATE_S or self._worked < _LEAST_WORK or self.done == self.total:
            return f"{self.done}/{self.total}"
        left_s = elapsed / self._worked * self._left
        return f"{self.done}/{self.total}, about {format_seconds(left_s)} to go"

    @abstractmethod
    def __enter__(self) -> Self:
        """Start showing."""

    @abstractmethod
    def __exit__(self, *_: object) -> None:
        """Stop showing."""

    def begin(self, label: str) -> None:
        """Show that a run has started."""
        self._rows[label] = _BoardRow(self._clock())

    def update(self, label: str, status: Status) -> None:
        """Show the status of a run; cheap."""
        row = self._rows[label]
        before = status.step - 1 if row.status is None else row.status.step
        if row.status is None:
            row.first = self._clock(), status.step
            self._left -= before / status.steps  # made earlier
        self._work((status.step - before) / status.steps)
        row.status = status
        row.stage = ""

    def stage(self, label: str, text: str) -> None:
        """Show the stage of a run; "" while it trains."""
        row = self._rows[label]
        if text or row.status is not None:
            row.stage = text

    def finish(self, label: str, text: str, where: str = "") -> None:
        """Count a finished run, and print its outcome."""
        row = self._rows.pop(label, None)
        if row is not None:
            where = f", after {format_seconds(self._clock() - row.begun)}{where}"
        self._work(1.0 - (0.0 if row is None else row.fraction))
        self.done += 1
        self.ended(f"{label}: {text}{where}")

    def drop(self, label: str) -> None:
        """Remove an unfinished run from the display."""
        row = self._rows.pop(label, None)
        if row is not None:
            self._left += row.fraction

    def warn(self, label: str, text: str) -> None:
        """Print a warning, unless another run has printed it."""
        if text not in self._warned:
            self._warned.add(text)
            self.note(f"{label}: {text}")

    @abstractmethod
    def ended(self, text: str) -> None:
        """Print the outcome of a run."""

    @abstractmethod
    def note(self, text: str) -> None:
        """Print a permanent line."""

    def interruption(self) -> Interrupted:
        """Return the error that ends the study, with the number of runs done."""
        return Interrupted(
            f"interrupted with {self.done} of {count(self.total, 'run')} done, and the others "
            "saved; the same command resumes"
        )


class PlainBoard(Board):
    """A line for each finished run, and in between one line of all active runs."""

    def __init__(
        self, total: int, stream: TextIO, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(total, stream, clock)
        self._first = self._last = clock()

    def __enter__(self) -> Self:
        """Check every half second whether a line is due."""
        self._over = start_ticking(self.tick, _LOOK_S)
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def ended(self, text: str) -> None:
        """Print it, after the number of finished runs."""
        self.note(f"[{self.describe()}] {text}")

    def note(self, text: str) -> None:
        """Print a line."""
        self._last = self._clock()
        print_line(text, self._stream)

    def tick(self) -> None:
        """Print a line if the last one is old enough."""
        now = self._clock()
        pause = min(_MOST_PAUSE_S, max(_LEAST_PAUSE_S, (now - self._first) / 20))
        if now - self._last >= pause and self._rows:
            running = [f"{label} ({row.where})" for label, row in list(self._rows.items())]
            self.ended(f"running {'; '.join(running)}")


class TerminalBoard(Board):
    """A bar for all runs, and one for each active run; removed at the end."""

    def __init__(
        self, total: int, stream: TextIO, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__(total, stream, clock)
        self._ended = ""
        self._console = console_of(stream)

    def __enter__(self) -> Self:
        self._live = live_lines(self._console, self._draw, per_second=4)
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def ended(self, text: str) -> None:
        """Show it below the runs."""
        self._ended = text

    def note(self, text: str) -> None:
        """Print a text above the board."""
        print_wrapped(self._console, text)

    def _draw(self) -> "Group":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table.grid("", "", "", padding=(0, 2, 0, 0))
        for column in (table.columns[0], table.columns[2]):
            column.no_wrap, column.overflow = True, "ellipsis"
        table.columns[1].width = max(4, min(20, self._console.width - 72))
        rows = list(self._rows.items())
        share = (self.done + sum(row.fraction for _, row in rows)) / self.total
        table.add_row("all runs", ProgressBar(1.0, share), self.describe())
        for label, row in rows:
            where, left_s = row.where, row.left_s(self._clock())
            if left_s is not None and not row.stage:
                where += f", {format_seconds(left_s)} left"
            table.add_row(Text(label), ProgressBar(1.0, row.fraction), Text(where))
        last = Text(self._ended, no_wrap=True, overflow="ellipsis")
        return Group(table, last) if self._ended else Group(table)


class BoardProgress(Progress):
    """The progress of a run in this process."""

    is_alone = False

    def __init__(self, board: Board, label: str) -> None:
        self._board = board
        self._label = label

    def update(self, status: Status) -> None:
        """Move the run's bar."""
        self._board.update(self._label, status)

    def note(self, text: str) -> None:
        """Print a line, after the run's label."""
        self._board.note(f"{self._label}: {text}")

    def warn(self, text: str) -> None:
        """Print a line, unless another run has printed it."""
        self._board.warn(self._label, text)


def default_board(total: int) -> Board:
    """Return a live board if standard error is a terminal, else plain lines."""
    stream = lasting_stderr()
    return (TerminalBoard if is_live(stream) else PlainBoard)(total, stream)


class InTurn:
    """Makes runs one after another in this process, ``total`` in all."""

    def __init__(self, total: int, device: str | None) -> None:
        self._board = default_board(total)
        self._device = device

    def __call__(self, jobs: Sequence[Job]) -> dict[Path, Outcome]:
        """Make the runs that are missing, and return all outcomes by their folders."""
        with self._board:
            return {job.path: self._make(job) for job in jobs}

    def _make(self, job: Job) -> Outcome:
        board, label = self._board, job.label
        if job.is_finished():
            board.find()
            return finish_run(job, SilentProgress(), device=self._device)
        board.begin(label)
        try:
            with shown_by(HeardStages(partial(board.stage, label), board.note)):
                outcome = finish_run(job, BoardProgress(board, label), device=self._device)
        except (Interrupted, KeyboardInterrupt):
            # Training raises the former, scoring the latter.
            raise board.interruption() from None
        board.finish(label, job.describe_end(outcome))
        return outcome


@dataclass(eq=False)
class _Run:
    """A run that is waiting, running or lost."""

    name: str
    """Name of its jobs: the same for the same run of the same study, for every command."""
    job: Job
    files: JobFiles
    shown: JobStatus | None = None
    """The status on the board."""
    ended: float | None = None
    """Time of the end of its job, while its result is not visible yet."""
    n_lost: int = 0
    """Lost tries in a row without a new checkpoint."""
    reached: str = ""
    """The newest checkpoint at the last loss."""


class JobLoop:
    """Loop that makes runs by the jobs of a back end, ``total`` in all, over several calls."""

    def __init__(
        self,
        total: int,
        backend: Backend,
        study: Path,
        device: str | None,
        *,
        needs_of: Callable[[Job], Needs] | None = None,
        command: str = "",
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """``needs_of`` returns the needs of a cluster's job; ``command`` joins the cluster's jobs.

        ``now`` is in seconds since any fixed moment.
        """
        self._backend = backend
        self._is_cluster = needs_of is not None
        self._needs_of = needs_of
        self._study = study.absolute()
        self._device = device
        self._command = command
        self._now = now
        self._sleep = sleep
        self._board = default_board(total)
        self._folder = self._study / CLUSTER if self._is_cluster else Path(tempfile.mkdtemp())
        self._stop_file = self._folder / "stop" if self._is_cluster else None

    def close(self) -> None:
        """End the processes of this machine, and remove their files."""
        self._backend.close()
        if not self._is_cluster:
            shutil.rmtree(self._folder, ignore_errors=True)

    def __call__(self, jobs: Sequence[Job]) -> dict[Path, Outcome]:
        """Make the runs that are missing, and return all outcomes by their folders.

        On a signal they save and stop; a cluster's jobs continue. An error of a run stops the
        others, which save, and is raised. Raises TrainingError, after all others, for runs lost too
        often, and for a lost cluster; Interrupted.
        """
        self._outcomes: dict[Path, Outcome] = {}
        self._waiting: deque[_Run] = deque()
        self._running: list[_Run] = []
        for job in jobs:
            if job.is_finished():
                self._outcomes[job.path] = finish_run(job, SilentProgress(), device=self._device)
                self._board.find()
            else:
                run = str(job.path.absolute().relative_to(self._study))
                name = hashlib.sha256(f"{self._study}\n{run}".encode()).hexdigest()[:16]
                self._waiting.append(_Run(name, job, JobFiles(self._folder / "runs" / run)))
        if self._waiting:
            try:
                self._work()
            except BaseException:  # also a second Ctrl-C
                self._backend.close(at_once=True)
                raise
        return self._outcomes

    def _work(self) -> None:
        self._active: dict[str, str] | None = None
        self._asked = self._due = -float("inf")
        self._answered = self._now()
        self._lost: dict[str, str] = {}
        self._error: Exception | None = None
        self._is_stopping = False
        if self._stop_file is not None:
            self._folder.mkdir(exist_ok=True)
            self._stop_file.unlink(missing_ok=True)
        stages = HeardStages(say_nothing, self._board.note)
        with GracefulStop() as signals, self._board, shown_by(stages):
            while self._running or (self._waiting and not self._is_stopping):
                if signals.requested and self._is_cluster:
                    n_there = len(self._running)
                    go_on = f"{count(n_there, 'run')} {'continues' if n_there == 1 else 'continue'}"
                    left = f"; {len(self._waiting)} not submitted yet" if self._waiting else ""
                    raise Interrupted(
                        f"left with {self._counted()}; {go_on} on {self._backend.name}{left}: "
                        f"rejoin with {self._command}; create the file {self._stop_file} to have "
                        "them save and stop"
                    )
                if signals.requested or (self._stop_file is not None and self._stop_file.exists()):
                    self._stop()
                self._ask()
                self._submit()
                self._sleep(self._backend.look_s)
                for run in list(self._running):
                    self._look(run)
        if self._error is not None:
            raise self._error
        if self._is_stopping and self._is_cluster:
            raise Interrupted(f"stopped by {self._stop_file}: {self._counted()}")
        if self._is_stopping:
            raise self._board.interruption()
        if self._lost:
            label, reason = next(iter(self._lost.items()))
            hint = "" if self._is_cluster else ", with fewer --jobs if need be"
            raise TrainingError(
                f"{self._counted()}, and {count(len(self._lost), 'run')} lost {MOST_TRIES} times "
                f"in a row without a new checkpoint: run the same command again{hint}; {label} "
                f"first: {reason}"
            )

    def _ask(self) -> None:
        """Query the back end for its jobs, unless done a moment ago."""
        backend, now = self._backend, self._now()
        if now - self._asked < backend.patience_s:
            return
        self._asked = now
        try:
            active = dict(backend.active())
        except SchedulerError as error:
            silence_s = now - self._answered
            if silence_s >= backend.silence_s:
                raise TrainingError(
                    f"the cluster does not answer ({error}): its jobs continue if they can; run "
                    "the same command again to resume once it answers"
                ) from None
            if silence_s >= _SILENCE_S:
                self._board.warn(backend.name, f"no answer for two minutes ({error}): retrying")
            return
        if self._active is None and self._is_cluster:
            n_there = sum(run.name in active for run in self._waiting)
            if n_there:
                self._board.note(
                    f"{count(n_there, 'run')} of an earlier command on {backend.name}: joined"
                )
        self._active, self._answered = active, now
        for run in self._running:
            reason = active.get(run.name, "")
            if reason not in _USUAL:
                self._board.warn(run.job.label, f"waits on {backend.name} for {reason}")

    def _submit(self) -> None:
        """Start jobs of waiting runs, up to the limit; join existing ones."""
        if self._active is None or self._is_stopping or self._now() < self._due:
            return
        while self._waiting and len(self._running) < self._backend.most_jobs:
            run = self._waiting[0]
            if run.name not in self._active:
                try:
                    needs = None if self._needs_of is None else self._needs_of(run.job)
                    run.files.write_job(run.job, run.job.checksums, self._device, self._stop_file)
                    run.ended = None
                    self._backend.start(run.name, run.job.label, run.files.folder, needs)
                except (SchedulerError, OSError) as error:
                    if not self._is_cluster:
                        self._fail(error)
                    elif not self._running:
                        raise
                    else:
                        self._due = self._now() + _PAUSE_S
                        self._board.warn(run.job.label, f"was not accepted ({error}): retrying")
                    return
                self._active[run.name] = ""
            self._running.append(self._waiting.popleft())

    def _look(self, run: _Run) -> None:
        """Read the status of a job, and its result if it has ended."""
        assert self._active is not None, "jobs run once the back end has answered"
        label, status, reason = run.job.label, run.files.read_status(), self._active.get(run.name)
        if reason and run.shown is not None:
            self._board.note(
                f"{label}: {run.shown.host} was lost; {self._backend.name} tries again"
            )
            self._hide(run)
            run.files.forget_status()
        elif status is not None and not reason:
            self._show(run, status)
        end = None if status is None else status.end
        if reason is not None and end != DONE:
            run.ended = None
            return
        try:
            is_seen = False
            with suppress(OSError):
                list(run.job.path.iterdir())  # makes a shared file system refresh
                is_seen = run.job.is_finished()
            if is_seen:
                if reason:  # made by an earlier try that was presumed lost
                    self._backend.stop([run.name])
                outcome = finish_run(run.job, SilentProgress(), device=self._device)
                self._outcomes[run.job.path] = outcome
                on = f" on {run.shown.host}" if self._is_cluster and run.shown is not None else ""
                self._board.finish(label, run.job.describe_end(outcome), on)
                run.shown = None
                self._drop(run)
                return
        except SublayerError as error:
            self._drop(run)
            self._fail(error)
            return
        now = self._now()
        run.ended = now if run.ended is None else run.ended
        grace_s = self._backend.grace_s if end is None else _SEEN_S if end == DONE else 0.0
        if self._is_cluster and now - run.ended < grace_s:
            return
        if end is None:
            self._lose(run, self._backend.describe_loss(run.name))
        elif end == DONE:
            self._lose(run, "its result is not visible here, though reported as done")
        elif end == STOPPED:
            self._lose(run, "it was asked to stop, and saved")
        else:
            self._drop(run)
            self._fail(end.exception(label))

    def _drop(self, run: _Run) -> None:
        """Remove an ended job from the board and the active jobs."""
        self._hide(run)
        self._running.remove(run)
        self._due = self._now()  # there may be capacity

    def _lose(self, run: _Run, reason: str) -> None:
        """Retry a run from its checkpoint, or give it up."""
        label = run.job.label
        if run.shown is not None and self._is_cluster:
            reason = f"{reason} on {run.shown.host}"
        self._drop(run)
        if self._is_stopping:
            return
        reached = RECORD
        if not (run.job.path / RECORD).exists():
            checkpoints = (run.job.path / CHECKPOINTS_NAME).glob("*")
            reached = max((path.name for path in checkpoints), default="")
        run.n_lost = run.n_lost + 1 if reached == run.reached else 1
        run.reached = reached
        if run.n_lost < MOST_TRIES:
            self._board.note(f"{label}: {reason}; tried again")
            self._waiting.appendleft(run)
            return
        self._board.note(f"{label}: {reason}; given up after {MOST_TRIES} tries")
        last = ""
        with suppress(OSError):
            last = " | ".join(run.files.log.read_text(errors="replace").splitlines()[-3:])
        self._lost[label] = f"{reason}; {run.files.log} ends with {last}" if last else reason

    def _fail(self, error: Exception | None) -> None:
        """Have all other runs save and stop, then raise the error."""
        # Errors after the request to stop are its consequences.
        if not self._is_stopping and not isinstance(error, Interrupted):
            self._error = error
        self._stop()

    def _stop(self) -> None:
        """Submit nothing more; running jobs save and end, waiting ones are cancelled."""
        if self._is_stopping:
            return
        self._is_stopping = True
        if self._stop_file is not None:
            self._stop_file.touch()
        ended = [run for run in self._running if run.shown is None or not self._is_cluster]
        self._backend.stop([run.name for run in ended])

    def _show(self, run: _Run, status: JobStatus) -> None:
        """Show the changes of a job's status on the board."""
        board, label, before = self._board, run.job.label, run.shown
        if status == before:
            return
        if before is None:
            board.begin(label)
            if self._is_cluster:
                board.note(f"{label}: on {status.host}")
        for text in status.notes[len(before.notes) if before else 0 :]:
            board.note(f"{label}: {text}")
        for text in status.warnings[len(before.warnings) if before else 0 :]:
            board.warn(label, text)
        if status.training is not None:
            board.update(label, status.training)
        board.stage(label, status.stage)
        run.shown = status

    def _hide(self, run: _Run) -> None:
        if run.shown is not None:
            self._board.drop(run.job.label)
        run.shown = None

    def _counted(self) -> str:
        return f"{self._board.done} of {count(self._board.total, 'run')} done"
