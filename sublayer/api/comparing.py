"""Comparisons: arms trained and compared, scores of any trainer's runs judged, costs planned."""

import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypedDict, Unpack

from sublayer.api.arguments import (
    Device,
    Overrides,
    StudyOptions,
    TableFiles,
    as_sources,
    study_options,
)
from sublayer.api.results import Found, Result, draw_curves, figure, html_table, page, prose
from sublayer.errors import ConfigError, SublayerError, check_rules
from sublayer.estimate.cluster import DEVICES, DEVICES_PER_MACHINE, THIS_MACHINE, check_device
from sublayer.numbers import count
from sublayer.options import Option, PathText, checked
from sublayer.plot import look
from sublayer.system.terminal import note, searchable, stage
from sublayer.values import as_json_values

if TYPE_CHECKING:
    from sublayer.reporting.judged import JudgedRuns
    from sublayer.statistics.contrasts import Difference
    from sublayer.statistics.looks import Looks
    from sublayer.study.budget import Clock, Resources, Sized, StepTime
    from sublayer.study.cost_plan import Machine
    from sublayer.study.definition import Study
    from sublayer.study.results import ArmResult, Results

MOST_LOOKS = 1_000_000


@dataclass(frozen=True, repr=False)
class Comparison(Result):
    """A comparison of arms: their results, the differences with verdicts, and the report's path."""

    results: "Results"
    report: Path

    @property
    def arms(self) -> "Sequence[ArmResult]":
        """The result of each arm: scores by seed, costs, curves."""
        return self.results.arms

    @property
    def differences(self) -> "Sequence[Difference]":
        """The difference of each arm from its baseline: mean, interval, p value, verdict."""
        return self.results.differences

    @property
    def verdicts(self) -> dict[str, str]:
        """The verdict of each compared arm, by the arm's name."""
        return {difference.arm: difference.verdict for difference in self.differences}

    def to_dict(self) -> dict[str, Any]:
        """Return the object of ``sublayer compare --json``."""
        from sublayer.reporting.files import results_to_json

        results: dict[str, Any] = as_json_values(results_to_json(self.results, self.report))
        return results

    def __str__(self) -> str:
        from sublayer.reporting.terminal import summarize

        return searchable(summarize(self.results, self.report))

    @property
    def details(self) -> str:
        """The details of the report as text: intervals, notes, costs, differing settings."""
        from sublayer.reporting.terminal import render

        return searchable(render(self.results, self.report))

    def _repr_html_(self) -> str:
        from sublayer.reporting.tables import differences_sheet
        from sublayer.reporting.words import in_display_units

        results = in_display_units(self.results)
        curves = []
        for index, arm in enumerate(results.arms):
            colour, line = look(index).placeholder, look(index).line
            for number, curve in enumerate(arm.curves):
                label = None if number else arm.name
                marker = "o" if len(curve.steps) == 1 else ""
                style = {"color": colour, "linestyle": line, "label": label, "marker": marker}
                curves.append((curve.steps, curve.values, style))
        drawn = draw_curves("Validation of the arms", f"{results.metric.label} (valid)", curves)
        sheet = differences_sheet(results)
        shown = html_table(sheet.headings, sheet.rows)
        return page(shown, figure(drawn), prose(str(self)))


@checked
def compare(
    source: PathText | Sequence[PathText],
    overrides: Overrides | None = None,
    *,
    on: Annotated[
        str | None,
        Option(
            "The cluster for the runs, with the study's folder on all nodes; Ctrl-C leaves them "
            "running, and the same command rejoins them.",
            metavar="ray[:ADDRESS]|slurm[:PARTITION]",
        ),
    ] = None,
    device: Device = None,
    tables: TableFiles = (),
    resume: Annotated[
        bool,
        Option(
            "Resume the study in its folder, as happens without this option, but never begin one."
        ),
    ] = False,
    **options: Unpack[StudyOptions],
) -> Comparison:
    """Train the arms of a study, or of recipes, at an equal budget, and judge their differences.

    ``source`` is a study, a recipe, or a list of recipes or finished runs, the first of them the
    baseline; ``overrides`` apply to all arms. A folder with a begun study is resumed. Raises the
    errors of :mod:`sublayer.errors`.
    """
    from sublayer.reporting.tables import check_table_files, write_tables
    from sublayer.study.definition import asked_study

    files = [Path(file) for file in tables]
    check_table_files(files)
    sources, settings = as_sources(source), overrides or ()
    given = study_options(options, device=device, on=on, resume=resume)
    requested = asked_study(sources, settings, given)
    with stage("starting PyTorch"):
        from sublayer.reporting.files import report_study

    results, report = report_study(sources, settings, given, requested)
    for file in files:
        write_tables(results, file)
    return Comparison(results, report)


