"""``sublayer plan``: what a run or a comparison will cost, before anything is spent."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sublayer.commands.plan.rendering import render_plan
from sublayer.commands.shared import candidates
from sublayer.commands.shared.base import DeviceOption, JsonOption, emit, say
from sublayer.commands.shared.study_options import (
    FinetuningsOption,
    JobsOption,
    MatchOption,
    ScaleOption,
    TaskDataOption,
)
from sublayer.config.limits import MOST_SEEDS
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.system.stages import stage

if TYPE_CHECKING:
    from sublayer.study.budget.resources import Resources
    from sublayer.study.budget.sized_arm import Clock, Sized, StepTime

EXAMPLE = "sublayer plan gpt train.minutes=5 --vary model.ffn=gelu,swiglu --measure"

_AS_LONG = (
    "stages of tasks are counted as if every example were as long as data.context: most are "
    "shorter, and take less"
)
_ONE_SEED = "one seed gives values and no verdict: an interval needs two"

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE|STUDY",
        autocompletion=candidates.recipes_and_studies,
        help="A recipe, a study or a run, by name or path; or the first of several recipes, which "
        "is the baseline.",
    ),
]
WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE ...] [KEY=VALUE ...]",
        autocompletion=candidates.recipes_and_settings,
        help="Further recipes, an arm each, then settings for all arms, such as model.d_ff=512.",
    ),
]
VaryOption = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="FIELD=A,B",
        autocompletion=candidates.varied,
        help="Plan an arm for each of these values; the first is the baseline. Repeatable.",
    ),
]
SeedsOption = Annotated[
    int | None,
    typer.Option(
        "--seeds",
        metavar="N",
        min=1,
        max=MOST_SEEDS,
        help="Number of seeds: each arm has a run of each. Default: the study's, or 5; 1 of a "
        "single arm.",
    ),
]
TuneOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tune",
        metavar="FIELD=A,B",
        autocompletion=candidates.varied,
        help="Also count a trial of each of these values in every arm. Repeatable.",
    ),
]
MeasureOption = Annotated[
    bool,
    typer.Option(
        "--measure",
        help="Time a few real training steps, on random tokens; takes a minute at most.",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", help="Where the runs would go: whose disk's free space counts."),
]


def command(
    source: SourceArgument,
    words: WordsArgument = None,
    vary: VaryOption = None,
    match: MatchOption = None,
    seeds: SeedsOption = None,
    tune: TuneOption = None,
    scale: ScaleOption = None,
    measure: MeasureOption = False,
    out: OutOption = None,
    finetunings: FinetuningsOption = None,
    data: TaskDataOption = None,
    jobs: JobsOption = 1,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a run or each arm of a comparison takes: parameters, FLOPs, memory, disk; with
    --measure, time.

    No text is read and nothing is trained. A vocabulary that is yet to be trained is taken to have
    data.vocab_size tokens.
    """
    from sublayer.study.asked import is_run, load_asked, split_words
    from sublayer.study.budget.plan import default_seeds, make_plan
    from sublayer.study.budget.plan_json import plan_to_json
    from sublayer.study.budget.resources import find_resources
    from sublayer.study.chain.asked import as_asked
    from sublayer.study.execution.jobs import check_jobs, share_threads
    from sublayer.study.tuning import make_trials

    sources, settings = split_words(source, words or [])
    if len(sources) > 1 and any(map(is_run, sources)):
        raise ConfigError(
            "runs that have ended are compared as they are, which takes no training: plan recipes, "
            f"or use `sublayer compare {shlex.join(sources)}`"
        )
    study = load_asked(sources, settings, vary_texts=vary or [], scale=scale)
    rule = match or study.match
    check_jobs(jobs, study.arms, rule)
    if jobs > 1:
        if len(study.arms) == 1:
            raise ConfigError(
                f"--jobs {jobs} makes several runs of a comparison at a time, and {study.name} is "
                "one arm: leave it out, or say what varies"
            )
        study = replace(study, arms=share_threads(study.arms, jobs))
    study = as_asked(study, tuple(tune or ()), finetunings, data)
    tuned = (tune or study.tune) if study.chain is None else ()
    n_trials = len(make_trials(study.arms, tuned))
    resources = find_resources(device, _existing(out or Path()))
    clock = _clock(resources, jobs) if measure else None
    with stage("measuring" if measure else "counting"):
        plan = make_plan(study.arms, rule, resources, clock)
    n_seeds = seeds or default_seeds(study)
    notes = [*plan.notes, *study.caveats]
    n_below = study.chain.n_seeds if study.chain is not None else 1
    if n_seeds == n_below == 1 and len(study.arms) > 1:
        notes.append(_ONE_SEED)
    if tuned:
        notes.append(
            f"every arm tries {' '.join(tuned)} with seed 0, {count(n_trials, 'trial')}, and keeps "
            "what has the lowest validation loss"
        )
    if not study.scoring.is_whole_test:
        notes.append(f"runs are scored on {study.scoring.describe(study.arms[0].loaded.recipe)}")
    plan = replace(plan, notes=tuple(notes))
    result = plan_to_json(plan, resources, n_seeds, n_trials, jobs)
    if study.chain is not None:
        with stage("measuring" if measure else "counting"):
            from sublayer.study.chain.operations import with_stages
            from sublayer.study.chain.plan import plan_stages, stages_to_json
            from sublayer.study.chain.stages import explain_nesting

            stages = plan_stages(study, plan, resources, clock, n_seeds=n_seeds)
        plan = with_stages(plan, stages, study.chain)
        result = plan_to_json(plan, resources, n_seeds, n_trials, jobs)
        result |= stages_to_json(stages, resources, jobs)
        as_long = [_AS_LONG] if study.chain.finetunes else []
        result["notes"] += [*as_long, explain_nesting(study.chain, n_seeds)]
    emit(result, as_json, render_plan)


def _clock(resources: "Resources", jobs: int) -> "Clock":
    # Measuring imports PyTorch; a plan that is only counted does without.
    with stage("starting PyTorch"):
        from sublayer.study.budget.capacity import fits_memory
        from sublayer.study.budget.measure import Stopwatch
        from sublayer.study.execution.company import company

    if jobs == 1:
        return Stopwatch(resources, say)

    def measure_in_company(arms: "Sequence[Sized]") -> "Sequence[StepTime]":
        baseline = arms[0]
        free = resources.memory_bytes
        share = replace(resources, memory_bytes=None if free is None else free // jobs)
        is_held = fits_memory(baseline.recipe, baseline.vocab_size, share) is not False
        # What does not fit is said by the plan; its time is that of a run alone.
        with company(baseline, jobs - 1 if is_held else 0, resources.device):
            return Stopwatch(resources, say)(arms)

    return measure_in_company


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest existing one above it."""
    existing = folder.absolute()
    while not existing.is_dir():
        existing = existing.parent
    return existing
