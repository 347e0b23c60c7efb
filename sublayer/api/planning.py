"""Plans from Python: what runs and comparisons take, before anything is spent."""

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from os import fspath
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sublayer.api.arguments import (
    Extend,
    Finetunings,
    FirstSeed,
    FirstTuningSeed,
    Jobs,
    Margin,
    Match,
    Overrides,
    Scale,
    SeedsAtMost,
    TaskData,
    TuningSeeds,
    Until,
    as_text,
)
from sublayer.api.results import Result, html_table, page, prose
from sublayer.config.limits import MOST_SEEDS
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.estimate.cluster import DEVICES, DEVICES_PER_MACHINE, THIS_MACHINE, check_device
from sublayer.options import Option, PathText, checked
from sublayer.system.stages import note, stage

if TYPE_CHECKING:
    from sublayer.statistics.looks import Looks
    from sublayer.study.budget.expected import Clock, Resources, Sized, StepTime
    from sublayer.study.budget.plan import Plan as BudgetPlan
    from sublayer.study.budget.processes import Machine, ProcessPlan
    from sublayer.study.definition import Study

_AS_LONG = (
    "stages of tasks are counted as if every example were as long as data.context: most are "
    "shorter, and take less"
)
_ONE_SEED = "one seed gives values and no verdict: an interval needs three"


class Plan(Result):
    """Parameters, operations, memory, disk and time of each arm of a comparison, or of a run."""

    @property
    def arms(self) -> list[dict[str, Any]]:
        """Each arm: parameters, FLOPs per token, bytes of memory and disk, steps, hours."""
        arms: list[dict[str, Any]] = self["arms"]
        return arms

    @property
    def total(self) -> dict[str, Any]:
        """The runs together: their number, hours, bytes of memory and disk."""
        total: dict[str, Any] = self["total"]
        return total

    @property
    def notes(self) -> list[str]:
        """Assumptions, and the difference that the study can find."""
        notes: list[str] = self["notes"]
        return notes

    def _repr_html_(self) -> str:
        from sublayer.reporting.plans import plan_cells, plan_lines
        from sublayer.reporting.terminal import planned_cells

        headings, cells = plan_cells(self.arms)
        lines = [*plan_lines(self.found), *self.notes]
        beyond, rows = planned_cells(self.arms)
        budgets = html_table(beyond, rows) if rows else ""
        return page(html_table(headings, cells), budgets, "".join(map(prose, lines)))


