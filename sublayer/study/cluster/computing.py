"""Where the runs of a study are computed: here in turn, several at a time, or on a cluster."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sublayer.config.recipe import Recipe
from sublayer.data.prepare import Data
from sublayer.errors import ConfigError, Interrupted
from sublayer.study.arm_runs import RunAll
from sublayer.study.arms import Arm
from sublayer.study.budget.match import MatchedArm
from sublayer.study.cluster.cluster import Cluster, Needs
from sublayer.study.cluster.cold_cache import preparation_bytes
from sublayer.study.cluster.needs import check_needs, describe_needs, needs_of, usual_threads
from sublayer.study.cluster.on_cluster import OnCluster
from sublayer.study.cluster.place import ClusterPlace, parse_place
from sublayer.study.cluster.probe import check_nodes
from sublayer.study.cluster.schedulers.ray_cluster import RayCluster
from sublayer.study.cluster.schedulers.slurm_cluster import SlurmCluster
from sublayer.study.cluster.tasks_file import TasksFile, check_left
from sublayer.study.execution.in_turn import InTurn
from sublayer.study.execution.jobs import shared_threads
from sublayer.study.execution.shares import describe_share
from sublayer.study.execution.side_by_side import SideBySide
from sublayer.system.machine import check_device, choose_device
from sublayer.system.stages import note, stage
from sublayer.training.graceful_stop import GracefulStop

CLUSTERS: Mapping[str, Callable[[ClusterPlace], Cluster]] = {
    "ray": RayCluster,
    "slurm": SlurmCluster,
}


class Computing:
    """What makes the runs of a study, as ``--jobs``, ``--on`` and ``--device`` say."""

    def __init__(self, study: Path, *, jobs: int, on: str | None, device: str | None) -> None:
        """Connect to the cluster if there is to be one; nothing is asked of it yet.

        Raises ConfigError where there is none, or another has runs of the study, and DataError
        without the library that it takes.
        """
        self._study = study.absolute()
        self.jobs = jobs
        self._device = device
        self._cluster: Cluster | None = None
        self._side_by_side: SideBySide | None = None
        if on is None:
            check_left(self._study)
            return
        place = parse_place(on)
        usual = str(choose_device(None))
        self._tasks_file = TasksFile.open(self._study, str(place), device, usual)
        self._cluster = CLUSTERS[place.kind](place)

    @property
    def cluster(self) -> str | None:
        """The kind of cluster; None: runs are made here."""
        return None if self._cluster is None else self._cluster.name.partition(":")[0]

    @property
    def where(self) -> str:
        """What a header says of it beside the number of runs; "" for one at a time."""
        if self._cluster is not None:
            return f", on {self._cluster.name}"
        return f", {self.jobs} at a time" if self.jobs > 1 else ""

    @property
    def device(self) -> str | None:
        """The device of this process, as on the command line."""
        if self._cluster is None:
            return self._device
        try:
            check_device(self._tasks_file.device)
        except ConfigError:
            return "cpu"
        return self._tasks_file.device

    @property
    def runs_device(self) -> str:
        """The device of the runs."""
        if self._cluster is None:
            return str(choose_device(self._device))
        return self._tasks_file.device

    def check_precision(self, arms: Sequence[Arm]) -> None:
        """Raise ConfigError where a precision is to be measured on a device that is not here."""
        if self._cluster is None or self.device == self._tasks_file.device:
            return
        for arm in arms:
            if arm.loaded.recipe.train.precision == "auto":
                raise ConfigError(
                    f"{arm.name}: train.precision = auto is measured where compare runs, which has "
                    f"no {self._tasks_file.device}: give train.precision = bfloat16 or float32"
                )

    def threads(self, n_runs: int) -> int | None:
        """Return the threads of each of so many runs that say nothing of them; None: all here."""
        if self._cluster is not None:
            return usual_threads(self._cluster.nodes(), n_runs)
        return shared_threads(min(self.jobs, n_runs)) if self.jobs > 1 else None

    def check(
        self,
        arms: Sequence[MatchedArm],
        data: Mapping[str, Data],
        n_runs: int,
        *,
        is_announced: bool = False,
    ) -> None:
        """Say what runs of arms take together, ``data`` being each arm's, unless announced.

        Raises ConfigError where there is too little of it, or where nodes do not see the folder.
        """
        if self._cluster is not None:
            known = [(arm.loaded.recipe, data[arm.arm.name]) for arm in arms]
            needs = [self._needs_of(recipe, own.tokenizer.vocab_size, own) for recipe, own in known]
            self._check_needs(needs, n_runs)
        elif self.jobs > 1:
            text = describe_share(
                arms, data, n_runs=n_runs, jobs=self.jobs, device=self._device, folder=self._study
            )
            if not is_announced:
                note(text)

    def check_recipes(self, recipes: Sequence[tuple[Recipe, int]], n_runs: int) -> None:
        """Say what runs of recipes take of a cluster, each with the size of its vocabulary.

        Raises as ``check`` does; without a cluster nothing is looked at.
        """
        if self._cluster is not None:
            needs = [self._needs_of(recipe, size, None) for recipe, size in recipes]
            self._check_needs(needs, n_runs)

    def _needs_of(self, recipe: Recipe, vocab_size: int, data: Data | None) -> Needs:
        preparing = preparation_bytes(recipe, data, self._study)
        return needs_of(recipe, vocab_size, self._tasks_file.device, preparing_bytes=preparing)

    def _check_needs(self, needs: Sequence[Needs], n_runs: int) -> None:
        assert self._cluster is not None, "without a cluster there is nothing to check"
        on, nodes = self._cluster.name, self._cluster.nodes()
        most = check_needs(needs, nodes, on)
        note(describe_needs(most, nodes, n_runs, on))
        if self._tasks_file.hosts and "" in self._cluster.probed():
            return  # one that is queued for is asked once
        with GracefulStop() as signals, stage(f"asking nodes of {on} whether they see the folder"):
            hosts = check_nodes(self._cluster, self._study, lambda: signals.requested)
            if signals.requested:
                raise Interrupted("interrupted before the first run; the same command begins again")
        self._tasks_file.hosts = sorted(set(hosts))

    def run_all(self, total: int, command: str) -> RunAll:
        """Return what makes runs, ``total`` in all; ``command`` goes on with the study."""
        if self._cluster is not None:
            return OnCluster(total, self._cluster, self._tasks_file, command)
        if self.jobs > 1:
            self._side_by_side = SideBySide(total, self.jobs, self._device)
            return self._side_by_side
        return InTurn(total, self._device)

    def close(self) -> None:
        """End the processes that made runs."""
        if self._side_by_side is not None:
            self._side_by_side.close()
