"""``sublayer plan``: what a run or a comparison will cost, before anything is spent."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sublayer.commands.plan.processes import (
    AskedProcesses,
    LinkOption,
    PlannedDeviceOption,
    ProcessesOption,
    ShareOption,
)
from sublayer.commands.plan.rendering import render_plan
from sublayer.commands.shared import candidates
from sublayer.commands.shared.base import JsonOption, emit, say
from sublayer.commands.shared.seed_options import (
    AtMostOption,
    ExtendOption,
    FirstSeedOption,
    FirstTuningSeedOption,
    MarginOption,
    TuningSeedsOption,
    UntilOption,
)
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
from sublayer.estimate.cluster import DEVICES
from sublayer.system.stages import stage

if TYPE_CHECKING:
    from sublayer.statistics.looks import Looks
    from sublayer.study.budget.capacity import Resources
    from sublayer.study.budget.expected import Clock, Sized, StepTime
    from sublayer.study.definition import Study

EXAMPLE = "sublayer plan gpt train.minutes=5 --vary model.ffn=gelu,swiglu --measure"

_AS_LONG = (
    "stages of tasks are counted as if every example were as long as data.context: most are "
    "shorter, and take less"
)
_ONE_SEED = "one seed gives values and no verdict: an interval needs three"

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
    until: UntilOption = None,
    seeds_at_most: AtMostOption = None,
    margin: MarginOption = None,
    tune: TuneOption = None,
    tuning_seeds: TuningSeedsOption = None,
    extend: ExtendOption = None,
    first_seed: FirstSeedOption = None,
    first_tuning_seed: FirstTuningSeedOption = None,
    scale: ScaleOption = None,
    measure: MeasureOption = False,
    out: OutOption = None,
    finetunings: FinetuningsOption = None,
    data: TaskDataOption = None,
    jobs: JobsOption = 1,
    processes: ProcessesOption = None,
    device: PlannedDeviceOption = None,
    share: ShareOption = None,
    link: LinkOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a run or each arm of a comparison takes: parameters, FLOPs, memory, disk; with
    --measure, time; and which difference it can find. With --processes, what each of them takes.

    No text is read and nothing is trained. A vocabulary that is yet to be trained is taken to have
    data.vocab_size tokens.
    """
    from sublayer.study.arms import make_trials
    from sublayer.study.budget.capacity import find_resources
    from sublayer.study.budget.plan import make_plan, plan_to_json
    from sublayer.study.definition import default_seeds, is_run, load_asked, split_words
    from sublayer.study.jobs.options import check_jobs
    from sublayer.study.options import (
        Options,
        as_asked,
        asked_looks,
        asked_seeds,
        check_options,
        with_margin,
    )
    from sublayer.study.question import check_seeds
    from sublayer.study.stages import check_numbers

    group = AskedProcesses(processes, device, share, link)
    group.check(measure=measure, jobs=jobs)
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
        study = _shared(study, jobs)
    study = as_asked(study, tuple(tune or ()), finetunings, data)
    tuned = (tune or study.tune) if study.chain is None else ()
    trials = make_trials(study.arms, tuned)
    asked = Options(
        seeds=seeds,
        until=until,
        seeds_at_most=seeds_at_most,
        margin=margin,
        first_seed=first_seed,
        tuning_seeds=tuning_seeds,
        first_tuning_seed=first_tuning_seed,
        extend=extend,
    )
    study = with_margin(study, margin)
    looks = asked_looks(asked, default_seeds(study))
    n_seeds = looks.planned[-1]
    if study.chain is not None:
        check_options(asked)
        check_numbers(study.chain, n_seeds)
    elif len(study.arms) > 1:
        check_seeds(n_seeds)
    own_seeds = asked_seeds(asked, n_seeds, is_tuned=len(trials) > 1)
    n_tried = (len(trials) + (extend or 0)) * own_seeds.n_tuning if len(trials) > 1 else 0
    here = None if device in DEVICES else device
    resources = group.of_device(find_resources(here, _existing(out or Path())))
    clock = _clock(resources, jobs) if measure else None
    with stage("measuring" if measure else "counting"):
        plan = make_plan(study.arms, rule, resources, clock)
    tuning = _describe_tuning(tuned, len(trials), own_seeds.n_tuning) if tuned else ""
    plan = replace(plan, notes=(*plan.notes, *_study_notes(study, looks, tuning, out)))
    result = plan_to_json(plan, resources, n_seeds, n_tried, jobs)
    if group.is_asked:
        n_runs = n_tried + n_seeds
        result["processes"] = group.plan(study, plan, resources, n_runs)
    if study.chain is not None:
        with stage("measuring" if measure else "counting"):
            from sublayer.study.stage_plan import plan_stages, stages_to_json, with_stages
            from sublayer.study.stages import explain_nesting

            stages = plan_stages(study, plan, resources, clock, n_seeds=n_seeds)
        plan = with_stages(plan, stages, study.chain)
        result = plan_to_json(plan, resources, n_seeds, n_tried, jobs)
        result |= stages_to_json(stages, resources, jobs)
        as_long = [_AS_LONG] if study.chain.finetunes else []
        result["notes"] += [*as_long, explain_nesting(study.chain, n_seeds)]
    emit(result, as_json, render_plan)


