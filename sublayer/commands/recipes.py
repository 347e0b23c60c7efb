"""``sublayer recipes``: what recipes there are, and what one resolves to."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from sublayer.commands.shared import candidates
from sublayer.commands.shared.base import JsonObject, JsonOption, SettingsArgument, emit
from sublayer.commands.shared.diagram import check_diagram, show_diagram
from sublayer.config.fields.applicability import is_idle
from sublayer.config.fields.catalog import declaration, extra
from sublayer.config.fields.messages import show
from sublayer.config.fields.use import value_of
from sublayer.config.layering.groups import grouped_recipes, shipped_recipe
from sublayer.config.layering.layers import LoadedRecipe, load_recipe
from sublayer.config.layering.sources import read_toml, shipped_recipes
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError
from sublayer.system.terminal import entries, noted, paragraph, terminal_width
from sublayer.tables import table

EXAMPLE = "sublayer recipes modern --changed"
_NEXT = (
    "A recipe is for train, plan and compare, a study for plan and compare. What a recipe sets: "
    "`sublayer recipes NAME --changed`; what a study trains and takes: `sublayer plan NAME`."
)


def command(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE",
            help="A recipe's name, a .toml file, or a run; none lists all.",
            autocompletion=candidates.recipes,
        ),
    ] = None,
    settings: SettingsArgument = None,
    changed: Annotated[
        bool,
        typer.Option("--changed", help="Show only what the recipe and its bases set."),
    ] = False,
    diagram: Annotated[
        bool, typer.Option("--diagram", help="Draw the recipe's architecture instead.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", metavar="FILE.svg", help="Draw the diagram in a file; else in the terminal."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List the recipes and studies, or show all fields of a recipe, each with the recipe or rule
    that its value comes from.
    """
    check_diagram(recipe, out, is_asked=diagram, is_changed=changed)
    if recipe is None:
        if changed:
            raise ConfigError("--changed shows what a recipe sets: name one, such as modern")
        emit(list_shipped(), as_json, render_shipped)
    elif any(study["name"] == recipe for study in _studies()):
        raise ConfigError(f"{recipe} is a study: `sublayer plan {recipe}` shows its arms")
    elif diagram:
        show_diagram(load_recipe(recipe, settings or []), out, as_json)
    else:
        shown = show_recipe(load_recipe(recipe, settings or []), is_changed=changed)
        emit(shown, as_json, render_recipe)


def list_shipped() -> dict[str, Any]:
    """Return the shipped recipes and studies, with titles and costs, as JSON."""
    return {"recipes": _recipes(), "studies": _studies()}


def show_recipe(loaded: LoadedRecipe, *, is_changed: bool = False) -> dict[str, Any]:
    """Return each field of a recipe with its value and origin as JSON; only those that are set."""
    fields = _fields(loaded)
    if is_changed:
        fields = {key: field for key, field in fields.items() if _is_set(field)}
    return {**_summary(loaded), "fields": fields, "notes": list(loaded.notes)}


def _recipes() -> list[dict[str, Any]]:
    """Return what is said of every shipped recipe, by name."""
    recipes = []
    for name in shipped_recipes():
        said = asdict(shipped_recipe(name))
        del said["place"]
        recipes.append(said)
    return recipes


def _summary(loaded: LoadedRecipe) -> dict[str, Any]:
    recipe = loaded.recipe
    return {
        "name": loaded.name,
        "title": recipe.title,
        "source": recipe.source,
        "cost": recipe.cost,
    }


def _studies() -> list[dict[str, Any]]:
    from sublayer.study.definition import find_study, shipped_studies, study_scales

    studies = []
    for name in shipped_studies():
        path = find_study(name)
        if path is None:
            continue
        file = read_toml(path)
        title = str(file["title"])
        source = str(file["source"])
        scales = list(study_scales(name))
        studies.append({"name": name, "title": title, "source": source, "scales": scales})
    return studies


def _is_set(field: JsonObject) -> bool:
    """Return whether a layer gave a field its value."""
    origin = str(field["origin"])
    return origin != "default" and not origin.startswith("derived: ")


def _fields(loaded: LoadedRecipe) -> dict[str, dict[str, Any]]:
    rows = {}
    derived = _derived(loaded)
    for key, origin in loaded.origins.items():
        if "." not in key:
            continue
        value = value_of(key, loaded.recipe)
        field = declaration(key, _kind(key, loaded))
        rule = extra(field).get("derived")
        if value is None and rule:
            value = derived.get(key)
            origin = f"derived: {rule}"
        is_used = not is_idle(key, loaded.recipe)
        rows[key] = {"value": value, "origin": origin, "is_used": is_used}
    return rows


def _derived(loaded: LoadedRecipe) -> dict[str, Any]:
    # The vocabulary's size is the tokenizer's, which is not known before the text is read.
    recipe = loaded.recipe
    vocab_size = recipe.model.vocab_size or 1
    model = resolve_model(recipe.model, vocab_size=vocab_size, context=recipe.data.context)
    return {f"model.{name}": value for name, value in model if name != "vocab_size"}


def _kind(key: str, loaded: LoadedRecipe) -> str:
    """Return the kind of the table that a field stands in; empty where it has none."""
    table_name, _, _ = key.partition(".")
    section = getattr(loaded.recipe, table_name)
    return str(getattr(section, "kind", ""))


def render_shipped(result: JsonObject) -> str:
    """Format the recipes by group, and the studies with their scales."""
    # The groups hold what the result does, in the order in which it is read.
    parts: list[str] = []
    for group, recipes in grouped_recipes().items():
        rows = [(recipe.name, recipe.title) for recipe in recipes]
        if not parts:  # those to start with, of which one is chosen by what it takes
            rows = [(recipe.name, f"{recipe.title} ({recipe.cost})") for recipe in recipes]
        parts.append(f"{group}\n{entries(rows)}")
    studies = []
    for study in result["studies"]:
        scales = ", ".join(study["scales"])
        studies.append((study["name"], f"{study['title']} ({scales})"))
    parts.append(f"studies (and their scales)\n{entries(studies)}")
    parts.append(paragraph(_NEXT))
    return "\n\n".join(parts)


def render_recipe(result: JsonObject) -> str:
    """Format the fields of a recipe in a table."""
    rows = []
    for key, field in result["fields"].items():
        value, origin = field["value"], field["origin"]
        if value is None and origin == "default":
            continue
        if not field["is_used"]:
            origin += " (no effect)"
        shown = "?" if value is None else show(value)
        rows.append((key, shown, origin))
    lines = []
    for heading in (result["title"], result["source"], result["cost"]):
        if heading:
            lines.append(paragraph(heading))
    lines += ["", table(["field", "value", "origin"], rows, width=terminal_width())]
    lines += map(noted, result["notes"])
    return "\n".join(lines)
