"""A task that a cluster has, as whoever watches it knows it, and how its try has ended."""

from dataclasses import dataclass

from sublayer.errors import ConfigError
from sublayer.study.cluster.exchange import End, Progress, RunFiles, list_names
from sublayer.study.cluster.tasks_file import Submitted
from sublayer.study.execution.job import DONE
from sublayer.study.execution.one_run import Outcome, Task, finish_run, is_finished
from sublayer.training.progress import SilentProgress


@dataclass
class Running:
    """A task that the cluster has."""

    submitted: Submitted
    begun: float | None = None
    """When its node first spoke."""
    progress: Progress | None = None
    stale: Progress | None = None
    """What a node said that was lost, where the scheduler tries again by itself."""
    reason: str = ""
    """Why it waits, in the scheduler's words."""
    ended: float | None = None
    """When the scheduler first said that it has ended."""
    unseen: float | None = None
    """Since when what its node has written is not seen, or cannot be read."""


def read_ended(task: Task, files: RunFiles, number: int) -> tuple[End, Outcome | None] | None:
    """Return how a try has ended, with the outcome of a run that is done; None where it has not.

    Raises SublayerError and OSError where that is not all seen here, or cannot be read: on file
    systems that are shared it may be a moment later.
    """
    end = files.read_end(number)
    if end is None:
        return None
    if end.end != DONE["end"]:
        return end, None
    # Listed, so that a shared file system looks for what is new.
    list_names(task.path)
    if not is_finished(task):
        raise ConfigError(
            f"{task.label}: its node says that it is done, and {task.path} does not: the study's "
            "folder must be the same on all nodes"
        )
    return end, finish_run(task, SilentProgress(), device=None)