def _shared(study: "Study", jobs: int) -> "Study":
    """Return a comparison whose runs share the threads among so many; check that it is one."""
    from sublayer.study.jobs.options import share_threads

    if len(study.arms) == 1:
        raise ConfigError(
            f"--jobs {jobs} makes several runs of a comparison at a time, and {study.name} is "
            "one arm: leave it out, or say what varies"
        )
    return replace(study, arms=share_threads(study.arms, jobs))


def _describe_tuning(tuned: Sequence[str], n_trials: int, n_seeds: int) -> str:
    return (
        f"every arm tries {' '.join(tuned)}, {count(n_trials, 'trial')}, with other seeds "
        f"than those that are compared ({count(n_seeds, 'seed')} each), and keeps "
        "what validates best"
    )


def _study_notes(study: "Study", looks: "Looks", tuning: str, out: Path | None) -> Iterator[str]:
    """Yield what the study says of itself, what it can find, and how it is scored."""
    yield from study.caveats
    n_below = study.chain.n_seeds if study.chain is not None else 1
    if looks.planned[-1] == n_below == 1 and len(study.arms) > 1:
        yield _ONE_SEED
    if tuning:
        yield tuning
    if len(study.arms) > 1 and study.chain is None:
        yield from _foreseen(study, looks, out)
    if not study.scoring.is_whole_test:
        yield f"runs are scored on {study.scoring.describe(study.arms[0].loaded.recipe)}"
    if study.inspecting is not None:
        inspected = study.inspecting.describe(study.scoring.split_name)
        yield f"runs are inspected: {inspected}"


def _foreseen(study: "Study", looks: "Looks", out: Path | None) -> list[str]:
    """Return which difference the study can find, where anything is known of how far seeds spread.

    PyTorch is started only then: what a metric is, its objective says.
    """
    from sublayer.study.results import RESULTS
    from sublayer.study.verdicts import UNKNOWN, foresee

    folder = out or Path("runs") / (study.folder or study.name)
    if not study.question.states_amounts and not (folder / RESULTS).is_file():
        return [UNKNOWN]
    with stage("starting PyTorch"):
        from sublayer.study.columns import study_metrics
    metric, *_ = study_metrics(study)
    return list(foresee(study, metric, looks, folder))


def _clock(resources: "Resources", jobs: int) -> "Clock":
    # Measuring imports PyTorch; a plan that is only counted does without.
    with stage("starting PyTorch"):
        from sublayer.study.budget.capacity import fits_memory
        from sublayer.study.budget.measure import Stopwatch
        from sublayer.study.jobs.company import company

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
