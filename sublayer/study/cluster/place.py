"""What ``--on`` names: a kind of cluster, and which one of it."""

from collections.abc import Sequence
from dataclasses import dataclass

from sublayer.errors import ConfigError
from sublayer.study.arms import Arm
from sublayer.study.budget.match import Rule

KINDS = ("ray", "slurm")


@dataclass(frozen=True)
class ClusterPlace:
    """A cluster by its kind and, of Ray, its address, of Slurm, a partition; "" for the usual."""

    kind: str
    where: str = ""

    def __str__(self) -> str:
        """Return it as ``--on`` has it."""
        return f"{self.kind}:{self.where}" if self.where else self.kind


def parse_place(text: str) -> ClusterPlace:
    """Read what ``--on`` says, ``ray[:ADDRESS]`` or ``slurm[:PARTITION]``; raise ConfigError."""
    kind, colon, where = text.partition(":")
    if kind not in KINDS or bool(colon) != bool(where):
        raise ConfigError(f"--on {text!r} is neither ray[:ADDRESS] nor slurm[:PARTITION]")
    if where.startswith("//"):
        raise ConfigError(
            f"--on {text} names a gateway of clients, and compare shares a folder with the nodes: "
            "start it on a machine of the cluster with --on ray:HOST:PORT"
        )
    return ClusterPlace(kind, where)


def check_place(on: str | None, jobs: int, arms: Sequence[Arm], rule: Rule) -> None:
    """Raise ConfigError where runs on a cluster contradict what else was asked for.

    Time is no budget there: nodes differ, and other work may share them.
    """
    if on is None:
        return
    place = parse_place(on)
    if jobs > 1:
        raise ConfigError(
            f"--jobs {jobs} contradicts --on {place}: it is for one machine, and a cluster makes "
            "as many runs at a time as it has room for; leave one of them out"
        )
    if rule == "time":
        raise ConfigError(
            f"--on {place} contradicts match = time: the nodes of a cluster are not equally fast; "
            "leave --on out, or give --match parameters or --match flops"
        )
    for arm in arms:
        minutes = arm.loaded.recipe.train.minutes
        if minutes is not None:
            raise ConfigError(
                f"--on {place} contradicts train.minutes = {minutes:g}: the nodes of a cluster are "
                "not equally fast; leave --on out, or give train.steps"
            )
