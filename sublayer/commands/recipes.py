"""``sublayer recipes``: what recipes there are, and what one resolves to."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from sublayer.commands.base import JsonOption, SettingsArgument, emit, table
from sublayer.config.catalog import declaration, extra
from sublayer.config.idle import is_idle, value_of
from sublayer.config.layers import LoadedRecipe, load_recipe
from sublayer.config.resolve import resolve_model
from sublayer.config.sources import read_toml, shipped_recipes
from sublayer.config.wording import show
from sublayer.errors import ConfigError

EXAMPLE = "sublayer recipes gpt model.d_ff=512"


def command(
    recipe: Annotated[
        str | None, typer.Argument(metavar="RECIPE", help="A recipe's name, a .toml file, or a run; none lists all.")
    ] = None,
    settings: SettingsArgument = None,
    as_json: JsonOption = False,
) -> None:
    """List the recipes and studies, or show a recipe resolved, each value with the layer that it comes from."""
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
    return {"name": loaded.name, "title": recipe.title, "source": recipe.source, "cost": recipe.cost}


def _studies() -> list[dict[str, str]]:
    from sublayer.study.definition import find_study, shipped_studies

    found = ((name, find_study(name)) for name in shipped_studies())
    files = [(name, read_toml(path)) for name, path in found if path is not None]
    return [{"name": name, "title": str(file["title"]), "source": str(file["source"])} for name, file in files]


def _fields(loaded: LoadedRecipe) -> dict[str, dict[str, Any]]:
    rows = {}
    derived = _derived(loaded)
    for key, origin in loaded.origins.items():
        if "." not in key:
            continue
        value = value_of(key, loaded.recipe)
        rule = extra(declaration(key, _kind(key, loaded))).get("derived")
        if value is None and rule:
            value, origin = derived.get(key), f"derived: {rule}"
        rows[key] = {"value": value, "origin": origin, "is_used": not is_idle(key, loaded.recipe)}
    return rows


def _derived(loaded: LoadedRecipe) -> dict[str, Any]:
    # The vocabulary's size is the tokenizer's, which is not known before the text is read.
    recipe = loaded.recipe
    model = resolve_model(recipe.model, vocab_size=recipe.model.vocab_size or 1, context=recipe.data.context)
    return {f"model.{name}": value for name, value in model if name != "vocab_size"}


def _kind(key: str, loaded: LoadedRecipe) -> str:
    return str(getattr(getattr(loaded.recipe, key.partition(".")[0]), "kind", ""))


def _list(result: Mapping[str, Any]) -> str:
    rows = [(recipe["name"], recipe["title"], recipe["cost"]) for recipe in result["recipes"]]
    studies = [(study["name"], study["title"], study["source"]) for study in result["studies"]]
    return "\n\n".join(
        [
            table(["recipe", "what it is", "cost"], rows),
            table(["study", "what it compares", "source"], studies),
            "a recipe is for train, plan and compare, a study for plan and compare",
        ]
    )


def _show(result: Mapping[str, Any]) -> str:
    rows = []
    for key, field in result["fields"].items():
        if field["value"] is None and field["origin"] == "default":
            continue
        value = "?" if field["value"] is None else show(field["value"])
        rows.append((key, value, field["origin"] + ("" if field["is_used"] else " (no effect)")))
    headings = "\n".join(result[name] for name in ("title", "source", "cost") if result[name])
    return f"{headings}\n\n{table(['field', 'value', 'origin'], rows)}"
