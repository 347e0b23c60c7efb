"""The options of a comparison: command line, looks and seeds, settings of stages."""

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from sublayer.errors import check_rules
from sublayer.statistics.looks import Looks, fixed, until_decided
from sublayer.study.arms import Trial, check_extensible, make_trials
from sublayer.study.budget.match import Rule
from sublayer.study.definition import Overrides, Study, default_seeds
from sublayer.study.jobs.backends import parse_place
from sublayer.study.question import FIRST_TUNING_SEED, Seeds, check_seeds
from sublayer.study.stages import FINETUNE, check_numbers


@dataclass(frozen=True)
class Options:
    """Options of a comparison; None means the study's, or the default.

    ``vary`` and ``tune`` are ``field=a,b`` texts.
    """

    vary: tuple[str, ...] = ()
    match: Rule | None = None
    seeds: int | None = None
    tune: tuple[str, ...] = ()
    scale: str | None = None
    out: Path | None = None
    resume: bool = False
    """True: no new study may begin."""
    device: str | None = None
    jobs: int = 1
    """Number of runs in parallel."""
    on: str | None = None
    """The cluster for runs, as ``ray`` or ``slurm:PARTITION``; None: this machine."""
    finetunings: int | None = None
    """For a chain: fine-tunings of each task under each pre-training."""
    data: str | None = None
    """For a chain: the folder of the tasks' files."""
    margin: str | None = None
    """The smallest difference that matters, in display units."""
    until: str | None = None
    """``decided``: an arm gets more seeds until it is decided."""
    seeds_at_most: int | None = None
    """With ``until``: the last number of seeds."""
    first_seed: int | None = None
    """The first compared seed; None: 0."""
    tuning_seeds: int | None = None
    """Runs of each trial, with different seeds; None: 1."""
    first_tuning_seed: int | None = None
    """The first tuning seed; None: one beyond all comparisons."""
    extend: int | None = None
    """Most extensions of a numeric grid whose best value lies at its edge; None: none."""


_OF_PLAIN = ("until", "seeds_at_most", "first_seed", "tuning_seeds", "first_tuning_seed", "extend")
"""Options of studies without stages."""
_SINGLE = (
    *("on", "match", "seeds", "until", "seeds_at_most", "margin"),
    *("first_seed", "tuning_seeds", "first_tuning_seed", "extend"),
    *("finetunings", "data", "scale", "device"),
)
"""Single-valued options, as a command line lists them."""


def _given(options: Options, names: Iterable[str]) -> dict[str, Any]:
    """Return the given options, as on the command line, in the order of ``names``."""
    values = {f"--{name.replace('_', '-')}": getattr(options, name) for name in names}
    return {option: value for option, value in values.items() if value is not None}


def command_line(
    sources: Sequence[str], overrides: Overrides, options: Options, *, out: Path | None = None
) -> str:
    """Return the command line of a comparison.

    With ``out``, its folder, it resumes there: paths are as given, so it begins by changing to the
    original working directory.
    """
    if isinstance(overrides, Mapping):
        overrides = [f"{key}={value}" for key, value in overrides.items()]
    repeated = {"--vary": options.vary, "--tune": options.tune}
    pairs: list[tuple[str, object]] = [
        (name, text) for name, texts in repeated.items() for text in texts
    ]
    pairs += [("--jobs", options.jobs)] if options.jobs > 1 else []
    pairs += _given(options, _SINGLE).items()
    pairs += [] if out is None else [("--out", out)]
    words = ["sublayer", "compare", *sources, *overrides]
    command = shlex.join([*words, *(str(word) for pair in pairs for word in pair)])
    return command if out is None else f"cd {shlex.quote(str(Path.cwd()))} && {command}"


@dataclass(frozen=True)
class OptionedStudy:
    """A study with its command's options, all checked."""

    study: Study
    looks: Looks
    """The numbers of seeds at its looks."""
    seeds: Seeds
    tune: tuple[str, ...]
    """The tuning grid of the arms' recipes, ``field=a,b`` texts."""
    trials: Sequence[Trial]
    """Trials of the grid; an empty one without a grid."""
    n_tuning: int
    """Most tuning runs of each arm."""

    @property
    def n_seeds(self) -> int:
        """The most compared seeds."""
        return self.looks.planned[-1]


