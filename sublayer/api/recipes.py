"""The commands on recipes, studies and folders, as functions that return what ``--json`` prints."""

from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import Literal

from sublayer.api.ask import Overrides, PathOrText, as_path, as_text, as_texts, as_words, ask
from sublayer.api.results import Diagram, Listing, Plan, Result, Rows


def plan(
    source: PathOrText | Sequence[PathOrText],
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
    measure: bool = False,
    out: PathOrText | None = None,
    jobs: int = 1,
    device: str | None = None,
) -> Plan:
    """Say what the runs of a recipe, several recipes or a study take, before anything is spent.

    Parameters, operations per token, bytes of memory and disk; with ``measure``, seconds of a step
    and hours. Arguments are those of ``compare``. Nothing is trained and no text is read.
    """
    from sublayer.commands.plan.command import command

    sources = [source] if isinstance(source, str | PathLike) else source
    first, *others = [as_text(each, "a recipe") for each in sources]
    answer = ask(
        command,
        source=first,
        words=[*others, *as_words(overrides)],
        vary=as_texts(vary, "vary"),
        match=match,
        seeds=seeds,
        until=until,
        seeds_at_most=seeds_at_most,
        margin=None if margin is None else str(margin),
        tune=as_texts(tune, "tune"),
        tuning_seeds=tuning_seeds,
        extend=extend,
        first_seed=first_seed,
        first_tuning_seed=first_tuning_seed,
        scale=scale,
        measure=measure,
        out=None if out is None else as_path(out),
        jobs=jobs,
        device=device,
    )
    return Plan(answer)


def list_recipes() -> Listing:
    """List the recipes and studies that there are, with titles and costs."""
    from sublayer.commands.recipes import command

    return Listing(ask(command))


def list_runs(*folders: PathOrText, arms: bool = False) -> Rows:
    """List the runs, comparisons and imported models below folders, ``runs`` where none is given.

    The newest come first; ``arms`` adds the single runs of comparisons. Raises ConfigError for a
    folder that is not there.
    """
    from sublayer.commands.runs.command import command

    return Rows(ask(command, folders=[as_path(each) for each in folders], arms=arms))


def report(folder: PathOrText, out: PathOrText | None = None) -> Path:
    """Write the HTML report of a run or a comparison again, and return its absolute path.

    ``out`` is its file, ``report.html`` in the folder unless given. Raises ConfigError where the
    folder holds neither, and for a file that is no report of it.
    """
    from sublayer.commands.report import command

    file = None if out is None else as_path(out)
    return Path(ask(command, folder=as_path(folder), out=file).result["report"])


def recipe(source: PathOrText, overrides: Overrides | None = None) -> Result:
    """Show a recipe resolved: of each field its value and where that comes from.

    Raises ConfigError for settings without meaning or effect.
    """
    from sublayer.commands.recipes import command

    return Result(ask(command, recipe=as_text(source, "a recipe"), settings=overrides))


def draw(
    source: PathOrText, overrides: Overrides | None = None, *, out: PathOrText | None = None
) -> Diagram:
    """Draw the architecture of a recipe; ``out`` is an SVG file that is not there yet.

    Its ``repr`` is the drawing in text, its ``svg`` the picture. Raises ConfigError.
    """
    from sublayer.commands.inspect.plot_file import check_new, write_plot
    from sublayer.commands.recipes import command
    from sublayer.config.layering.layers import load_recipe
    from sublayer.diagram.figure import describe
    from sublayer.diagram.svg import draw_svg

    file = None if out is None else as_path(out)
    if file is not None:
        check_new(file)
    name = as_text(source, "a recipe")
    answer = ask(command, recipe=name, settings=overrides, diagram=True)
    svg = draw_svg(describe(load_recipe(name, overrides or {})))
    if file is not None:
        write_plot(file, svg)
    return Diagram(answer, svg)
