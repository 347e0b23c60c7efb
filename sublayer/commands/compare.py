"""``sublayer compare``: which arm is better at an equal budget, and how sure that is."""

from pathlib import Path
from typing import Annotated

import typer

from sublayer.commands.shared import candidates
from sublayer.commands.shared.base import DeviceOption, JsonOption
from sublayer.commands.shared.comparison import DetailsOption, show
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
    OnOption,
    ScaleOption,
    TaskDataOption,
)
from sublayer.config.limits import MOST_SEEDS
from sublayer.system.stages import stage

EXAMPLE = (
    "sublayer compare gpt model.n_layers=2 train.steps=200 --vary model.ffn=gelu,swiglu --seeds 3"
)

SourceArgument = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE|STUDY",
        autocompletion=candidates.recipes_and_studies,
        help="A recipe to vary, or a study, by name or .toml file. Or the first of several recipes "
        "or finished runs, which are the arms: the baseline.",
    ),
]
WordsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[RECIPE ...] [KEY=VALUE ...]",
        autocompletion=candidates.recipes_and_settings,
        help="Further recipes or runs, then settings over all recipes, such as model.d_ff=512.",
    ),
]
VaryOption = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="FIELD=A,B",
        autocompletion=candidates.varied,
        help="Compare these values; the first is the baseline. Repeatable.",
    ),
]
SeedsOption = Annotated[
    int | None,
    typer.Option(
        "--seeds",
        metavar="N",
        min=1,
        max=MOST_SEEDS,
        help="Train each arm with the seeds 0 to N - 1: at least 3, or 1 for values without a "
        "verdict. Default: the study's, or 5.",
    ),
]
TuneOption = Annotated[
    list[str] | None,
    typer.Option(
        "--tune",
        metavar="FIELD=A,B",
        autocompletion=candidates.varied,
        help="Try these values in every arm, chosen on validation by runs with other seeds than "
        "those that are compared. Repeatable.",
    ),
]
OutOption = Annotated[
    Path | None,
    typer.Option("--out", help="The study's folder. Default: runs/NAME, then runs/NAME.2, ..."),
]
ResumeOption = Annotated[
    bool,
    typer.Option("--resume", help="Resume the study in the folder, as happens without it too."),
]
TableOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--table",
        metavar="FILE",
        help="Also write every run and the differences: .csv, .md or .tex. Repeatable.",
    ),
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
    finetunings: FinetuningsOption = None,
    data: TaskDataOption = None,
    out: OutOption = None,
    resume: ResumeOption = False,
    jobs: JobsOption = 1,
    on: OnOption = None,
    device: DeviceOption = None,
    table: TableOption = None,
    details: DetailsOption = False,
    as_json: JsonOption = False,
) -> None:
    """Train every arm at an equal budget with the same seeds, and say which is better, with
    intervals.

    The same command again resumes where it stopped, or shows what there is; with more --seeds it
    trains those that are missing, and intervals widen for the further look. Ctrl-C stops, and what
    is running saves; with --on it goes on, and the same command joins it.
    """
    from sublayer.reporting.export import check_table_files, write_tables

    check_table_files(table or [])
    with stage("starting PyTorch"):
        from sublayer.reporting.files import report_study
        from sublayer.study.definition import split_words
        from sublayer.study.options import Options

    varied = tuple(vary or ())
    tuned = tuple(tune or ())
    options = Options(
        vary=varied,
        match=match,
        seeds=seeds,
        tune=tuned,
        scale=scale,
        out=out,
        device=device,
        jobs=jobs,
        on=on,
        finetunings=finetunings,
        data=data,
        margin=margin,
        until=until,
        seeds_at_most=seeds_at_most,
        first_seed=first_seed,
        tuning_seeds=tuning_seeds,
        first_tuning_seed=first_tuning_seed,
        extend=extend,
    )
    sources, settings = split_words(source, words or [])
    results, report = report_study(sources, settings, options)
    for path in table or ():
        write_tables(results, path)
    show(results, report, as_json=as_json, details=details)