class Judging(TypedDict, total=False):
    """Options of a judgement: fields of ``judging.runs.JudgingOptions``."""

    arm: Annotated[
        str | None, Option("The column of arms; or columns, or files.", metavar="COLUMN")
    ]
    seed: Annotated[
        str | None, Option("The column of seeds; or columns, or rows.", metavar="COLUMN")
    ]
    item: Annotated[
        str | None, Option("The column of items; or columns, or rows.", metavar="COLUMN")
    ]
    document: Annotated[str | None, Option("The column of items' documents.", metavar="COLUMN")]
    value: Annotated[str | None, Option("The column of the score.", metavar="COLUMN")]
    step: Annotated[str | None, Option("The column of training steps.", metavar="COLUMN")]
    task: Annotated[
        str | None, Option("The task of lm-evaluation-harness's samples.", metavar="NAME")
    ]
    filter: Annotated[str | None, Option("The filter of the samples' answers.", metavar="NAME")]
    names: Annotated[
        str | None,
        Option(
            "The pattern of the names of files, folders or columns: '{arm}-{seed}'.",
            metavar="PATTERN",
        ),
    ]
    baseline: Annotated[
        str | None, Option("The arm to judge against. Default: first.", metavar="ARM")
    ]
    new: Annotated[str | None, Option("The arm with the verdict of the exit code.", metavar="ARM")]
    at: Annotated[
        str | int | None,
        Option(
            "The step of the compared values, or last, each run's own last step. Default: the "
            "last, if the same for all runs.",
            metavar="STEP",
        ),
    ]
    margin: Annotated[
        float | None,
        Option(
            "Differences smaller than this do not matter, in the unit of the score.",
            least=1e-9,
            most=1e9,
        ),
    ]
    lower_is_better: Annotated[
        bool | None,
        Option("The better direction of the score.", flag="--lower-is-better/--higher-is-better"),
    ]
    look: Annotated[
        int | None,
        Option("The number of this look, among the planned --looks.", least=1, most=MOST_LOOKS),
    ]
    looks: Annotated[
        int | None, Option("The total number of planned looks.", least=1, most=MOST_LOOKS)
    ]
    ledger: Annotated[
        PathText | None,
        Option(
            "The file that counts a loop's looks, so that at most 5% of loops keep anything no "
            "better; --looks is the planned number.",
            metavar="FILE",
        ),
    ]
    nan_is_failed: Annotated[
        bool, Option("Count runs with NaN as failed: worse than all.", default=False)
    ]
    common: Annotated[bool, Option("Leave out seeds and items that some run lacks.", default=False)]


@checked
def judge(*scores: Any, **options: Unpack[Judging]) -> "JudgedRuns":
    """Judge the scores of arms, ``judge(base, new)``; the first is the baseline.

    Each is an array ``[seed]`` or ``[seed, item]``, a mapping of seeds to such rows, a DataFrame,
    or the path of a table or a folder of runs; one mapping of arms to arrays, or one DataFrame with
    a column of arms, is enough. ``lower_is_better`` is needed if no metric's name implies it;
    ``new`` is the deciding arm among several. The verdict shows itself in a notebook, and its
    ``exit_code`` is the command's. Raises the errors of :mod:`sublayer.errors`.
    """
    from sublayer.judging.runs import JudgingOptions
    from sublayer.judging.verdict import read_objects
    from sublayer.reporting.judged import judge_sources

    settings: dict[str, Any] = {name: value for name, value in options.items() if value is not None}
    readers: dict[str, Callable[[Any], Any]] = {"at": str, "ledger": Path}
    for name in settings.keys() & readers.keys():
        settings[name] = readers[name](settings[name])
    judging = JudgingOptions(**settings)
    sources = read_objects(scores, judging)
    try:
        return judge_sources(sources, judging)
    except SublayerError:
        for line in sources.said:  # the path that the verdict would begin with
            note(f"read: {line}")
        raise


