"""The tries of runs on a cluster: each is a task, and a lost one is followed by another."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from sublayer.config.layering.paths import absolute_paths
from sublayer.files.saved_record import RECORD
from sublayer.loading import CHECKPOINTS_NAME
from sublayer.study.cluster.cluster import Cluster
from sublayer.study.cluster.exchange import RunFiles, list_names
from sublayer.study.cluster.needs import needs_of_task
from sublayer.study.cluster.tasks_file import Submitted, TasksFile
from sublayer.study.execution.job import Job
from sublayer.study.execution.one_run import Task
from sublayer.study.execution.task_job import job_of

MOST_TRIES = 3
"""In a row, with nothing gained by them, of a run whose task is lost."""


class Tries:
    """Submits tasks for runs of a study, and keeps of each how often it was lost."""

    def __init__(self, cluster: Cluster, tasks_file: TasksFile) -> None:
        self._cluster = cluster
        self._tasks_file = tasks_file

    def submit(self, run: str, task: Task) -> Submitted:
        """Submit a task for the next try of a run. Raises ConfigError where it is refused."""
        files = self._tasks_file.files(run)
        before = self._tasks_file.runs.get(run) or Submitted(task="", number=_last_try(files))
        # The number is kept first: where this process ends in between, it is not given again.
        submitted = before.model_copy(update={"task": "", "number": before.number + 1})
        self._tasks_file.submit(run, submitted)
        files.write_job(_anywhere(job_of(task, self._tasks_file.device)))
        words = self._words(files, submitted.number)
        needs = needs_of_task(task, self._tasks_file.device)
        own = self._tasks_file.folder / "scheduler"
        own.mkdir(exist_ok=True)
        identity = self._cluster.submit(task.label, words, needs, own)
        submitted = submitted.model_copy(update={"task": identity})
        self._tasks_file.submit(run, submitted)
        return submitted

    def lose(self, run: str, task: Task, lost: Submitted) -> bool:
        """Note that a try is lost; return whether there is to be another."""
        # A scheduler may queue again what it ended, and two must not make one run.
        self._cluster.cancel([lost.task])
        reached = _reached(task.path)
        n_lost = lost.lost + 1 if reached == lost.reached else 1
        if n_lost >= MOST_TRIES:
            self._tasks_file.end(run)
            return False
        changes = {"task": "", "lost": n_lost, "reached": reached}
        self._tasks_file.submit(run, lost.model_copy(update=changes))
        return True

    def _words(self, files: RunFiles, number: int) -> Sequence[str]:
        return ["run", str(self._tasks_file.folder), str(files.folder), str(number)]


def _anywhere(job: Job) -> Job:
    """Return a job that names its files from any folder."""
    return replace(
        job,
        path=job.path.absolute(),
        recipe=absolute_paths(job.recipe),
        scored=absolute_paths(job.scored),
        members=[each.absolute() for each in job.members],
    )


def _reached(run: Path) -> str:
    """Return how far a run has come, as what its folder holds says."""
    names = list_names(run)
    if RECORD in names:
        return RECORD
    return max(list_names(run / CHECKPOINTS_NAME), default="")


def _last_try(files: RunFiles) -> int:
    """Return the number of the last try that left a trace; 0 without one."""
    names = list_names(files.folder)
    numbers = [name.removeprefix("log-").removesuffix(".txt") for name in names]
    return max((int(each) for each in numbers if each.isdecimal()), default=0)
