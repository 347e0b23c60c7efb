"""Recipes, studies and folders from Python."""

from dataclasses import asdict
from pathlib import Path

from sublayer.api.ask import Overrides, as_path, as_text
from sublayer.api.results import Diagram, Listing, Result, Rows
from sublayer.options import PathText


def list_recipes() -> Listing:
    """List the recipes and studies that there are, with titles and costs."""
    from sublayer.commands.recipes import list_shipped, render_shipped

    return Listing(list_shipped(), render_shipped)


def list_runs(*folders: PathText, arms: bool = False) -> Rows:
    """List the runs, comparisons and imported models below folders, ``runs`` where none is given.

    The newest come first; ``arms`` adds the single runs of comparisons. Raises ConfigError for a
    folder that is not there.
    """
    from sublayer.commands.runs.command import list_rows, render_rows

    paths = [as_path(folder) for folder in folders]
    rows = list_rows(paths, with_arms=arms)
    return Rows({"runs": [asdict(row) for row in rows]}, lambda _: render_rows(rows, paths))


def report(folder: PathText, out: PathText | None = None) -> Path:
    """Write the HTML report of a run or a comparison again, and return its absolute path.

    ``out`` is its file, ``report.html`` in the folder unless given. Raises ConfigError where the
    folder holds neither, and for a file that is no report of it.
    """
    from sublayer.reporting.files import report_again

    return report_again(as_path(folder), None if out is None else as_path(out))


def recipe(source: PathText, overrides: Overrides | None = None) -> Result:
    """Show a recipe resolved: of each field its value and where that comes from.

    Raises ConfigError for settings without meaning or effect.
    """
    from sublayer.commands.recipes import render_recipe, show_recipe
    from sublayer.config.layering.layers import load_recipe

    return Result(
        show_recipe(load_recipe(as_text(source, "a recipe"), overrides or {})), render_recipe
    )


def draw(
    source: PathText, overrides: Overrides | None = None, *, out: PathText | None = None
) -> Diagram:
    """Draw the architecture of a recipe; ``out`` is an SVG file that is not there yet.

    Its ``repr`` is the drawing in text, its ``svg`` the picture. Raises ConfigError.
    """
    from sublayer.commands.inspect.plot_file import check_new, write_plot
    from sublayer.config.layering.layers import load_recipe
    from sublayer.diagram.figure import describe
    from sublayer.diagram.svg import draw_svg
    from sublayer.diagram.text import draw_text

    file = None if out is None else as_path(out)
    if file is not None:
        check_new(file)
    shown = describe(load_recipe(as_text(source, "a recipe"), overrides or {}))
    svg = draw_svg(shown)
    if file is not None:
        write_plot(file, svg)
    return Diagram(
        {**asdict(shown), "file": None if file is None else str(file)},
        lambda _: draw_text(shown),
        svg,
    )
