"""What a comparison asks of a cluster, whichever scheduler it has."""

import os
from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sublayer.errors import ConfigError, TrainingError

_PASSED_ON = ("SUBLAYER_", "HF_", "ATEN_", "ONEDNN_", "DNNL_", "MKL_", "CUBLAS_")
"""What begins so says where texts are kept, or changes what is computed."""


class Refused(ConfigError):
    """A task was not taken, for now or for ever; where that timed out it may have been."""


class NoAnswer(ConfigError):
    """A scheduler does not answer, as while it is started again."""


class ClusterGone(TrainingError):
    """A cluster has ended. What ran there saves where it can, or goes on."""


@dataclass(frozen=True)
class Needs:
    """What a task takes of its node."""

    cores: int
    memory_bytes: int
    """0: what the scheduler gives where nothing is asked for."""
    gpus: int = 0


@dataclass(frozen=True)
class Node:
    """A machine of a cluster that takes tasks."""

    name: str
    """For people."""
    cores: int
    memory_bytes: int | None
    """None where the scheduler does not count memory."""
    gpus: int = 0
    identity: str = ""
    """What ``submit`` takes for it, where that is not its name."""

    def n_tasks(self, needs: Needs) -> int:
        """Count the tasks that it holds at a time when it is free."""
        most = self.cores // needs.cores
        if self.memory_bytes is not None and needs.memory_bytes:
            most = min(most, self.memory_bytes // needs.memory_bytes)
        if needs.gpus:
            most = min(most, self.gpus // needs.gpus)
        return most


@dataclass(frozen=True)
class TaskState:
    """A task that has not ended."""

    is_running: bool
    """False: it waits, also where its scheduler tries it again by itself."""
    reason: str = ""
    """Why it waits, in the scheduler's words."""


class Cluster(ABC):
    """A cluster that runs ``sublayer.study.cluster.node`` with some words, as a task on a node.

    A task goes on when the process that submitted it ends, and is found again by its id.
    """

    name: str
    """As ``--on`` has it."""
    patience_s: float
    """Between two questions to the scheduler, at least."""
    grace_s: float
    """After a task has ended, until what it wrote last is seen in the shared folder."""

    @abstractmethod
    def nodes(self) -> list[Node]:
        """Return the nodes that take tasks now, or would once they are free."""

    @abstractmethod
    def submit(
        self, name: str, words: Sequence[str], needs: Needs, folder: Path, node: str = ""
    ) -> str:
        """Submit a task and return its id; ``folder`` is for files of the scheduler's own.

        No other task has its ``name``. ``node`` is one of ``probed`` that must take it; "": any.
        Raises Refused where it is not taken, and ClusterGone.
        """

    @abstractmethod
    def find(self, name: str) -> str | None:
        """Return the id of the task of that name that has not ended; None where there is none.

        Raises as ``active`` does.
        """

    @abstractmethod
    def active(self, ids: Collection[str]) -> Mapping[str, TaskState]:
        """Return the tasks that have not ended. Raises NoAnswer, and ClusterGone."""

    @abstractmethod
    def cancel(self, ids: Collection[str]) -> None:
        """End tasks; those that run are asked to save first where the scheduler can ask."""

    @abstractmethod
    def probed(self) -> Mapping[str, str]:
        """Return the nodes that a probe is sent to, and what people call them.

        "" stands for whichever is free first.
        """


def passed_on() -> Mapping[str, str]:
    """Return the variables of this environment that a task must have too."""
    return {name: value for name, value in os.environ.items() if name.startswith(_PASSED_ON)}
