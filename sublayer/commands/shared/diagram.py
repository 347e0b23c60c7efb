"""``sublayer recipes NAME --diagram``: a recipe's architecture, drawn in the terminal or a file."""

from dataclasses import asdict
from pathlib import Path

from sublayer.commands.inspect.plot_file import check_new, write_plot
from sublayer.commands.shared.base import JsonObject, emit
from sublayer.config.layering.layers import LoadedRecipe
from sublayer.errors import ConfigError
from sublayer.files.paths import resolved


def check_diagram(
    recipe: str | None, out: Path | None, *, is_asked: bool, is_changed: bool
) -> None:
    """Raise ConfigError for options of a diagram that is not asked for, or of no recipe."""
    if out is not None and not is_asked:
        raise ConfigError("--out is the file of a diagram: give --diagram too")
    if is_asked and is_changed:
        raise ConfigError("--diagram draws a recipe, and --changed lists fields: leave out one")
    if is_asked and recipe is None:
        raise ConfigError("--diagram draws one recipe: name it, as in `recipes gpt --diagram`")
    if out is not None:
        check_new(out)


def show_diagram(loaded: LoadedRecipe, out: Path | None, as_json: bool) -> None:
    """Print a recipe's diagram, or write it to a file; its parts as JSON, which names the file."""
    from sublayer.diagram.figure import describe
    from sublayer.diagram.svg import draw_svg
    from sublayer.diagram.text import draw_text

    figure = describe(loaded)
    drawn = draw_text(figure)
    file = None
    if out is not None:
        write_plot(out, draw_svg(figure))
        file = str(resolved(out))

    def render(result: JsonObject) -> str:
        return drawn if result["file"] is None else f"diagram: {result['file']}"

    emit({**asdict(figure), "file": file}, as_json, render)
