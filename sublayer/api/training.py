"""Training and comparing from Python."""

from collections.abc import Sequence
from os import fspath
from pathlib import Path
from typing import Annotated

from sublayer.api.ask import Overrides, as_text
from sublayer.api.parameters import (
    Device,
    Extend,
    Finetunings,
    FirstSeed,
    FirstTuningSeed,
    Jobs,
    Margin,
    Match,
    Recipe,
    Scale,
    Seeds,
    SeedsAtMost,
    TaskData,
    TuningSeeds,
    Until,
)
from sublayer.api.results import Comparison
from sublayer.api.run import Run
from sublayer.errors import ConfigError
from sublayer.options import Option, PathText, checked
from sublayer.system.launch import is_first_launched
from sublayer.system.stages import note, stage


@checked
def train(
    source: Recipe,
    overrides: Overrides | None = None,
    *,
    out: Annotated[
        PathText | None,
        Option("The run's folder. Default: runs/RECIPE, then runs/RECIPE.2, ..."),
    ] = None,
    resume: Annotated[
        bool,
        Option(
            "Resume the run in --out (default: "
            "RECIPE where it is a run, else the last), from its newest whole checkpoint."
        ),
    ] = False,
    device: Device = None,
) -> Run:
    """Train a recipe, and return the run.

    ``overrides`` maps fields to values, such as ``{"model.d_ff": 512}``. Resuming a run that has
    ended returns it, unless a longer length is given. Raises the errors of
    :mod:`sublayer.errors`.
    """
    from sublayer.config.load import load_recipe

    loaded = load_recipe(as_text(source, "a recipe"), overrides or {})
    with stage("starting PyTorch"):
        from sublayer.runs.folder import RunFolder, chosen_folder
        from sublayer.runs.run import train_run
        from sublayer.training.processes.world import leave_world

    try:
        folder = chosen_folder(None if out is None else Path(out), loaded, resume=resume)
        before = RunFolder(folder).record() if resume else None
        record = train_run(loaded, folder, resume=resume, device=device)
    finally:
        leave_world()
    if record == before and is_first_launched():
        if record.get("stopped_early"):
            note(f"{folder} ended early, as train.patience says: nothing is left to train")
        else:
            longer = f"train.steps={2 * record['step']}"
            note(
                f"{folder} has ended, and nothing is left to train: give a longer length, such as "
                f"{longer}, to continue it"
            )
    return Run(folder)


@checked
def compare(
    source: PathText | Sequence[PathText],
    overrides: Overrides | None = None,
    *,
    vary: Annotated[
        Sequence[str],
        Option(
            "Compare these values; the first is the baseline. Repeatable.",
            metavar="FIELD=A,B",
            complete="varied",
        ),
    ] = (),
    match: Match = None,
    seeds: Seeds = None,
    until: Until = None,
    seeds_at_most: SeedsAtMost = None,
    margin: Margin = None,
    tune: Annotated[
        Sequence[str],
        Option(
            "Try these values in every arm, chosen on validation by runs with other seeds than "
            "those that are compared. Repeatable.",
            metavar="FIELD=A,B",
            complete="varied",
        ),
    ] = (),
    tuning_seeds: TuningSeeds = None,
    extend: Extend = None,
    first_seed: FirstSeed = None,
    first_tuning_seed: FirstTuningSeed = None,
    scale: Scale = None,
    finetunings: Finetunings = None,
    data: TaskData = None,
    out: Annotated[
        PathText | None,
        Option("The study's folder. Default: runs/NAME, then runs/NAME.2, ..."),
    ] = None,
    jobs: Jobs = 1,
    on: Annotated[
        str | None,
        Option(
            "Make the runs on a cluster whose nodes share the study's folder. Ctrl-C leaves them "
            "there, and the same command joins them again.",
            metavar="ray[:ADDRESS]|slurm[:PARTITION]",
        ),
    ] = None,
    device: Device = None,
    tables: Annotated[
        Sequence[PathText],
        Option(
            "Also write every run and the differences: .csv, .md or .tex. Repeatable.",
            flag="--table",
            metavar="FILE",
        ),
    ] = (),
) -> Comparison:
    """Train the arms of a study, or of recipes, at an equal budget, and judge their differences.

    ``source`` is a study, a recipe, or a list of recipes or finished runs, the first of them the
    baseline; ``overrides`` go to all arms. Resumes in a folder that was begun. Raises the errors
    of :mod:`sublayer.errors`.
    """
    from sublayer.reporting.export import check_table_files, write_tables

    files = [Path(file) for file in tables]
    check_table_files(files)
    sources = [*source] if isinstance(source, list | tuple) else [source]
    if not sources:
        raise ConfigError("no recipe is named: give one, or a list of them")
    names = [as_text(name, "a recipe") for name in sources]
    with stage("starting PyTorch"):
        from sublayer.reporting.files import report_study
        from sublayer.study.options import Options

    options = Options(
        vary=tuple(vary),
        match=match,
        seeds=seeds,
        tune=tuple(tune),
        scale=scale,
        out=None if out is None else Path(out),
        device=device,
        jobs=jobs,
        on=on,
        finetunings=finetunings,
        data=None if data is None else fspath(data),
        margin=None if margin is None else str(margin),
        until=until,
        seeds_at_most=seeds_at_most,
        first_seed=first_seed,
        tuning_seeds=tuning_seeds,
        first_tuning_seed=first_tuning_seed,
        extend=extend,
    )
    results, report = report_study(names, overrides or (), options)
    for file in files:
        write_tables(results, file)
    return Comparison(results, report)
