"""A run of a study as a job for a process of its own."""

from sublayer.study.execution.job import Job
from sublayer.study.execution.one_run import Task


def job_of(task: Task, device: str | None) -> Job:
    """Return the job that makes a run; ``device`` is as on the command line."""
    return Job(
        task.label,
        task.path,
        task.loaded.recipe,
        task.scored,
        task.checksums,
        device,
        task.scoring,
        task.finetunes,
        task.is_scored,
        task.members,
        task.inspecting,
        task.plan,
    )
