"""``sublayer recipes``: what recipes there are, and what one resolves to."""

from typing import Annotated, Any

import typer

from sublayer.commands.shared.base import JsonObject, JsonOption, SettingsArgument, emit
from sublayer.config.fields.applicability import is_idle
from sublayer.config.fields.catalog import declaration, extra
from sublayer.config.fields.messages import show
from sublayer.config.fields.use import value_of
from sublayer.config.layering.layers import LoadedRecipe, load_recipe
from sublayer.config.layering.sources import read_toml, shipped_recipes
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError
from sublayer.tables import table

EXAMPLE = "sublayer recipes gpt model.d_ff=512"


def command(
    recipe: Annotated[
        str | None,
        typer.Argument(
            metavar="RECIPE", help="A recipe's name, a .toml file, or a run; none lists all."
        ),
    ] = None,
    settings: SettingsArgument = None,
    as_json: JsonOption = False,
) -> None:
    """List the recipes and studies, or show a recipe resolved, each value with the layer that it
    comes from.
    """
    if recipe is None:
        recipes = [_summary(load_recipe(name)) for name in shipped_recipes()]
        emit({"recipes": recipes, "studies": _studies()}, as_json, _list)
    elif any(study["name"] == recipe for study in _studies()):
        raise ConfigError(f"{recipe} is a study: `sublayer plan {recipe}` shows its arms")
    else:
        loaded = load_recipe(recipe, settings or [])
        emit({**_summary(loaded), "fields": _fields(loaded)}, as_json, _show)


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


def _list(result: JsonObject) -> str:
    recipes = []
    for recipe in result["recipes"]:
        recipes.append((recipe["name"], recipe["title"], recipe["cost"]))
    studies = []
    for study in result["studies"]:
        scales = ", ".join(study["scales"])
        studies.append((study["name"], study["title"], scales, study["source"]))
    parts = [
        table(["recipe", "what it is", "cost"], recipes),
        table(["study", "what it compares", "scales", "source"], studies),
        "a recipe is for train, plan and compare, a study for plan and compare",
    ]
    return "\n\n".join(parts)


def _show(result: JsonObject) -> str:
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
            lines.append(heading)
    lines += ["", table(["field", "value", "origin"], rows)]
    return "\n".join(lines)
