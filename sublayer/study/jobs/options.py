"""The options --jobs and --on: contradictions with other options, and shares of the cores."""

from collections.abc import Sequence
from dataclasses import replace

from sublayer.config.limits import MOST_JOBS
from sublayer.config.load import vary
from sublayer.errors import ConfigError
from sublayer.study.arms import Arm
from sublayer.study.budget.match import Rule
from sublayer.system.memory import cores

_KINDS = ("ray", "slurm")


def parse_place(text: str) -> tuple[str, str]:
    """Read ``--on``, ``ray[:ADDRESS]`` or ``slurm[:PARTITION]``, as kind and place.

    "" is the usual place. Raises ConfigError.
    """
    kind, colon, where = text.partition(":")
    if kind not in _KINDS or bool(colon) != bool(where):
        raise ConfigError(f"--on {text!r} is neither ray[:ADDRESS] nor slurm[:PARTITION]")
    if where.startswith("//"):
        raise ConfigError(
            f"--on {text} names a gateway of clients, and compare shares a folder with the nodes: "
            "start it on a machine of the cluster with --on ray:HOST:PORT"
        )
    return kind, where


def check_jobs(jobs: int, arms: Sequence[Arm], rule: Rule) -> None:
    """Raise ConfigError where so many runs at a time have no meaning.

    Runs side by side take time from each other, so that none is measured.
    """
    if not 1 <= jobs <= MOST_JOBS:
        raise ConfigError(f"--jobs {jobs} is not between 1 and {MOST_JOBS}")
    if jobs > 1:
        reason = "runs side by side take time from each other; leave --jobs out"
        _check_time(f"--jobs {jobs}", reason, arms, rule)


def check_place(on: str | None, jobs: int, arms: Sequence[Arm], rule: Rule) -> None:
    """Raise ConfigError where runs on a cluster contradict another option.

    Time is no budget there: nodes differ, and other work may share them.
    """
    if on is None:
        return
    parse_place(on)
    if jobs > 1:
        raise ConfigError(
            f"--jobs {jobs} contradicts --on {on}: it is for one machine, and a cluster makes "
            "as many runs at a time as it has room for; leave one of them out"
        )
    reason = "the nodes of a cluster are not equally fast; leave --on out"
    _check_time(f"--on {on}", reason, arms, rule)


def _check_time(option: str, reason: str, arms: Sequence[Arm], rule: Rule) -> None:
    if rule == "time":
        raise ConfigError(
            f"{option} contradicts match = time: {reason}, or give --match parameters or --match "
            "flops"
        )
    for arm in arms:
        minutes = arm.loaded.recipe.train.minutes
        if minutes is not None:
            raise ConfigError(
                f"{option} contradicts train.minutes = {minutes:g}: {reason}, or give train.steps"
            )


def shared_threads(jobs: int) -> int:
    """Return the threads of a run where ``jobs`` runs share the cores: one at least."""
    return max(1, cores() // jobs)


def share_threads(arms: Sequence[Arm], jobs: int) -> tuple[Arm, ...]:
    """Lay their share of the threads over arms that say nothing of threads."""
    shared = []
    for arm in arms:
        train = arm.loaded.recipe.train
        if train.threads is None and not train.exact:
            settings = {"train.threads": shared_threads(jobs)}
            arm = replace(arm, loaded=vary(arm.loaded, settings, origin="study"))
        shared.append(arm)
    return tuple(shared)