_AS_LONG = (
    "stages of tasks are counted with every example as long as data.context; most are shorter "
    "and cost less"
)


class Plan(Found):
    """Parameters, operations, memory, disk and time of each arm of a comparison, or of a run."""

    @property
    def arms(self) -> list[dict[str, Any]]:
        """Each arm: parameters, FLOPs per token, bytes of memory and disk, steps, hours."""
        return list(self["arms"])

    @property
    def total(self) -> dict[str, Any]:
        """The runs together: their number, hours, bytes of memory and disk."""
        return dict(self["total"])

    @property
    def notes(self) -> list[str]:
        """Assumptions, and the detectable difference of the study."""
        return list(self["notes"])

    def _repr_html_(self) -> str:
        from sublayer.reporting.terminal import plan_lines, plan_sheet, planned_sheet

        lines = [*plan_lines(self.found), *self.notes]
        sheets = [plan_sheet(self.arms), planned_sheet(self.arms)]
        tables = [html_table(sheet.headings, sheet.rows) for sheet in sheets if sheet.rows]
        return page(*tables, "".join(map(prose, lines)))


Measure = Annotated[
    bool,
    Option("Time a few real training steps on random tokens, within a minute."),
]
Processes = Annotated[
    int | None,
    Option(
        "Number of processes, one device each, to plan under each train.shard: memory, traffic, "
        "time. Default: 1 with a --device that has a datasheet.",
        least=1,
        most=1 << 16,
    ),
]
PlannedDevice = Annotated[
    str | None,
    Option(
        f"Device to plan for: cpu, cuda, cuda:1 ... of this machine, or {', '.join(DEVICES)} by "
        "datasheet. Default: a GPU if available.",
        metavar="DEVICE",
        complete="planned_devices",
    ),
]
PeakShare = Annotated[
    float | None,
    Option(
        "Share of the device's peak that computing reaches, such as 0.4. Default: 1, for the "
        "least possible time.",
        metavar="SHARE",
        least=0,
        most=1,
    ),
]
Link = Annotated[
    float | None,
    Option(
        "One-way bandwidth from a device to others in GB/s, such as 50 between machines. "
        "Default: the datasheet's, within a machine.",
        metavar="GB/S",
        least=0,
        most=1e6,
    ),
]


