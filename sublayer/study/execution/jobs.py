"""How many runs at a time: where that has no meaning, and what each has of the cores."""

from collections.abc import Sequence
from dataclasses import replace

from sublayer.config.layering.layers import vary
from sublayer.config.limits import MOST_JOBS
from sublayer.errors import ConfigError
from sublayer.study.arms import Arm
from sublayer.study.budget.match import Rule
from sublayer.system.cores import cores


def check_jobs(jobs: int, arms: Sequence[Arm], rule: Rule) -> None:
    """Raise ConfigError where so many runs at a time have no meaning.

    They have none where time is measured, of which runs side by side take from each other.
    """
    if not 1 <= jobs <= MOST_JOBS:
        raise ConfigError(f"--jobs {jobs} is not between 1 and {MOST_JOBS}")
    if jobs == 1:
        return
    if rule == "time":
        raise ConfigError(
            f"--jobs {jobs} contradicts match = time: runs side by side take time from each other; "
            "leave --jobs out, or give --match parameters or --match flops"
        )
    for arm in arms:
        minutes = arm.loaded.recipe.train.minutes
        if minutes is not None:
            raise ConfigError(
                f"--jobs {jobs} contradicts train.minutes = {minutes:g}: runs side by side take "
                "time from each other; leave --jobs out, or give train.steps"
            )


def shared_threads(jobs: int) -> int:
    """Return the threads of a run of which so many share the cores: one at least."""
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
