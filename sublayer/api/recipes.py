"""The commands on recipes, studies and folders, as functions that return what ``--json`` prints."""

from pathlib import Path

from sublayer.api.ask import Overrides, PathOrText, as_path, as_text, ask
from sublayer.api.results import Diagram, Listing, Result, Rows


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
