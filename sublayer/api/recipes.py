"""Recipes and studies: listed, resolved, drawn."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any

from sublayer.api.arguments import Overrides, as_path, as_text
from sublayer.api.results import Result, Shown, check_new, figure, html_table, page, write_plot
from sublayer.config.catalog import declaration, extra
from sublayer.config.load import LoadedRecipe, load_recipe
from sublayer.config.messages import show
from sublayer.config.resolve_model import resolve_model
from sublayer.config.rules import is_idle, value_of
from sublayer.config.sources import grouped_recipes, read_toml, shipped_recipe, shipped_recipes
from sublayer.errors import ConfigError
from sublayer.files.paths import resolved
from sublayer.options import Option, PathText, checked
from sublayer.system.terminal import entries, noted, paragraph, terminal_width
from sublayer.tables import table

_NEXT = (
    "A recipe is for train, plan and compare, a study for plan and compare. What a recipe sets: "
    "`sublayer recipes NAME --changed`; what a study trains and takes: `sublayer plan NAME`."
)


class Listing(Result):
    """The recipes and studies that there are."""

    def _repr_html_(self) -> str:
        recipes = [[row["name"], row["title"], row["cost"]] for row in self["recipes"]]
        studies = [[row["name"], row["title"]] for row in self["studies"]]
        return page(
            html_table(["recipe", "title", "cost"], recipes),
            html_table(["study", "title"], studies),
        )


def list_recipes() -> Listing:
    """List the recipes and studies that there are, with titles and costs."""
    from sublayer.study.definition import find_study, shipped_studies, study_scales

    recipes = []
    for name in shipped_recipes():
        described = asdict(shipped_recipe(name))
        del described["place"]
        recipes.append(described)
    studies = []
    for name in shipped_studies():
        if path := find_study(name):
            file = read_toml(path)
            about = {"title": str(file["title"]), "source": str(file["source"])}
            studies.append({"name": name, **about, "scales": list(study_scales(name))})
    return Listing({"recipes": recipes, "studies": studies}, _render_listing)


def _render_listing(result: Mapping[str, Any]) -> str:
    # The groups hold the recipes of the result, in the order in which they are read.
    parts: list[str] = []
    for group, recipes in grouped_recipes().items():
        rows = [(recipe.name, recipe.title) for recipe in recipes]
        if not parts:  # those to start with, of which one is chosen by its cost
            rows = [(recipe.name, f"{recipe.title} ({recipe.cost})") for recipe in recipes]
        parts.append(f"{group}\n{entries(rows)}")
    studies = [
        (study["name"], f"{study['title']} ({', '.join(study['scales'])})")
        for study in result["studies"]
    ]
    parts.append(f"studies (and their scales)\n{entries(studies)}")
    return "\n\n".join([*parts, paragraph(_NEXT)])


@checked
def recipe(
    source: PathText,
    overrides: Overrides | None = None,
    *,
    changed: Annotated[bool, Option("Show only what the recipe and its bases set.")] = False,
) -> Result:
    """Resolve a recipe: of each field its value and where that comes from.

    ``changed`` leaves out defaults and derived values. Raises ConfigError for settings without
    meaning or effect.
    """
    loaded = _loaded(source, overrides)
    fields = _fields(loaded)
    if changed:
        fields = {
            key: field
            for key, field in fields.items()
            if field["origin"] != "default" and not field["origin"].startswith("derived: ")
        }
    of_recipe = loaded.recipe
    about = {"title": of_recipe.title, "source": of_recipe.source, "cost": of_recipe.cost}
    notes = list(loaded.notes)
    return Result({"name": loaded.name, **about, "fields": fields, "notes": notes}, _render_recipe)


def _loaded(source: PathText, overrides: Overrides | None) -> LoadedRecipe:
    """Load a recipe; raise ConfigError for a study, which has several."""
    from sublayer.study.definition import shipped_studies

    name = as_text(source, "a recipe")
    if name in shipped_studies():
        raise ConfigError(f"{name} is a study: `sublayer plan {name}` shows its arms")
    return load_recipe(name, overrides or {})


def _fields(loaded: LoadedRecipe) -> dict[str, dict[str, Any]]:
    given = loaded.recipe
    # The vocabulary's size is the tokenizer's, which is not known before the text is read.
    vocab_size, context = given.model.vocab_size or 1, given.data.context
    derived = dict(resolve_model(given.model, vocab_size=vocab_size, context=context))
    fields = {}
    for key, origin in loaded.origins.items():
        heading, _, name = key.partition(".")
        if not name:
            continue
        value = value_of(key, given)
        kind = str(getattr(getattr(given, heading), "kind", ""))
        rule = extra(declaration(key, kind)).get("derived")
        if value is None and rule:
            if heading == "model" and name != "vocab_size":
                value = derived.get(name)
            origin = f"derived: {rule}"
        fields[key] = {"value": value, "origin": origin, "is_used": not is_idle(key, given)}
    return fields


def _render_recipe(result: Mapping[str, Any]) -> str:
    rows = []
    for key, field in result["fields"].items():
        value, origin = field["value"], field["origin"]
        if value is not None or origin != "default":
            idle = "" if field["is_used"] else " (no effect)"
            rows.append((key, "?" if value is None else show(value), f"{origin}{idle}"))
    headings = (result["title"], result["source"], result["cost"])
    shown = table(["field", "value", "origin"], rows, width=terminal_width())
    lines = [*(paragraph(heading) for heading in headings if heading), "", shown]
    return "\n".join([*lines, *map(noted, result["notes"])])


@dataclass(frozen=True, repr=False)
class Diagram(Result):
    """The drawn architecture of a recipe; ``svg`` is the picture."""

    svg: str
    """The picture, as the text of an SVG file."""

    def _repr_html_(self) -> str:
        return figure(self.svg)


@checked
def draw(
    source: PathText,
    overrides: Overrides | None = None,
    *,
    out: PathText | None = None,
) -> Diagram:
    """Draw the architecture of a recipe; ``out`` is an SVG file that is not there yet.

    Its ``repr`` is the drawing in text, its ``svg`` the picture. Raises ConfigError.
    """
    from sublayer.diagram.figure import describe
    from sublayer.diagram.svg import draw_svg
    from sublayer.diagram.text import draw_text

    file = None if out is None else as_path(out)
    if file is not None:
        check_new(file)
    shown = describe(_loaded(source, overrides))
    svg = draw_svg(shown)
    if file is not None:
        write_plot(file, svg)
    found = {**asdict(shown), "file": None if file is None else str(resolved(file))}
    return Diagram(found, Shown(draw_text(shown)), svg)
