"""How a comparison is asked for, and the command line that asks for it."""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from sublayer.study.budget.match import Rule
from sublayer.study.definition import Overrides


@dataclass(frozen=True)
class Options:
    """How to compare; None means the study's own, or the default.

    ``vary`` and ``tune`` are ``field=a,b`` texts.
    """

    vary: tuple[str, ...] = ()
    match: Rule | None = None
    seeds: int | None = None
    tune: tuple[str, ...] = ()
    scale: str | None = None
    out: Path | None = None
    device: str | None = None
    jobs: int = 1
    """Runs that are made at a time."""
    on: str | None = None
    """The cluster that makes them, as ``ray`` or ``slurm:PARTITION``; None: this machine."""
    finetunings: int | None = None
    """Of a chain: fine-tunings of each task under each pre-training."""
    data: str | None = None
    """Of a chain: the folder of the tasks' files."""
    margin: str | None = None
    """The smallest difference that matters, in the unit that differences are shown in."""
    until: str | None = None
    """``decided``: an arm gets more seeds until it is decided."""
    seeds_at_most: int | None = None
    """With ``until``: the last number of seeds."""
    first_seed: int | None = None
    """The first of the seeds that are compared; None: 0."""
    tuning_seeds: int | None = None
    """Runs of each trial, each with a seed of its own; None: 1."""
    first_tuning_seed: int | None = None
    """The first of those seeds; None: one that no comparison reaches."""
    extend: int | None = None
    """How often a grid of numbers is extended where the best lies at its edge; None: never."""
    is_announced: bool = False
    """Whether it has been said what will be done, so that no header is printed."""


def command_line(
    sources: Sequence[str], overrides: Overrides, options: Options, *, out: Path | None = None
) -> str:
    """Return the command line of a comparison.

    With ``out``, its folder, it resumes the one there: paths in it are as they were given, so that
    it begins by changing to the folder that it was given in.
    """
    words = ["sublayer", "compare", *sources]
    if isinstance(overrides, Mapping):
        words += [f"{key}={value}" for key, value in overrides.items()]
    else:
        words += overrides
    for text in options.vary:
        words += ["--vary", text]
    for text in options.tune:
        words += ["--tune", text]
    single = {
        "--jobs": options.jobs if options.jobs > 1 else None,
        "--on": options.on,
        "--match": options.match,
        "--seeds": options.seeds,
        "--until": options.until,
        "--seeds-at-most": options.seeds_at_most,
        "--margin": options.margin,
        "--first-seed": options.first_seed,
        "--tuning-seeds": options.tuning_seeds,
        "--first-tuning-seed": options.first_tuning_seed,
        "--extend": options.extend,
        "--finetunings": options.finetunings,
        "--data": options.data,
        "--scale": options.scale,
        "--device": options.device,
        "--out": out,
    }
    for name, value in single.items():
        if value is not None:
            words += [name, str(value)]
    command = shlex.join(words)
    return command if out is None else f"cd {shlex.quote(str(Path.cwd()))} && {command}"
