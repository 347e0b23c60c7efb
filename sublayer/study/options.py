"""The options of a comparison: command line, looks and seeds, settings of stages."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sublayer.config.limits import MOST_JOBS
from sublayer.errors import ConfigError
from sublayer.statistics.looks import Looks, fixed, until_decided
from sublayer.study.arms import Arm
from sublayer.study.budget.match import Rule
from sublayer.study.definition import Overrides, Study
from sublayer.study.jobs.backends import parse_place
from sublayer.study.question import FIRST_TUNING_SEED, Seeds
from sublayer.study.stages import FINETUNE


@dataclass(frozen=True)
class Options:
    """The options of a comparison; None means the study's own, or the default.

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
    """Extensions at most of a grid of numbers whose best lies at its edge; None: none."""
    is_announced: bool = False
    """True where a header was printed already."""


_OF_PLAIN = ("until", "seeds_at_most", "first_seed", "tuning_seeds", "first_tuning_seed", "extend")
"""Options of studies without stages."""
_SINGLE = (
    *("on", "match", "seeds", "until", "seeds_at_most", "margin"),
    *("first_seed", "tuning_seeds", "first_tuning_seed", "extend"),
    *("finetunings", "data", "scale", "device"),
)
"""Options of one value, as a command line lists them."""


def _given(options: Options, names: Iterable[str]) -> dict[str, Any]:
    """Return the options that were given, as on the command line, in the order of their names."""
    values = {f"--{name.replace('_', '-')}": getattr(options, name) for name in names}
    return {option: value for option, value in values.items() if value is not None}


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
    single = _given(options, _SINGLE)
    if options.jobs > 1:
        single = {"--jobs": options.jobs, **single}
    if out is not None:
        single["--out"] = out
    for name, value in single.items():
        words += [name, str(value)]
    command = shlex.join(words)
    return command if out is None else f"cd {shlex.quote(str(Path.cwd()))} && {command}"


def with_margin(study: Study, margin: str | None) -> Study:
    """Return a study with the margin that was asked for; its own where none was."""
    if margin is None:
        return study
    reason = "given on the command line"
    return replace(study, question=replace(study.question, margin=margin, margin_reason=reason))


def asked_looks(options: Options, n_seeds: int) -> Looks:
    """Return when a comparison is judged: at ``--seeds``, or where it is decided.

    ``n_seeds`` is the study's own number. Raises ConfigError for options that exclude each other.
    """
    if options.until is None:
        if options.seeds_at_most is not None:
            raise ConfigError("--seeds-at-most is of --until decided: give that too, or --seeds")
        return fixed(n_seeds if options.seeds is None else options.seeds)
    if options.until != "decided":
        raise ConfigError(f"--until {options.until} is no end of a comparison: give decided")
    if options.seeds is not None:
        raise ConfigError(
            "--seeds is a fixed number of seeds, which --until decided leaves open: give "
            "--seeds-at-most instead"
        )
    if options.seeds_at_most is None:
        raise ConfigError(
            "--until decided needs an end: say how many seeds you would spend, as "
            "--seeds-at-most 20"
        )
    return until_decided(options.seeds_at_most)


def asked_seeds(options: Options, n_seeds: int, *, is_tuned: bool) -> Seeds:
    """Return the seeds that are asked for; raise ConfigError where tuning seeds are compared."""
    seeds = Seeds(
        first=options.first_seed or 0,
        n_tuning=options.tuning_seeds or 1,
        first_tuning=(
            FIRST_TUNING_SEED if options.first_tuning_seed is None else options.first_tuning_seed
        ),
    )
    given = tuple(_given(options, ("tuning_seeds", "first_tuning_seed", "extend")))
    seeds.check(n_seeds, is_tuned=is_tuned, options=given)
    return seeds


def as_asked(study: Study, tune: Sequence[str], finetunings: int | None, data: str | None) -> Study:
    """Apply the options of stages to a study; one without stages is returned as it is.

    Raises ConfigError for options that have no effect on it.
    """
    if study.chain is None:
        _check_without(study.name, tune, finetunings, data)
        return study
    if study.tune:
        raise ConfigError(
            f"{study.name} has stages, and tunes its pre-training: write tune_finetune, which is "
            "chosen by the tasks' scores"
        )
    if data is not None and not any(stage.tasks for stage in study.chain.stages):
        raise ConfigError(
            f"--data is of stages of published tasks, of which {study.name} has none: leave it out"
        )
    fields = []
    for text in tune:
        if not text.startswith(f"{FINETUNE}."):
            raise ConfigError(
                f"--tune {text}: of {study.name} the stages of tasks are tuned: write "
                f"--tune {FINETUNE}.{text}"
            )
        fields.append(text.removeprefix(f"{FINETUNE}."))
    chain = replace(
        study.chain,
        n_seeds=study.chain.n_seeds if finetunings is None else finetunings,
        data=data,
        tune=tuple(fields) or study.chain.tune,
    )
    return replace(study, chain=chain)


def check_options(options: Options) -> None:
    """Raise ConfigError for options that chains do not have."""
    for name in _given(options, _OF_PLAIN):
        raise ConfigError(
            f"{name} is of studies without stages, whose runs are one training each: leave it out"
        )


def _check_without(
    study: str, tune: Sequence[str], finetunings: int | None, data: str | None
) -> None:
    for name, value in (("--finetunings", finetunings), ("--data", data)):
        if value is not None:
            raise ConfigError(
                f"{name} is of studies with stages of tasks, of which {study} has none: leave it "
                "out"
            )
    for text in tune:
        if text.startswith(f"{FINETUNE}."):
            raise ConfigError(
                f"--tune {text}: {study} has no stages of tasks to be tuned: leave it out"
            )


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
