"""The tries of runs on a cluster: each is a task, and a lost one is followed by another."""

import secrets
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
        """Submit a task for the next try of a run, or return the one that is there.

        Raises Refused, NoAnswer and OSError where that may be done later, ClusterGone, and what a
        run raises that cannot be described.
        """
        files = self._tasks_file.files(run)
        before = self._tasks_file.runs.get(run) or Submitted(task="", number=_last_try(files))
        if before.name and not before.task:
            # Whoever submitted it ended before its id was known, or was told of a time-out.
            found = self._cluster.find(before.name)
            if found is not None:
                return self._keep(run, before, found)
        # Number and name are kept first: where this process ends in between, the number is not
        # given again, and the task is found by its name.
        name = f"sublayer {task.label} {secrets.token_hex(4)}"
        changes = {"task": "", "name": name, "number": before.number + 1}
        submitted = before.model_copy(update=changes)
        self._tasks_file.submit(run, submitted)
        files.write_job(_anywhere(job_of(task, self._tasks_file.device)))
        words = self._words(files, submitted.number)
        needs = needs_of_task(task, self._tasks_file.device, self._tasks_file.study)
        own = self._tasks_file.folder / "scheduler"
        own.mkdir(exist_ok=True)
        return self._keep(run, submitted, self._cluster.submit(name, words, needs, own))

    def begin_again(self, run: str, ended: Submitted) -> None:
        """Note that a try has ended and that there is to be another, whatever it came to."""
        self._cluster.cancel([ended.task])
        self._tasks_file.note(run, ended.model_copy(update={"task": "", "name": ""}))

    def lose(self, run: str, task: Task, lost: Submitted) -> bool:
        """Note that a try is lost; return whether there is to be another."""
        # A scheduler may queue again what it ended, and two must not make one run.
        self._cluster.cancel([lost.task])
        try:
            reached = _reached(task.path)
        except OSError:  # nothing that is known was gained
            reached = lost.reached
        n_lost = lost.lost + 1 if reached == lost.reached else 1
        if n_lost >= MOST_TRIES:
            self._tasks_file.end(run)
            return False
        changes = {"task": "", "name": "", "lost": n_lost, "reached": reached}
        self._tasks_file.note(run, lost.model_copy(update=changes))
        return True

    def _keep(self, run: str, submitted: Submitted, identity: str) -> Submitted:
        known = submitted.model_copy(update={"task": identity})
        # The cluster has it: where this cannot be written, its name is.
        self._tasks_file.note(run, known)
        return known

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
