"""Make a study's runs on a cluster: what is done is read, all others are submitted and watched."""

from collections.abc import Sequence
from pathlib import Path

from sublayer.study.cluster.clock import REAL, Clock
from sublayer.study.cluster.cluster import Cluster, NoAnswer
from sublayer.study.cluster.tasks_file import TasksFile
from sublayer.study.cluster.watch import OfStudy, Watch
from sublayer.study.execution.board import Tally, default_board
from sublayer.study.execution.one_run import Outcome, Task, finish_run, is_finished
from sublayer.training.progress import SilentProgress


class OnCluster:
    """Makes runs on a cluster, ``total`` in all; ``command`` joins those that are left there."""

    def __init__(
        self,
        total: int,
        cluster: Cluster,
        tasks_file: TasksFile,
        command: str,
        clock: Clock = REAL,
    ) -> None:
        self._cluster = cluster
        self._tasks_file = tasks_file
        self._board = default_board(Tally(total))
        self._of_study = OfStudy(cluster, tasks_file, self._board, command, clock)

    def __call__(self, tasks: Sequence[Task]) -> dict[Path, Outcome]:
        """Make the runs, or what is missing of them, and return their outcomes by their folders.

        A signal leaves them on the cluster and raises Interrupted; a run that cannot be made stops
        the others, which save, and is raised. Raises TrainingError, once all others are done, where
        runs were lost too often.
        """
        study = self._tasks_file.study
        runs = {str(task.path.absolute().relative_to(study)): task for task in tasks}
        known = self._known()
        outcomes = {}
        missing = {}
        for run, task in runs.items():
            kept = self._tasks_file.runs.get(run)
            if (kept is None or kept.task not in known) and is_finished(task):
                outcomes[task.path] = finish_run(task, SilentProgress(), device=None)
                self._tasks_file.end(run)
                self._board.tally.find()
            else:
                missing[run] = task
        if missing:
            outcomes |= Watch(missing, self._of_study).work()
        return outcomes

    def _known(self) -> set[str]:
        """Return the tasks of before that may not have ended."""
        kept = {each.task for each in self._tasks_file.runs.values()}
        try:
            return set(self._cluster.active(kept))
        except NoAnswer:
            return kept