@checked
def plan(
    source: PathText | Sequence[PathText],
    overrides: Overrides | None = None,
    *,
    measure: Measure = False,
    processes: Processes = None,
    device: PlannedDevice = None,
    share: PeakShare = None,
    link: Link = None,
    **options: Unpack[StudyOptions],
) -> Plan:
    """Plan the runs of a recipe, several recipes or a study, before anything is spent.

    Parameters, operations per token, bytes of memory and disk; with ``measure``, seconds of a step
    and hours; with ``processes``, memory, traffic and time of each. Nothing is trained and no text
    is read.
    """
    sources = as_sources(source)
    from sublayer.study.budget import find_resources, share_threads
    from sublayer.study.cost_plan import (
        Machine,
        make_plan,
        plan_processes,
    )
    from sublayer.study.definition import ask, is_run, load_asked

    requested = study_options(options)
    jobs = requested.jobs
    _check_processes(processes, device, share, link, measure=measure, jobs=jobs)
    datasheet = DEVICES.get(device or "")
    if len(sources) > 1 and any(map(is_run, sources)):
        raise ConfigError(
            "finished runs are compared without training, so there is nothing to plan: plan "
            f"recipes, or use `sublayer compare {shlex.join(sources)}`"
        )
    study = load_asked(sources, overrides or (), vary_texts=requested.vary, scale=requested.scale)
    is_divided = processes is not None or datasheet is not None
    if study.chain is not None and is_divided:
        raise ConfigError(
            f"{study.name} has stages, planned for one process only: leave out --processes, or "
            "plan a stage's recipe"
        )
    if jobs > 1 and len(study.arms) == 1:
        raise ConfigError(
            f"--jobs {jobs} runs several arms in parallel, but {study.name} is one arm: leave it "
            "out, or give --vary"
        )
    if jobs > 1:
        study = replace(study, arms=share_threads(study.arms, jobs))
    request = ask(study, requested)
    study, n_seeds, n_tried = request.study, request.n_seeds, request.n_tuning
    folder = (requested.out or Path()).absolute()
    existing = next(parent for parent in (folder, *folder.parents) if parent.is_dir())
    resources = find_resources(None if datasheet else device, existing)
    if datasheet is not None:
        memory = datasheet.memory_bytes
        resources = replace(resources, device="cuda", memory_bytes=memory, has_fast_bfloat16=True)
    clock = _clock(resources, jobs) if measure else None
    if clock is None and datasheet is None and jobs == len(sources) == len(study.arms) == 1:
        clock = _pace_of(Path(sources[0]), overrides or (), resources)
    with stage("measuring" if measure else "counting"):
        counted = make_plan(
            study.arms, study.match, resources, clock, multiple=study.match_multiple
        )
    notes = [*counted.notes, *study.caveats]
    n_below = study.chain.n_seeds if study.chain is not None else 1
    if n_seeds == n_below == 1 and len(study.arms) > 1:
        notes.append("one seed gives values and no verdict: an interval needs three")
    if request.tune:
        notes.append(
            f"every arm tries {' '.join(request.tune)}, {count(len(request.trials), 'trial')}, "
            f"with seeds of its own ({count(request.seeds.n_tuning, 'seed')} each), and keeps "
            "the best on validation"
        )
    if len(study.arms) > 1 and study.chain is None:
        notes += _foreseen(study, request.looks, requested.out)
    if not study.scoring.is_whole_test:
        notes.append(f"runs are scored on {study.scoring.describe(study.arms[0].loaded.recipe)}")
    if study.inspecting is not None:
        notes.append(f"runs are inspected: {study.inspecting.describe(study.scoring.split_name)}")
    counted = replace(counted, notes=tuple(notes))
    if study.chain is not None:
        from sublayer.study.cost_plan import plan_stages, stages_to_json, with_stages

        with stage("measuring" if measure else "counting"):
            stages = plan_stages(study, counted, resources, clock, n_seeds=n_seeds)
        counted = with_stages(counted, stages, study.chain)
        result = counted.to_json(resources, n_seeds, n_tried, jobs)
        result |= stages_to_json(stages, resources, jobs)
        result["notes"] += [_AS_LONG] if study.chain.finetunes else []
        result["notes"].append(study.chain.explain_nesting(n_seeds))
    else:
        result = counted.to_json(resources, n_seeds, n_tried, jobs)
    if is_divided:
        rate = None if link is None else link * 1e9
        machine = Machine(processes or 1, resources, datasheet, share or 1.0, rate, device)
        n_runs = n_tried + n_seeds
        arms = zip(study.arms, counted.arms, strict=True)
        plans = [plan_processes(arm, of_arm, machine, n_runs) for arm, of_arm in arms]
        result["processes"] = {**machine.to_json(), "runs": n_runs, "arms": plans}
        result["processes"]["notes"] = [*_process_notes(plans[0]["shards"], machine)]
    from sublayer.reporting.terminal import render_plan

    return Plan(result, render_plan(result))


def _pace_of(run: Path, overrides: Overrides, resources: "Resources") -> "Clock | None":
    """Return the step time of a run trained on this machine; None for any other source.

    ``overrides`` may only change its length.
    """
    from sublayer.files.checkpoints import read_record
    from sublayer.study.budget import StepTime

    keys = [str(setting).partition("=")[0] for setting in overrides]
    record = (
        read_record(run) if run.is_dir() and {*keys} <= {"train.steps", "train.epochs"} else None
    )
    if not record:
        return None
    with stage("starting PyTorch"):
        from sublayer.system.machine import processor
    machine = record.get("machine") or {}
    is_same = (machine.get("device") == "cpu") == (resources.device == "cpu")
    if machine.get("processor") != processor() or not is_same:
        return None
    seconds = record["tokens"] / record["tokens_per_s"] / record["step"]
    return lambda arms: [StepTime(seconds, is_measured=True)] * len(arms)


