"""Back ends for the jobs of a study: local processes, batch jobs of Slurm, jobs of Ray.

A back end starts a named job, lists active jobs, and stops jobs. Jobs of a cluster outlast the
command, which finds them again by name.
"""

import os
import re
import secrets
import shlex
import socket
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from sublayer.errors import ConfigError, extra_module, one_line
from sublayer.system.processes import Forked, ForkServer, python_command

_WORKER = "sublayer.study.jobs.worker"
_PASSED_ON = ("SUBLAYER_", "HF_", "ATEN_", "ONEDNN_", "DNNL_", "MKL_", "CUBLAS_")
"""Prefixes of variables that name locations of texts, or affect the computation."""
_SHOWN = 160
"""Most characters shown of a scheduler's message, mostly its last."""


class SchedulerError(ConfigError):
    """A scheduler that does not answer, or did not accept a job; after a timeout, it may have."""


@dataclass(frozen=True)
class Needs:
    """The resources of a job, or of a cluster node."""

    cores: int
    memory_bytes: int
    """0: the scheduler's default for a job; for a node, memory is not counted."""
    gpus: int = 0

    def n_jobs(self, job: "Needs") -> int:
        """Count the jobs that a free node holds in parallel."""
        most = self.cores // job.cores
        if self.memory_bytes and job.memory_bytes:
            most = min(most, self.memory_bytes // job.memory_bytes)
        return min(most, self.gpus // job.gpus) if job.gpus else most


class Backend(ABC):
    """Runner of jobs, each a process of ``worker`` on a folder."""

    name: str
    """As in ``--on``; "" for this machine."""
    look_s: float
    """Seconds between polls of job status."""
    patience_s: float
    """Minimum seconds between queries of the scheduler."""
    grace_s: float
    """Seconds after a job's end until all its files are visible here."""
    silence_s: float
    """Seconds without an answer until the cluster counts as lost."""
    most_jobs: int
    """Maximum number of waiting and running jobs."""

    @abstractmethod
    def start(self, name: str, label: str, folder: Path, needs: Needs | None) -> None:
        """Start the job of a folder; ``label`` is for people. Raises SchedulerError, OSError."""

    @abstractmethod
    def active(self) -> Mapping[str, str]:
        """Return the active jobs, with the reason why one waits; "": it runs.

        Jobs of other studies may be among them. Raises SchedulerError.
        """

    @abstractmethod
    def stop(self, names: Collection[str]) -> None:
        """Have running jobs save and end; cancel waiting jobs."""

    def describe_loss(self, name: str) -> str:
        """Return a possible reason for a job's end without a result."""
        del name
        return "its node was lost, or its job was ended"

    def close(self, *, at_once: bool = False) -> None:
        """Wait for the processes of this machine, or end them ``at_once``."""
        del at_once  # a cluster's jobs go on


class Cluster(Backend):
    """A back end with jobs that outlast the command."""

    def line(self, error: object, *, is_start: bool = False) -> str:
        """Write a scheduler's message in one line; a long one's end, or start."""
        message = one_line(str(error))
        return f"--on {self.name}: {message[:_SHOWN] if is_start else message[-_SHOWN:]}"

    @abstractmethod
    def nodes(self) -> list[Needs]:
        """Return the nodes that take jobs, now or once free."""


class LocalProcesses(Backend):
    """Processes of this machine, which save and end when their standard input closes."""

    name = ""
    look_s, patience_s, grace_s, silence_s = 0.05, 0.0, 0.0, float("inf")

    def __init__(self, most_jobs: int) -> None:
        self.most_jobs = most_jobs
        self._server = ForkServer(_WORKER)
        self._running: dict[str, subprocess.Popen[bytes] | Forked] = {}
        self._codes: dict[str, int] = {}

    def start(self, name: str, label: str, folder: Path, needs: Needs | None) -> None:
        """Start the process of a folder."""
        self._running[name] = self._server.start(str(folder))

    def active(self) -> Mapping[str, str]:
        """Return the jobs with a live process."""
        for name, process in list(self._running.items()):
            code = process.poll()
            if code is not None:
                _close(self._running.pop(name))
                self._codes[name] = code
        return dict.fromkeys(self._running, "")

    def stop(self, names: Collection[str]) -> None:
        """Close the standard input of processes."""
        for name in self._running.keys() & names:
            _close(self._running[name])

    def describe_loss(self, name: str) -> str:
        """Return the signal or the exit code of a process."""
        code = self._codes[name]
        if code < 0:
            return f"its process was ended by signal {-code}, perhaps for lack of memory"
        return f"its process ended with code {code}"

    def close(self, *, at_once: bool = False) -> None:
        """End all processes, and wait for them."""
        if at_once:
            self._server.close(at_once=True)
        for process in self._running.values():
            if at_once:
                process.kill()
            _close(process)
        for process in self._running.values():
            process.wait()
        self._running.clear()
        self._server.close()


def _close(process: "subprocess.Popen[bytes] | Forked") -> None:
    assert process.stdin is not None
    with suppress(OSError):
        process.stdin.close()


class Slurm(Cluster):
    """A partition, or the default one, of the cluster behind this machine's Slurm commands."""

    look_s, patience_s, grace_s, silence_s, most_jobs = 0.5, 5.0, 10.0, float("inf"), 100
    _ENDED: Collection[str] = (
        *("BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL"),
        *("OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT"),
    )
    """Final states of a job; a requeued job has another state."""
    _WAITING = ("PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT")
    _UNUSABLE = ("down", "drain", "drng", "fail", "unk", "maint", "inval")

    def __init__(self, where: str) -> None:
        """Find the cluster. Raises ConfigError without one, DataError without submitit."""
        self.name = f"slurm:{where}" if where else "slurm"
        self._submitit = extra_module("submitit", f"studies with --on {self.name}", "slurm")
        try:
            listed = self._ask("sinfo", "--noheader", "--Node", "--format=%P|%N|%c|%m|%G|%t")
        except SchedulerError as error:
            raise ConfigError(f"{error}: start compare on a machine of the cluster") from None
        self._rows = [line.split("|") for line in listed.splitlines()]
        partitions = sorted({row[0].rstrip("*") for row in self._rows})
        usual = [row[0].rstrip("*") for row in self._rows if row[0].endswith("*")]
        self._partition = where or (usual[0] if usual else "")
        if self._partition not in partitions:
            named = f"no partition {self._partition}" if self._partition else "no default partition"
            raise ConfigError(
                f"--on {self.name}: Slurm has {named}: choose one of "
                f"{', '.join(partitions) or 'none'} as --on slurm:PARTITION"
            )

    def nodes(self) -> list[Needs]:
        """Return the nodes of the partition that are not down or drained."""
        nodes = []
        for partition, _, n_cores, megabytes, others, state in self._rows:
            if partition.rstrip("*") == self._partition and not state.startswith(self._UNUSABLE):
                # Slurm reports 1 if memory is not configured.
                memory = int(megabytes) << 20 if int(megabytes) > 1 else 0
                # Such as gpu:a100:4(S:0-1),gpu:2.
                gpus = re.findall(r"(?:^|,)gpu(?::[^:,(]+)?:(\d+)", others)
                nodes.append(Needs(int(n_cores), memory, sum(map(int, gpus))))
        return nodes

    def start(self, name: str, label: str, folder: Path, needs: Needs | None) -> None:
        """Submit a job; submitit writes and pickles its files into the job's folder."""
        assert needs is not None, "jobs of a cluster have needs"
        extra: dict[str, Any] = {"signal": "TERM@90"}  # it saves before the time limit
        if needs.memory_bytes and all(node.memory_bytes for node in self.nodes()):
            extra["mem"] = f"{-(-needs.memory_bytes >> 20)}M"
        if needs.gpus:
            extra["gres"] = f"gpu:{needs.gpus}"
        executor = self._submitit.SlurmExecutor(folder=folder / "slurm")
        executor.update_parameters(
            job_name=f"sublayer {label} {name}",
            partition=self._partition,
            time=None,  # the partition's, or SBATCH_TIMELIMIT
            cpus_per_task=needs.cores,
            # Since Slurm 22.05 a step does not inherit its job's cores.
            srun_args=[f"--cpus-per-task={needs.cores}"],
            additional_parameters=extra,
        )
        command = self._submitit.helpers.CommandFunction(
            [*python_command(_WORKER), str(folder)], verbose=False
        )
        try:
            executor.submit(command)
        except self._submitit.core.utils.FailedJobError as error:
            raise SchedulerError(self.line(error)) from None

    def active(self) -> Mapping[str, str]:
        """Return the active jobs of this user."""
        return {
            name: reason if state in self._WAITING else ""
            for _, state, reason, name in self._list()
        }

    def stop(self, names: Collection[str]) -> None:
        """End jobs; running ones have the site's grace time."""
        with suppress(SchedulerError):
            ids = [identity for identity, _, _, name in self._list() if name in names]
            if ids:
                self._ask("scancel", *ids)

    def _list(self) -> Iterator[tuple[str, str, str, str]]:
        """Yield number, state, reason to wait and name of this user's active jobs.

        The last word of the job's name is our name.
        """
        user, states = f"--user={os.getuid()}", "--states=all"
        listed = self._ask("squeue", "--noheader", user, states, "--format=%i|%T|%r|%j")
        for line in listed.splitlines():
            identity, state, reason, name = line.split("|", 3)
            if state not in self._ENDED:
                yield identity, state, reason, name.split(" ")[-1]

    def _ask(self, *command: str) -> str:
        """Return the output of a Slurm command. Raises SchedulerError."""
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
        except FileNotFoundError:
            raise SchedulerError(f"--on {self.name}: {command[0]} is not installed here") from None
        except (OSError, subprocess.SubprocessError) as error:
            printed = one_line(str(getattr(error, "stderr", None) or error))[-_SHOWN:]
            raise SchedulerError(f"--on {self.name}: {command[0]} failed ({printed})") from None
        return done.stdout


class Ray(Cluster):
    """Jobs of the Ray cluster at an address, at ``RAY_ADDRESS`` or on this machine.

    Requests use HTTP: this process does not belong to the cluster, and outlasts it.
    """

    look_s, patience_s, grace_s, silence_s, most_jobs = 0.5, 2.0, 5.0, 30.0, 100
    _FIND = "import sys; from ray.job_submission import JobSubmissionClient as Client; "
    _FIND += "print(Client(sys.argv[1]).get_address())"

    def __init__(self, where: str) -> None:
        """Connect. Raises ConfigError without a cluster, DataError without Ray."""
        self.name = f"ray:{where}" if where else "ray"
        what = f"studies with --on {self.name}"
        extra_module("ray", what, "cluster")
        self._library = extra_module("ray.job_submission", what, "cluster")
        if where:
            _check_answer(self.name, where)
        address = where or os.environ.get("RAY_ADDRESS") or "auto"
        # In a separate process: a direct client of the head ends with it.
        command = [sys.executable, "-c", self._FIND, address]
        variables = {**os.environ, "RAY_ADDRESS": address}
        done = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
        if done.returncode:
            printed = one_line(done.stderr)[-_SHOWN:]
            raise ConfigError(
                f"--on {self.name}: no Ray cluster answers ({printed}): start one with ray start "
                "--head (from ray[default]), or name it with --on ray:HOST:PORT"
            )
        url = done.stdout.split()[-1]
        states, before = import_module("ray.util.state"), os.environ.get("RAY_ADDRESS")
        os.environ["RAY_ADDRESS"] = url  # Ray prefers it to an argument
        try:
            self._client = self._library.JobSubmissionClient(url)
            self._nodes = states.list_nodes(address=url, limit=10_000)
        finally:
            del os.environ["RAY_ADDRESS"]
            os.environ |= {} if before is None else {"RAY_ADDRESS": before}
        self._starts: dict[str, Callable[[], None]] = {}

    def nodes(self) -> list[Needs]:
        """Return the nodes that are alive and have cores."""
        alive = [node.resources_total for node in self._nodes if node.state == "ALIVE"]
        return [
            Needs(int(has["CPU"]), int(has.get("memory", 0)), int(has.get("GPU", 0)))
            for has in alive
            if has.get("CPU")
        ]

    def start(self, name: str, label: str, folder: Path, needs: Needs | None) -> None:
        """Submit a job."""
        assert needs is not None, "jobs of a cluster have needs"
        passed = {key: value for key, value in os.environ.items() if key.startswith(_PASSED_ON)}

        def submit() -> None:
            self._client.submit_job(
                entrypoint=shlex.join([*python_command(_WORKER), str(folder)]),
                # Ray takes an id only once.
                submission_id=f"sublayer-{name}-{secrets.token_hex(4)}",
                metadata={"run": label},
                runtime_env={"env_vars": passed},
                entrypoint_num_cpus=needs.cores,
                entrypoint_num_gpus=needs.gpus or None,
                entrypoint_memory=needs.memory_bytes or None,
            )

        try:
            submit()
        except (OSError, RuntimeError) as error:
            raise SchedulerError(self.line(error)) from None
        self._starts[name] = submit

    def active(self) -> Mapping[str, str]:
        """Return the waiting and running jobs; resubmit jobs that Ray gave up waiting for."""
        reasons = {}
        try:
            for name, job in self._list():
                if not job.status.is_terminal():
                    reasons[name] = "Resources" if job.status == "PENDING" else ""
                elif str(job.error_type).endswith("START_TIMEOUT") and name in self._starts:
                    self._starts[name]()
                    self._client.delete_job(job.submission_id)
                    reasons[name] = "Resources"
        except (OSError, RuntimeError) as error:
            raise SchedulerError(self.line(error, is_start=True)) from None
        return reasons

    def stop(self, names: Collection[str]) -> None:
        """Cancel jobs."""
        for name in names:
            self._starts.pop(name, None)
        with suppress(OSError, RuntimeError):
            for name, job in self._list():
                if name in names and not job.status.is_terminal():
                    self._client.stop_job(job.submission_id)

    def _list(self) -> Iterator[tuple[str, Any]]:
        """Yield the cluster's jobs with our names."""
        for job in self._client.list_jobs():
            _, _, name = (job.submission_id or "").partition("sublayer-")
            yield name.partition("-")[0], job


def _check_answer(name: str, where: str) -> None:
    host, _, port = where.rpartition(":")
    if not host or not port.isdecimal():
        raise ConfigError(f"--on {name} names no HOST:PORT, such as --on ray:10.0.0.1:6379")
    try:
        socket.create_connection((host, int(port)), timeout=10.0).close()
    except (OSError, OverflowError) as error:
        raise ConfigError(
            f"--on {name}: nothing answers there ({one_line(str(error))}): start a cluster with "
            "ray start --head, or name another"
        ) from None


CLUSTERS: Mapping[str, Callable[[str], Cluster]] = {"ray": Ray, "slurm": Slurm}
"""Clusters by the first word of ``--on``; the argument is the rest."""


def parse_place(text: str) -> tuple[str, str]:
    """Read ``--on``, ``ray[:ADDRESS]`` or ``slurm[:PARTITION]``, as kind and place.

    "" is the default. Raises ConfigError.
    """
    kind, colon, where = text.partition(":")
    if kind not in CLUSTERS or bool(colon) != bool(where):
        raise ConfigError(f"--on {text!r} is neither ray[:ADDRESS] nor slurm[:PARTITION]")
    if where.startswith("//"):
        raise ConfigError(
            f"--on {text} names a client gateway, but compare must share a folder with the "
            "nodes: start it on a machine of the cluster with --on ray:HOST:PORT"
        )
    return kind, where
