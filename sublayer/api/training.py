"""Training and comparing from Python."""

from collections.abc import Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Literal

from sublayer.api.ask import (
    Overrides,
    as_option,
    as_source,
    as_text,
    as_texts,
    as_words,
    ask,
    kept,
)
from sublayer.api.results import Comparison, Result
from sublayer.api.run import Run
from sublayer.config.layering.layers import load_recipe
from sublayer.errors import ConfigError
from sublayer.tasks.own_table.table import table_of
from sublayer.values import plain


def train(
    source: str | PathLike[str],
    overrides: Overrides | None = None,
    *,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    device: str | None = None,
) -> Run:
    """Train a recipe (a shipped name, a file, or a run), and return the run: a dict of its record.

    ``overrides`` maps fields to values, such as ``{"model.d_ff": 512}``. ``out`` is the run's
    folder; None: a free one below ``runs``, or, to ``resume``, ``source`` where that is a run, else
    the last one taken there. Resuming a run that has ended returns it. ``device`` is ``cpu``,
    ``cuda`` and the like; None: the GPU where there is one. Raises the errors of
    :mod:`sublayer.errors`.
    """
    from sublayer.runs.folder import chosen_folder
    from sublayer.runs.run import train_run

    loaded = load_recipe(as_text(source, "a recipe"), overrides or {})
    named = None if out is None else Path(as_text(out))
    folder = chosen_folder(named, loaded, resume=resume)
    train_run(loaded, folder, resume=resume, device=device)
    return Run(folder)


def finetune(
    source: str | PathLike[str],
    tasks: str | PathLike[str] | Sequence[str] | Any,
    overrides: Overrides | None = None,
    *,
    data: str | PathLike[str] | None = None,
    columns: Mapping[str, str | Sequence[str]] | None = None,
    preset: str = "default",
    seeds: int | None = None,
    out: str | PathLike[str] | None = None,
    resume: bool = False,
    device: str | None = None,
) -> Result:
    """Fine-tune a model on tasks, or a table of one's own, and score it beside the baselines.

    ``source`` is a run, a checkpoint, an imported folder, or a recipe. ``tasks`` are one or several
    by name, whose files are in the folder ``data``; or a table, by its path or as a DataFrame, of
    which ``columns`` says what they are, as ``data.columns`` does: ``{"text": "review", "label":
    "stars"}``. Other arguments are the options of ``sublayer finetune``. Returns a dict of what
    ``--json`` prints. Raises the errors of :mod:`sublayer.errors`.
    """
    from sublayer.commands.finetune.command import command

    if columns is not None and not isinstance(columns, Mapping):
        raise ConfigError(
            f"columns is {columns!r:.80}: give a mapping of what columns are to their names, such "
            'as {"text": "review", "label": "stars"}'
        )
    given: dict[str, Any] = plain(dict(columns or {}))
    if columns is not None:
        table_of("", given)
    if "number" in given:
        given |= {"label": given["number"], "number": True}
    if "choices" in given:
        given["choices"] = ",".join(given["choices"])
    if "id" in given:
        given["id_"] = given.pop("id")
    is_named = isinstance(tasks, list | tuple) and all(isinstance(each, str) for each in tasks)
    names: list[str] = [*tasks] if is_named else [as_source(tasks)]  # type: ignore[misc]
    return Result(
        ask(
            command,
            run=as_text(source, "a run or a recipe"),
            words=[*names, *as_words(overrides)],
            data=None if data is None else as_text(data),
            preset=preset,
            seeds=seeds,
            out=None if out is None else Path(as_text(out)),
            resume=resume,
            device=device,
            **given,
        )
    )


def compare(
    source: str | PathLike[str] | Sequence[str | PathLike[str]],
    overrides: Overrides | None = None,
    *,
    vary: Sequence[str] = (),
    match: Literal["parameters", "flops", "time", "none"] | None = None,
    seeds: int | None = None,
    until: Literal["decided"] | None = None,
    seeds_at_most: int | None = None,
    margin: str | float | None = None,
    tune: Sequence[str] = (),
    tuning_seeds: int | None = None,
    extend: int | None = None,
    first_seed: int | None = None,
    first_tuning_seed: int | None = None,
    scale: str | None = None,
    finetunings: int | None = None,
    data: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    jobs: int = 1,
    on: str | None = None,
    device: str | None = None,
    tables: Sequence[str | PathLike[str]] = (),
) -> Comparison:
    """Run a comparison of a study's arms, or recipes': ``sublayer compare`` from Python.

    ``source`` is a study, a recipe, or a list of recipes, the first of them the baseline.
    ``vary`` and ``tune`` are texts such as ``"model.ffn=gelu,swiglu"``; ``match`` is what arms have
    as much of as the baseline; ``seeds`` runs of each arm, or ``until`` it is decided,
    ``seeds_at_most``; ``margin`` is the smallest difference that matters, in the unit that
    differences are shown in. What is tuned is tried by ``tuning_seeds`` runs, and ``extend`` times
    beyond the edge of its grid. ``jobs`` runs are made at a time, or those for which there is room
    ``on`` a cluster, ``"ray[:ADDRESS]"`` or ``"slurm[:PARTITION]"``. Of a study with stages,
    ``finetunings`` of each task stand under each of its ``seeds``, and ``data`` is the folder of
    the tasks' files. ``out`` is the study's folder; None: a free one below ``runs``, or the one
    where it began. ``tables`` are files to which every run and the differences are written, .csv,
    .md or .tex. Returns a dict of what ``--json`` prints. Raises the errors of
    :mod:`sublayer.errors`.
    """
    from sublayer.commands.compare import command
    from sublayer.commands.shared.arguments import check_values
    from sublayer.commands.shared.comparison import show
    from sublayer.reporting.export import check_table_files, write_tables
    from sublayer.reporting.files import report_study
    from sublayer.study.options import Options

    files = [Path(as_text(each, "a table")) for each in tables]
    check_table_files(files)
    folder = None if out is None else Path(as_text(out))
    checked: dict[str, Any] = {
        "match": match,
        "seeds": seeds,
        "seeds_at_most": seeds_at_most,
        "tuning_seeds": tuning_seeds,
        "extend": extend,
        "first_seed": first_seed,
        "first_tuning_seed": first_tuning_seed,
        "scale": scale,
        "finetunings": finetunings,
        "jobs": jobs,
        "on": on,
        "device": device,
    }
    checked = {name: as_option(value) for name, value in checked.items()}
    check_values(command, checked)
    options = Options(
        **checked,
        vary=tuple(as_texts(vary, "vary")),
        tune=tuple(as_texts(tune, "tune")),
        out=folder,
        data=None if data is None else as_text(data),
        margin=None if margin is None else str(margin),
        until=until,
    )
    sources = [*source] if isinstance(source, list | tuple) else [source]
    if not sources:
        raise ConfigError("no recipe is named: give one, or a list of them")
    names = [as_text(each, "a recipe") for each in sources]
    results, report = report_study(names, overrides or (), options)
    for path in files:
        write_tables(results, path)
    return Comparison(kept(show, results, report, as_json=True))