@checked
def plan(
    source: PathText | Sequence[PathText],
    overrides: Overrides | None = None,
    *,
    vary: Annotated[
        Sequence[str],
        Option(
            "Plan an arm for each of these values; the first is the baseline. Repeatable.",
            metavar="FIELD=A,B",
            complete="varied",
        ),
    ] = (),
    match: Match = None,
    seeds: Annotated[
        int | None,
        Option(
            "Number of seeds: each arm has a run of each. Default: the study's, or 5; 1 of a "
            "single arm.",
            least=1,
            most=MOST_SEEDS,
        ),
    ] = None,
    until: Until = None,
    seeds_at_most: SeedsAtMost = None,
    margin: Margin = None,
    tune: Annotated[
        Sequence[str],
        Option(
            "Also count a trial of each of these values in every arm. Repeatable.",
            metavar="FIELD=A,B",
            complete="varied",
        ),
    ] = (),
    tuning_seeds: TuningSeeds = None,
    extend: Extend = None,
    first_seed: FirstSeed = None,
    first_tuning_seed: FirstTuningSeed = None,
    scale: Scale = None,
    measure: Annotated[
        bool,
        Option("Time a few real training steps, on random tokens; takes a minute at most."),
    ] = False,
    out: Annotated[
        PathText | None,
        Option("Where the runs would go: whose disk's free space counts."),
    ] = None,
    finetunings: Finetunings = None,
    data: TaskData = None,
    jobs: Jobs = 1,
    processes: Annotated[
        int | None,
        Option(
            "Also plan a run on so many processes, a device each, under each train.shard: memory, "
            "traffic, time. Default: one, where --device names one of the table.",
            least=1,
            most=1 << 16,
        ),
    ] = None,
    device: Annotated[
        str | None,
        Option(
            f"Plan for cpu, cuda, cuda:1 ... of this machine, or for {', '.join(DEVICES)} by "
            "their datasheets. Default: a GPU if there is one.",
            metavar="DEVICE",
            complete="planned_devices",
        ),
    ] = None,
    share: Annotated[
        float | None,
        Option(
            "The share of the device's peak that computing reaches, such as 0.4. Default: 1, the "
            "least time that it can take.",
            metavar="SHARE",
            least=0,
            most=1,
        ),
    ] = None,
    link: Annotated[
        float | None,
        Option(
            "Gigabytes a second, one way, that a device sends to others, such as 50 between "
            "machines. Default: the datasheet's, within a machine.",
            metavar="GB/S",
            least=0,
            most=1e6,
        ),
    ] = None,
) -> Plan:
    """Plan the runs of a recipe, several recipes or a study, before anything is spent.

    Parameters, operations per token, bytes of memory and disk; with ``measure``, seconds of a step
    and hours; with ``processes``, memory, traffic and time of each. Nothing is trained and no text
    is read.
    """
    sources = [as_text(name, "a recipe") for name in _listed(source)]
    folder = None if data is None else fspath(data)
    target = None if out is None else Path(out)
    from sublayer.study.arms import make_trials
    from sublayer.study.budget.expected import find_resources
    from sublayer.study.budget.plan import make_plan, plan_to_json
    from sublayer.study.budget.processes import Machine
    from sublayer.study.definition import default_seeds, is_run, load_asked
    from sublayer.study.options import (
        Options,
        as_asked,
        asked_looks,
        asked_seeds,
        check_jobs,
        check_options,
        with_margin,
    )
    from sublayer.study.question import check_seeds
    from sublayer.study.stages import check_numbers

    _check_processes(processes, device, share, link, measure=measure, jobs=jobs)
    datasheet = DEVICES.get(device or "")
    if len(sources) > 1 and any(map(is_run, sources)):
        raise ConfigError(
            "runs that have ended are compared as they are, which takes no training: plan recipes, "
            f"or use `sublayer compare {shlex.join(sources)}`"
        )
    study = load_asked(sources, overrides or (), vary_texts=vary, scale=scale)
    rule = match or study.match
    check_jobs(jobs, study.arms, rule)
    if jobs > 1:
        study = _shared(study, jobs)
    study = as_asked(study, tuple(tune), finetunings, folder)
    tuned = (tune or study.tune) if study.chain is None else ()
    trials = make_trials(study.arms, tuned)
    asked = Options(
        seeds=seeds,
        until=until,
        seeds_at_most=seeds_at_most,
        margin=None if margin is None else str(margin),
        first_seed=first_seed,
        tuning_seeds=tuning_seeds,
        first_tuning_seed=first_tuning_seed,
        extend=extend,
    )
    study = with_margin(study, asked.margin)
    looks = asked_looks(asked, default_seeds(study))
    n_seeds = looks.planned[-1]
    if study.chain is not None:
        check_options(asked)
        check_numbers(study.chain, n_seeds)
    elif len(study.arms) > 1:
        check_seeds(n_seeds)
    used_seeds = asked_seeds(asked, n_seeds, is_tuned=len(trials) > 1)
    n_tried = (len(trials) + (extend or 0)) * used_seeds.n_tuning if len(trials) > 1 else 0
    here = None if datasheet else device
    resources = find_resources(here, _existing(target or Path()))
    if datasheet is not None:
        memory = datasheet.memory_bytes
        resources = replace(resources, device="cuda", memory_bytes=memory, has_fast_bfloat16=True)
    clock = _clock(resources, jobs) if measure else None
    with stage("measuring" if measure else "counting"):
        plan = make_plan(study.arms, rule, resources, clock)
    tuning = _describe_tuning(tuned, len(trials), used_seeds.n_tuning) if tuned else ""
    plan = replace(plan, notes=(*plan.notes, *_study_notes(study, looks, tuning, target)))
    result = plan_to_json(plan, resources, n_seeds, n_tried, jobs)
    if processes is not None or datasheet is not None:
        rate = None if link is None else link * 1e9
        machine = Machine(processes or 1, resources, datasheet, share or 1.0, rate)
        name = device or resources.device
        result["processes"] = _plan_processes(study, plan, machine, name, n_tried + n_seeds)
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
    from sublayer.reporting.plans import render_plan

    return Plan(result, render_plan)


def _listed(source: PathText | Sequence[PathText]) -> list[PathText]:
    return [*source] if isinstance(source, list | tuple) else [source]  # type: ignore[list-item]