def _foreseen(study: "Study", looks: "Looks", out: Path | None) -> list[str]:
    """Return the detectable difference of the study, if the spread over seeds is known.

    PyTorch is imported only then, for the metrics of the objective.
    """
    from sublayer.study.evidence import UNKNOWN, foresee
    from sublayer.study.results import RESULTS

    folder = out or Path("runs") / (study.folder or study.name)
    question = study.question
    if question.margin == "" and question.spread == "" and not (folder / RESULTS).is_file():
        return [UNKNOWN]
    with stage("starting PyTorch"):
        from sublayer.study.columns import study_metrics
    metric, *_ = study_metrics(study)
    return list(foresee(study, metric, looks, folder))


def _clock(resources: "Resources", jobs: int) -> "Clock":
    # Measuring imports PyTorch; a plan of counts does not.
    with stage("starting PyTorch"):
        from sublayer.study.jobs.company import company
        from sublayer.study.step_time import Stopwatch

    if jobs == 1:
        return Stopwatch(resources, note)

    def measure_in_company(arms: "Sequence[Sized]") -> "Sequence[StepTime]":
        baseline = arms[0]
        free = resources.memory_bytes
        share = replace(resources, memory_bytes=None if free is None else free // jobs)
        is_held = share.fits_memory(baseline.recipe, baseline.vocab_size) is not False
        # The plan reports that it does not fit; the time of a single run is taken.
        with company(baseline, jobs - 1 if is_held else 0, resources.device):
            return Stopwatch(resources, note)(arms)

    return measure_in_company


def _check_processes(
    number: int | None,
    device: str | None,
    share: float | None,
    link: float | None,
    *,
    measure: bool,
    jobs: int,
) -> None:
    """Raise ConfigError, in one line, for contradicting options."""
    is_datasheet = device in DEVICES
    if device is not None and not device.startswith("cuda"):
        check_device(device)
    names = ", ".join(DEVICES)
    check_rules(
        "",
        (
            share is not None and not is_datasheet,
            f"--share needs a datasheet's peak: give --device {names}",
        ),
        (share == 0, "--share 0 gives no speed: give a share of the peak, such as 0.4"),
        (
            link is not None and not (is_datasheet and (number or 1) > 1),
            f"--link needs devices with datasheets: give --processes and --device {names}",
        ),
        (link == 0, "--link 0 gives no bandwidth: give GB/s, such as 50"),
        (
            measure and is_datasheet,
            f"--measure times this machine, not --device {device}: leave it out, or give --device "
            f"{THIS_MACHINE}",
        ),
        (
            jobs > 1 and (is_datasheet or number is not None),
            f"--jobs {jobs} runs one process per run, which contradicts --processes: leave one of "
            "them out",
        ),
    )


def _process_notes(shards: Sequence[dict[str, Any]], machine: "Machine") -> Iterator[str]:
    """Yield the assumptions behind the figures of several processes, under each shard."""
    device, rate = machine.device, machine.link_bytes_per_s
    if device is None:
        if shards[0]["computing_seconds"] is not None:
            yield (
                "time: one process on all cores, taken as the speed of all processes together; "
                "without communication"
            )
    else:
        peak = "the peak" if machine.share == 1.0 else f"{100 * machine.share:g}% of the peak"
        time = f"{peak} of {device.title}, nothing sent"
        if rate is not None:
            time = (
                f"from {peak} of {device.title}, sending at {rate / 1e9:g} GB/s one way, from "
                "full to no overlap with computing"
            )
        yield f"time: {time}; without evaluations, optimizer, or waiting for text"
        if rate is None:
            yield (
                f"{machine.n_processes} processes exceed the {DEVICES_PER_MACHINE} devices of one "
                "machine, and no datasheet gives the bandwidth between machines: give --link"
            )
        yield "figures for GPUs are unverified; memory was verified on CPUs"
    if len(shards) == 1:
        yield (
            "train.shard has no effect here: it cannot shard with train.exact, or with this "
            "optimizer"
        )
    if machine.n_processes == 1:
        yield "train.shard has no effect on one process"
