"""``sublayer recipes``: the recipes and studies, and the resolved fields of one."""

from pathlib import Path
from typing import Annotated, Any

from sublayer.api.recipes import draw, list_recipes, recipe
from sublayer.cli.build import Json, Settings, client_of, emit, print_result
from sublayer.errors import ConfigError
from sublayer.options import Argument, Option

EXAMPLE = "sublayer recipes modern --changed"

Recipe = Annotated[
    str | None,
    Argument(
        "A recipe's name, a .toml file, or a run; none lists all.",
        metavar="RECIPE",
        complete="recipes",
    ),
]
Diagram = Annotated[bool, Option("Draw the recipe's architecture instead.")]
Out = Annotated[
    Path | None,
    Option("Draw the diagram in a file; else in the terminal.", metavar="FILE.svg"),
]


@client_of(recipe)
def command(
    options: dict[str, Any],
    source: Recipe = None,
    settings: Settings = (),
    diagram: Diagram = False,
    out: Out = None,
    as_json: Json = False,
) -> None:
    """List the recipes and studies, or show all fields of a recipe, each with the recipe or rule
    that its value comes from.
    """
    if out is not None and not diagram:
        raise ConfigError("--out is the file of a diagram: give --diagram too")
    if diagram and options["changed"]:
        raise ConfigError("--diagram draws a recipe, and --changed lists fields: leave out one")
    if diagram and source is None:
        raise ConfigError("--diagram draws one recipe: name it, as in `recipes gpt --diagram`")
    if source is None:
        if options["changed"]:
            raise ConfigError("--changed shows what a recipe sets: name one, such as modern")
        print_result(list_recipes(), as_json)
    elif diagram:
        drawn = draw(source, settings, out=out)
        text = str(drawn) if out is None else f"diagram: {drawn['file']}"
        emit(drawn.to_dict(), as_json, lambda _: text)
    else:
        print_result(recipe(source, settings, **options), as_json)