def _shared(study: "Study", jobs: int) -> "Study":
    """Return a comparison whose runs share the threads among so many; check that it is one."""
    from sublayer.study.budget.match import share_threads

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
    """Yield the study's caveats, the difference that it can find, its scoring and inspection."""
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

    PyTorch is started only then, for the metrics of the objective.
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
        from sublayer.study.budget.expected import fits_memory
        from sublayer.study.budget.measure import Stopwatch
        from sublayer.study.jobs.company import company

    if jobs == 1:
        return Stopwatch(resources, note)

    def measure_in_company(arms: "Sequence[Sized]") -> "Sequence[StepTime]":
        baseline = arms[0]
        free = resources.memory_bytes
        share = replace(resources, memory_bytes=None if free is None else free // jobs)
        is_held = fits_memory(baseline.recipe, baseline.vocab_size, share) is not False
        # The plan says that it does not fit; the time of a run alone is taken.
        with company(baseline, jobs - 1 if is_held else 0, resources.device):
            return Stopwatch(resources, note)(arms)

    return measure_in_company


def _existing(folder: Path) -> Path:
    """Return the folder, or the nearest existing one above it."""
    existing = folder.absolute()
    while not existing.is_dir():
        existing = existing.parent
    return existing


def _check_processes(
    number: int | None,
    device: str | None,
    share: float | None,
    link: float | None,
    *,
    measure: bool,
    jobs: int,
) -> None:
    """Raise ConfigError, in one line, for options that contradict each other."""
    is_datasheet = device in DEVICES
    if device is not None and not device.startswith("cuda"):
        check_device(device)
    if share is not None and not is_datasheet:
        raise ConfigError(
            "--share is of a device's peak, which a datasheet says: give --device "
            f"{', '.join(DEVICES)}"
        )
    if share == 0:
        raise ConfigError("--share 0 never ends: give a share of the peak, such as 0.4")
    if link is not None and not (is_datasheet and (number or 1) > 1):
        raise ConfigError(
            "--link is between devices of a datasheet: give --processes and --device "
            f"{', '.join(DEVICES)}"
        )
    if link == 0:
        raise ConfigError("--link 0 never ends: give GB/s, such as 50")
    if measure and is_datasheet:
        raise ConfigError(
            f"--measure takes steps on this machine, which says nothing of --device "
            f"{device}: leave it out, or give --device {THIS_MACHINE}"
        )
    if jobs > 1 and (is_datasheet or number is not None):
        raise ConfigError(
            f"--jobs {jobs} makes several runs at a time in one process each: leave it out "
            "with --processes"
        )


def _plan_processes(
    study: "Study", plan: "BudgetPlan", machine: "Machine", name: str, n_runs: int
) -> dict[str, Any]:
    """Plan each arm of a study for several processes, as plain values."""
    from sublayer.study.budget.processes import plan_processes, processes_to_json

    if study.chain is not None:
        raise ConfigError(
            f"{study.name} has stages, which are planned for one process: leave out "
            "--processes, or plan a stage's recipe"
        )
    arms = zip(study.arms, plan.arms, strict=True)
    plans = [plan_processes(arm, of_arm, machine) for arm, of_arm in arms]
    result = processes_to_json(plans, machine, name, n_runs)
    return {**result, "notes": list(_process_notes(plans, machine))}


def _process_notes(plans: "Sequence[ProcessPlan]", machine: "Machine") -> Iterator[str]:
    """Yield the assumptions behind the figures of several processes."""
    device, rate = machine.device, machine.link_bytes_per_s
    if device is None:
        if plans[0].shards[0].seconds is not None:
            yield (
                "time: that of one process on all cores, as which the processes together are taken "
                "to compute; what they send is not in it"
            )
    else:
        peak = "the peak" if machine.share == 1.0 else f"{100 * machine.share:g} % of the peak"
        time = f"{peak} of {device.title}, nothing sent"
        if rate is not None:
            time = (
                f"from {peak} of {device.title}, sending at {rate / 1e9:g} GB/s one way, all of it "
                "beside computing, to nothing of it"
            )
        yield f"time: {time}; without evaluations, optimizer, or waiting for text"
        if rate is None:
            yield (
                f"{machine.n_processes} processes are more than the {DEVICES_PER_MACHINE} devices "
                "of one machine, and no datasheet says what goes between machines: give --link"
            )
        yield "no figure of a GPU has been held against one: those of memory were, on processors"
    if len(plans[0].shards) == 1:
        yield "train.shard divides nothing here: with train.exact, or this optimizer, it cannot"
    if machine.n_processes == 1:
        yield "train.shard divides nothing: there is one process"