def ask(study: Study, options: Options) -> OptionedStudy:
    """Lay the options of a command over a study.

    Raises ConfigError for options that have no effect on it, that contradict each other or the
    study, and for numbers of seeds that allow no comparison.
    """
    study = _with_options(replace(study, match=options.match or study.match), options)
    _check_place(options, study)
    n_seeds = default_seeds(study) if options.seeds is None else options.seeds
    until, most = options.until, options.seeds_at_most
    is_whole = until == "decided" and most is not None and options.seeds is None
    check_rules(
        "",
        (
            not is_whole and (until or most is not None),
            "--until decided and --seeds-at-most, the last number of seeds, such as 20, stand "
            "together, without --seeds: give both or neither",
        ),
    )
    looks = fixed(n_seeds) if most is None else until_decided(most)
    if study.chain is not None:
        check_numbers(study.chain, n_seeds)
    elif len(study.arms) > 1:
        check_seeds(looks.planned[-1])
    # With stages, tasks are tuned.
    tune = () if study.chain is not None else options.tune or study.tune
    trials = make_trials(study.arms, tune)
    first = options.first_tuning_seed
    seeds = Seeds(
        first=options.first_seed or 0,
        n_tuning=options.tuning_seeds or 1,
        first_tuning=FIRST_TUNING_SEED if first is None else first,
    )
    given = tuple(_given(options, ("tuning_seeds", "first_tuning_seed", "extend")))
    seeds.check(looks.planned[-1], is_tuned=bool(tune), options=given)
    if options.extend:
        check_extensible(trials)
    n_tuning = (len(trials) + (options.extend or 0)) * seeds.n_tuning if tune else 0
    return OptionedStudy(study, looks, seeds, tuple(tune), trials, n_tuning)


def _with_options(study: Study, options: Options) -> Study:
    """Return a study with the given margin and settings of stages."""
    chain, texts, prefix = study.chain, options.tune, f"{FINETUNE}."
    of_tasks = [text for text in texts if text.startswith(prefix)]
    if options.margin is not None:
        reason = "given on the command line"
        question = replace(study.question, margin=options.margin, margin_reason=reason)
        study = replace(study, question=question)
    if chain is None:
        given = [
            *_given(options, ("finetunings", "data")),
            *(f"--tune {text}" for text in of_tasks),
        ]
        check_rules(
            "",
            (
                given,
                f"{', '.join(given)} is of studies with stages of tasks, of which {study.name} has "
                "none: leave it out",
            ),
        )
        return study
    plain = ", ".join(_given(options, _OF_PLAIN))
    stray = next((text for text in texts if text not in of_tasks), None)
    has_published = any(stage.tasks for stage in chain.stages)
    check_rules(
        "",
        (
            plain,
            f"{plain} is of studies without stages, whose runs are one training each: leave it out",
        ),
        (
            study.tune,
            f"{study.name} has stages, and tunes its pre-training: write tune_finetune, which is "
            "chosen by the tasks' scores",
        ),
        (
            options.data is not None and not has_published,
            f"--data is of stages of published tasks, of which {study.name} has none: leave it out",
        ),
        (
            stray,
            f"--tune {stray}: of {study.name} the stages of tasks are tuned: write --tune "
            f"{prefix}{stray}",
        ),
    )
    n_seeds = chain.n_seeds if options.finetunings is None else options.finetunings
    tune = tuple(text.removeprefix(prefix) for text in of_tasks) or chain.tune
    chain = replace(chain, n_seeds=n_seeds, data=options.data, tune=tune)
    return replace(study, chain=chain)


def _check_place(options: Options, study: Study) -> None:
    """Raise ConfigError if the placement of the runs contradicts another option.

    Time is no budget for parallel runs, which slow each other down, nor on a cluster, whose nodes
    differ and may be shared.
    """
    on, jobs = options.on, options.jobs
    option, reason = f"--jobs {jobs}", "runs side by side take time from each other"
    if on is not None:
        parse_place(on)
        check_rules(
            f"{option} contradicts --on {on}",
            (
                jobs > 1,
                "it is for one machine, and a cluster makes as many runs at a time as it has room "
                "for; leave one of them out",
            ),
        )
        option, reason = f"--on {on}", "the nodes of a cluster are not equally fast"
    elif jobs == 1:
        return
    minutes = [arm.loaded.recipe.train.minutes for arm in study.arms]
    known = [duration for duration in minutes if duration is not None]
    length, remedy = f"train.minutes = {max(known, default=0):g}", "train.steps"
    if study.match == "time":
        length, remedy = "match = time", "--match parameters or --match flops"
    check_rules(
        f"{option} contradicts {length}",
        (known or study.match == "time", f"{reason}; leave it out, or give {remedy}"),
    )
