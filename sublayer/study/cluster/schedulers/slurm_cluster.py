"""A cluster of Slurm: each task is a batch job, submitted by submitit, asked about by squeue."""

import os
import re
import subprocess
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sublayer.errors import ConfigError, one_line
from sublayer.study.cluster.cluster import Cluster, Needs, NoAnswer, Node, Refused, TaskState
from sublayer.study.cluster.node import FREE
from sublayer.study.cluster.place import ClusterPlace
from sublayer.system.extras import extra_module
from sublayer.system.python_process import python_command

_NODE = "sublayer.study.cluster.node"
_ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "TIMEOUT",
}
"""States that a job does not leave: one that is queued again is in another."""
_WAITING = {"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"}
_UNUSABLE = ("down", "drain", "drng", "fail", "unk", "maint", "inval")
_WARNING_S = 90
"""Before the end of its time, a job is asked to save."""
_ASK_S = 30.0
_SHOWN = 120
"""Characters, the last, of what Slurm says of a failure."""


class _Job(NamedTuple):
    """A job, as squeue prints it with ``_FORMAT``."""

    identity: str
    state: str
    reason: str
    name: str


_FORMAT = "%i|%T|%r|%j"


class SlurmCluster(Cluster):
    """A partition, or the usual one, of the cluster that this machine's Slurm commands ask."""

    patience_s = 5.0
    grace_s = 10.0

    def __init__(self, place: ClusterPlace) -> None:
        """Find the cluster. Raises ConfigError where there is none, DataError without submitit."""
        self.name = str(place)
        self._submitit = extra_module("submitit", f"studies with --on {place}", "cluster")
        self._rows = [line.split("|") for line in self._sinfo().splitlines()]
        partitions = sorted({row[0].rstrip("*") for row in self._rows})
        usual = [row[0].rstrip("*") for row in self._rows if row[0].endswith("*")]
        self._partition = place.where or (usual[0] if usual else "")
        if self._partition not in partitions:
            named = f"no partition {self._partition}" if self._partition else "no usual partition"
            raise ConfigError(
                f"--on {place}: Slurm has {named}: name one of {', '.join(partitions) or 'none'} "
                "as --on slurm:PARTITION"
            )

    def nodes(self) -> list[Node]:
        """Return the nodes of the partition that are not down or drained."""
        return parse_nodes(self._rows, self._partition)

    def submit(
        self, name: str, words: Sequence[str], needs: Needs, folder: Path, node: str = ""
    ) -> str:
        """Submit a job; what submitit writes and pickles stands in ``folder`` and is its own."""
        extra: dict[str, Any] = {"signal": f"TERM@{_WARNING_S}"}
        if needs.memory_bytes and all(each.memory_bytes for each in self.nodes()):
            extra["mem"] = f"{-(-needs.memory_bytes >> 20)}M"
        if needs.gpus:
            extra["gres"] = f"gpu:{needs.gpus}"
        if node:
            extra["nodelist"] = node
        executor = self._submitit.SlurmExecutor(folder=folder)
        executor.update_parameters(
            job_name=name,
            partition=self._partition,
            time=None,  # the partition's, or that of SBATCH_TIMELIMIT
            cpus_per_task=needs.cores,
            # Since Slurm 22.05 a step does not have the cores of its job by itself.
            srun_args=[f"--cpus-per-task={needs.cores}"],
            additional_parameters=extra,
        )
        command = [*python_command(_NODE), FREE, *words]
        function = self._submitit.helpers.CommandFunction(command, verbose=False)
        try:
            job = executor.submit(function)
        except self._submitit.core.utils.FailedJobError as error:
            raise Refused(f"--on {self.name}: {one_line(str(error))}") from None
        return str(job.job_id)

    def find(self, name: str) -> str | None:
        """Return the job of that name; by its last word alone, which tells it from all others."""
        mark = name.split(" ")[-1]
        for job in self._jobs():
            if job.name.split(" ")[-1] == mark and job.state not in _ENDED:
                return job.identity
        return None

    def active(self, ids: Collection[str]) -> Mapping[str, TaskState]:
        """Return the jobs that have not ended; a job that Slurm has forgotten has."""
        return {
            job.identity: TaskState(job.state not in _WAITING, job.reason)
            for job in self._jobs()
            if job.identity in ids and job.state not in _ENDED
        }

    def cancel(self, ids: Collection[str]) -> None:
        """End jobs; those that run are asked first, and have the time that the site gives."""
        if ids:
            _ask("scancel", *ids)

    def probed(self) -> Mapping[str, str]:
        """Return whichever node is free first: each might be busy for days."""
        return {"": "a node"}

    def _jobs(self) -> list[_Job]:
        words = ["--noheader", f"--user={os.getuid()}", "--states=all", f"--format={_FORMAT}"]
        done = _ask("squeue", *words)
        if done is None:
            raise NoAnswer(f"--on {self.name}: squeue is not there, or does not answer")
        if done.returncode:
            said = one_line(done.stderr) or "squeue failed"
            raise NoAnswer(f"--on {self.name}: {said}")
        return [_Job(*line.split("|", 3)) for line in done.stdout.splitlines()]

    def _sinfo(self) -> str:
        done = _ask("sinfo", "--noheader", "--Node", "--format=%P|%N|%c|%m|%G|%t")
        if done is None:
            raise ConfigError(
                f"--on {self.name}: no sinfo here, or no answer from it: start compare on a "
                "machine of the Slurm cluster"
            )
        if done.returncode:
            said = one_line(done.stderr)[-_SHOWN:] or "sinfo failed"
            raise ConfigError(
                f"--on {self.name}: no Slurm answers ({said}): start compare on a machine of its "
                "cluster"
            )
        return done.stdout


def _ask(*command: str) -> subprocess.CompletedProcess[str] | None:
    """Run a command of Slurm; None where there is none, or no answer."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_ASK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None


def parse_nodes(rows: Sequence[Sequence[str]], partition: str) -> list[Node]:
    """Return a partition's nodes that take jobs, of rows as sinfo prints them.

    A row is partition, name, cores, megabytes, other resources and state.
    """
    found = []
    for own, name, n_cores, megabytes, others, state in rows:
        if own.rstrip("*") != partition or state.startswith(_UNUSABLE):
            continue
        # 1 is what Slurm has where its configuration says nothing.
        memory = int(megabytes) << 20 if int(megabytes) > 1 else None
        found.append(Node(name, int(n_cores), memory, _count_gpus(others)))
    return found


def _count_gpus(text: str) -> int:
    """Count the GPUs of what sinfo has of a node's other resources, as ``gpu:a100:4(S:0-1)``."""
    found = re.findall(r"(?:^|,)gpu(?::[^:,(]+)?:(\d+)", text)
    return sum(map(int, found))
