"""Layers of settings from recipes, runs and command lines, merged with their origins."""

import datetime
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sublayer.config.data import TRAINED_TOKENIZERS
from sublayer.config.messages import BOUNDS, choice_error, field_problem
from sublayer.config.plugins import LISTED, check_listed
from sublayer.config.recipe import (
    RENAMED,
    TABLES,
    Recipe,
    current_name,
    declaration,
    declarations,
    default_kind,
    is_union,
    nearest_key,
    with_current_names,
)
from sublayer.config.table import LONGEST_TEXT, text_problem
from sublayer.config.train import BATCHES, LENGTHS
from sublayer.errors import ConfigError, nearest, nearest_hint
from sublayer.files import parsing
from sublayer.files.storage import describe_absence, describe_runs_within, resolved
from sublayer.values import LONGEST_VALUE, is_frame, plain, show


@dataclass(frozen=True)
class Layer:
    """Settings of one source, by ``table.field`` or by a heading such as ``title``."""

    origin: str
    values: Mapping[str, Any]
    is_complete: bool = False
    """Whether the layer is the recipe of a run, which replaces all layers below."""
    note: str = ""
    """The current name of its recipe, in a sentence, if it was named by a former one."""

    def check_keys(self) -> None:
        """Raise ConfigError for a key that no table has: its new name, a near one, the tables."""
        for key in self.values:
            if declarations(key):
                continue
            name = key if key.isprintable() and len(key) <= LONGEST_VALUE else show(key)
            table, _, _ = key.partition(".")
            hint = f"the tables are {', '.join(TABLES)}"
            if near := nearest_key(key):
                hint = f"did you mean {near}?"
            elif table in TABLES:
                hint = f"`sublayer fields {table}` lists the fields of [{table}]"
            fault = f"{name} is not a field: {hint}"
            if key in RENAMED:
                fault = f"{name} is now called {RENAMED[key]}: write the new name"
            raise ConfigError(fault + where(self.origin))


@dataclass(frozen=True)
class Setting:
    """A value and the layer that set it."""

    value: Any
    origin: str
    restores: bool = False
    """Whether the value restores a default that an earlier layer had changed.

    It restores nothing where another field of its layer drops the earlier value.
    """


EXCLUSIVE: tuple[tuple[str, ...], ...] = (
    tuple(f"train.{name}" for name in LENGTHS),
    tuple(f"train.{name}" for name in BATCHES),
    ("optimizer.warmup_steps", "optimizer.warmup_share"),
    ("data.vocab_size", "data.merges"),
)
"""Groups of fields of which a recipe has only one: two in one layer are an error, while a later
layer replaces the field of an earlier one."""

_TEXTS = ("data.path", "data.corpus", "data.source_path", "data.target_path")

REPLACES: dict[str, tuple[str, ...]] = {
    "data.path": _TEXTS,
    "data.corpus": _TEXTS,
    "data.source_path": ("data.path", "data.corpus"),
    "data.target_path": ("data.path", "data.corpus"),
    "init.run": (
        "data.tokenizer",
        "data.vocab_size",
        "data.merges",
        "data.normalization",
        "data.sentinels",
    ),
}
"""Fields of earlier layers that a field drops; within one layer they may be combined.

Settings that a later layer makes ineffective are dropped, with a note, by ``settle`` of
``load.py``.
"""


def merge(layers: Sequence[Layer]) -> dict[str, Setting]:
    """Merge layers, each over the previous ones, without the settings that it replaces.

    Raises ConfigError for an unknown key, and for fields of one layer that exclude each other.
    """
    settings: dict[str, Setting] = {}
    for layer in layers:
        layer.check_keys()
        for group in EXCLUSIVE:
            conflicts = [
                f"{key} = {show(layer.values[key])}" for key in group if key in layer.values
            ]
            if len(conflicts) > 1:
                raise ConfigError(
                    f"{' and '.join(conflicts)} exclude each other: give one of {', '.join(group)}"
                    f"{where(layer.origin)}"
                )
        dropped: set[str] = set()  # fields, set or not
        for group in EXCLUSIVE:
            if not layer.values.keys().isdisjoint(group):
                dropped.update(name for name in group if name not in layer.values)
        for key, value in layer.values.items():
            dropped.update(name for name in REPLACES.get(key, ()) if name != key)
            # A tokenizer that is not trained has a fixed size.
            if key == "data.tokenizer" and value not in TRAINED_TOKENIZERS:
                dropped.add("data.vocab_size")
            table, _, name = key.partition(".")
            if name != "kind" or not is_union(table):
                continue
            old = chosen_kind(table, settings)
            new = chosen_kind(table, {key: Setting(value, layer.origin)})
            for earlier in settings:
                by_kind = declarations(earlier)
                is_same = old == new or (
                    {old, new} <= by_kind.keys() and by_kind[old].default == by_kind[new].default
                )
                if earlier.startswith(f"{table}.") and earlier != key and not is_same:
                    dropped.add(earlier)
        settings = {key: setting for key, setting in settings.items() if key not in dropped}
        for key, value in layer.values.items():
            replaced = settings.get(key)
            was_changed = replaced is not None and (replaced.restores or replaced.value != value)
            is_default = value in [field.default for field in declarations(key).values()]
            settings[key] = Setting(value, layer.origin, restores=is_default and was_changed)
    return settings


def chosen_kind(table: str, settings: Mapping[str, Setting]) -> str:
    """Return the kind that the settings choose for a table; empty if the table has no kinds.

    Raises ConfigError for an unknown kind.
    """
    key = f"{table}.kind"
    if not is_union(table) or key not in settings:
        return default_kind(table)
    chosen = settings[key]
    if chosen.value not in tuple(TABLES[table]):
        raise ConfigError(choice_error(key, chosen.value, TABLES[table]) + where(chosen.origin))
    return str(chosen.value)


def where(origin: str) -> str:
    """Format the origin of a value, for the end of a message.

    It is empty for the command line, which the user sees.
    """
    return f" ({origin})" if origin.startswith(("recipe ", "run ")) else ""


def build(settings: Mapping[str, Setting]) -> Recipe:
    """Build the recipe that the settings describe; unset fields have their defaults.

    Raises ConfigError, in one line with field, value and rule, for the first invalid value.
    """
    # Pydantic selects the member of a union by its kind, which must be given even if unset.
    tables: dict[str, Any] = {
        table: {"kind": chosen_kind(table, settings)} if is_union(table) else {} for table in TABLES
    }
    for key, setting in settings.items():
        value, origin = setting.value, where(setting.origin)
        if value == "" and (key.endswith("path") or key == "init.run"):
            raise ConfigError(f"{key} is empty: name a file or a folder, or leave it out{origin}")
        for text in value if isinstance(value, list | tuple | Mapping) else [value]:
            if isinstance(text, str) and (problem := text_problem(text)):
                raise ConfigError(f"{key} = {show(text)} {problem}{origin}")
        table, _, name = key.rpartition(".")
        kinds = declarations(key)
        kind = tables[table].get("kind", "") if table and is_union(table) else ""
        if kind not in kinds:
            raise ConfigError(
                f"{key} is a field of {table}.kind = {' or '.join(kinds)}, not of {kind}{origin}"
            )
        (tables[table] if table else tables)[name] = value
    try:
        return Recipe.model_validate(tables)
    except ValidationError as error:
        first, *others = error.errors(include_url=False)
    # A number beyond the bounds of a field that also takes names has an error of each.
    bounded = (each for each in others if not BOUNDS.keys().isdisjoint(each.get("ctx", ())))
    detail = next((each for each in bounded if each["loc"][:-1] == first["loc"][:-1]), first)
    # The location has the kind of a union between table and field.
    table, *rest = map(str, detail["loc"])
    kind = tables[table]["kind"] if table in TABLES and is_union(table) else ""
    if kind and rest[0] == kind:  # a plugin's table is validated by itself
        rest.pop(0)
    key = f"{table}.{rest[0]}" if rest else table
    setting, annotation = settings[key], declaration(key, kind).annotation
    raise ConfigError(field_problem(detail, key, annotation, setting.value) + where(setting.origin))


def override_layer(overrides: Sequence[str] | Mapping[str, Any], origin: str) -> Layer:
    """Build a layer from ``key=value`` texts or from a mapping of values.

    The value in a text is TOML, or else a bare text. Raises ConfigError for a text without ``=``,
    and for a key given twice.
    """
    if isinstance(overrides, str) or not isinstance(overrides, Iterable):
        raise ConfigError(
            f"the settings {show(overrides)} are neither a mapping nor a list: give a mapping, "
            'such as {"train.steps": 100}, or a list of texts, such as ["train.steps=100"]'
        )
    items = overrides.items() if isinstance(overrides, Mapping) else map(_parse, overrides)
    values: dict[str, Any] = {}
    for key, value in items:
        if not isinstance(key, str):
            raise ConfigError(
                f"the key {show(key)} is of type {type(key).__name__}: name a field, as text"
            )
        if isinstance(value, set | frozenset) or is_frame(value):
            raise ConfigError(
                f"{key} has a value of type {type(value).__name__}: give a number, a text, a list "
                "(a set has no order) or a table; write rows to a file (to_csv) and name the file"
            )
        if key in values:
            raise ConfigError(f"{key} is given twice: {show(values[key])} and {show(value)}")
        values[key] = plain(value)
    return Layer(origin, values)


def _parse(text: Any) -> tuple[str, Any]:
    key, equals, written = text.partition("=") if isinstance(text, str) else ("", "", "")
    if not equals or not key.strip():
        raise ConfigError(f"{show(text)} is not a setting: write key=value, such as model.d_ff=512")
    if isinstance(text, Unset):
        return key, None
    value = parsing.parse_toml_value(written) if len(written) <= LONGEST_TEXT else written
    # No field takes a date or a time, so that such a text is a name.
    is_time = isinstance(value, datetime.date | datetime.time)
    return key.strip(), written if is_time else value


class Unset(str):
    """Text of a setting ``key=unset``, whose value None cannot be written as text."""


def as_setting(value: Any) -> str:
    """Write a value as the text after ``key=`` that ``override_layer`` reads as this value."""
    value = plain(value)
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=True)
    except TypeError:
        kind = type(value).__name__
        raise ConfigError(f"{show(value)} is {kind}, which is not a value of any field") from None


SHIPPED = Path(__file__).parents[1] / "recipes"
FORMER_NAMES = {"modern": "llama-2023"}
"""Former names of shipped recipes, by which they are still found."""
RUN_RECIPE = "recipe.toml"
FILE_ONLY = ("extends", "derived", "lengthened", "plugins", "group", "place")
"""Keys of a recipe file besides the recipe itself."""
_RULES = "data.keep_accents"


@dataclass(frozen=True)
class RecipeSource:
    """Recipe file, and its names."""

    path: Path
    name: str
    """Name of its runs."""
    origin: str
    """Name in messages: ``recipe gpt``, ``recipe ./x.toml`` or ``run runs/a``."""
    run: Path | None = None
    """Folder of the named run, if a run was named."""
    note: str = ""
    """The note of its layer."""

    def read_layers(self) -> list[Layer]:
        """Read a recipe and the recipes that it extends, the base first.

        Raises ConfigError for a file that is not TOML, and for recipes that extend each other in a
        circle.
        """
        layers: list[Layer] = []
        seen: list[Path] = []
        next_source: RecipeSource | None = self
        while next_source:
            origin, path = next_source.origin, resolved(next_source.path)
            if path in seen:
                raise ConfigError(
                    f"extends = {show(next_source.name)} forms a circle of recipes ({self.origin})"
                )
            seen.append(path)
            table = read_toml(next_source.path)
            layer = replace(layer_of(table, origin), note=next_source.note)
            if next_source is not self:
                # Title, source and cost of a recipe do not apply to recipes that extend it.
                fields = {key: value for key, value in layer.values.items() if "." in key}
                layer = replace(layer, values=fields)
            layers.insert(0, layer)
            base = table.get("extends")
            if base is not None and not isinstance(base, str):
                raise ConfigError(f"extends = {show(base)} is not the name of a recipe ({origin})")
            try:
                folder = next_source.path.parent
                next_source = None if base is None else find_source(base, folder)
            except ConfigError as error:
                raise ConfigError(f"extends: {error} ({origin})") from None
        return layers


def shipped_recipes() -> tuple[str, ...]:
    """Return the names of the recipes that come with the package, sorted."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def find_shipped(source: str) -> str | None:
    """Return the name of a shipped recipe, given that name or a former one; else None."""
    name = FORMER_NAMES.get(source, source)
    return name if name in shipped_recipes() else None


def find_source(source: str, folder: Path = Path()) -> RecipeSource:
    """Find a recipe by current or former shipped name, path of a .toml file, or folder of a run.

    Paths are relative to ``folder``. Raises ConfigError, with the most similar shipped name, where
    there is no such recipe.
    """
    if current := find_shipped(source):
        note = "" if current == source else f"the recipe {source} is now called {current}"
        return RecipeSource(SHIPPED / f"{current}.toml", source, f"recipe {current}", note=note)
    path = folder / source
    if source and path.is_dir():
        if not (path / RUN_RECIPE).is_file():
            raise ConfigError(
                f"{source} is a folder without a {RUN_RECIPE}: name a run, a recipe file or a "
                f"recipe{describe_runs_within(path)}"
            )
        return RecipeSource(path / RUN_RECIPE, resolved(path).name, f"run {source}", run=path)
    if path.is_file():
        is_in_run = path.name == RUN_RECIPE
        name = resolved(path).parent.name if is_in_run else path.stem
        return RecipeSource(path, name, f"recipe {source}")
    if "=" in source:
        raise ConfigError(
            f"{show(source)} is a setting: name a recipe before it, such as gpt {source}"
        )
    hint = "`sublayer recipes` and `sublayer runs` list them"
    if near := nearest(source, shipped_recipes()):
        hint = f"did you mean {near}?"
    raise ConfigError(f"{show(source)} is not a recipe, a .toml file or a run: {hint}")


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; raise ConfigError, with the line, if it is invalid or missing."""
    try:
        return parsing.read_toml(path, ConfigError)
    except FileNotFoundError:
        raise ConfigError(f"{describe_absence(path)}: name another file") from None


def layer_of(table: Mapping[str, Any], origin: str) -> Layer:
    """Flatten a recipe's tables into a layer.

    From a run's recipe, which lists ``derived`` fields, derived values and values equal to their
    defaults are left out, so that they are derived anew. Fields get their current names. Raises
    ConfigError for an unknown table, and for a plugin that is not loaded.
    """
    check_listed(table.get(LISTED), origin)
    values: dict[str, Any] = {}
    for name, content in table.items():
        if name in TABLES and isinstance(content, dict):
            values |= {f"{name}.{key}": value for key, value in content.items()}
        elif name in TABLES or isinstance(content, dict):
            hint = f": write [{name}]" if name in TABLES else nearest_hint(name, TABLES)
            raise ConfigError(
                f"{name} = {show(content)} is not a table of a recipe: the tables are "
                f"{', '.join(f'[{heading}]' for heading in TABLES)}{hint} ({origin})"
            )
        elif name not in FILE_ONLY:
            values[name] = content
    if "derived" not in table:
        return Layer(origin, values)
    listed = table["derived"]
    if not isinstance(listed, list):
        raise ConfigError(f"derived = {show(listed)} is not a list of fields ({origin})")
    derived = [current_name(key) for key in listed if isinstance(key, str)]
    values, settings = with_current_names(values), {}
    # Runs from before data.keep_accents always wrote lowercase = false, even if unset.
    has_rules = _RULES in derived or _RULES in values
    for key, written in values.items():
        value = tuple(written) if isinstance(written, list) else written
        heading, _, name = key.partition(".")
        has_kinds = heading in TABLES and is_union(heading)
        kind = str(values.get(f"{heading}.kind", default_kind(heading))) if has_kinds else ""
        info = declarations(key).get(kind)
        # The default of a union's ``kind`` is the name of each kind.
        is_selector = has_kinds and name == "kind"
        is_default = info is not None and value == info.default and not is_selector
        is_told = key == "data.lowercase" and has_rules
        if key not in derived and (is_told or not is_default):
            settings[key] = value
    return Layer(origin, settings, is_complete=True)


OTHERS = "others"
"""Group of a recipe without a group, whose bases have none either."""


@dataclass(frozen=True)
class ShippedRecipe:
    """Heading of a shipped recipe's file."""

    name: str
    title: str
    source: str
    cost: str
    group: str
    place: int
    """Place in its group, lowest first; equal places are sorted by name."""


def grouped_recipes() -> dict[str, list[ShippedRecipe]]:
    """Return the shipped recipes by group, in the order of display.

    A recipe is in the group of the recipe that it extends, unless it names another. The group with
    the lowest place comes first; groups without a place follow, sorted by name.
    """
    recipes = map(shipped_recipe, shipped_recipes())
    groups: dict[str, list[ShippedRecipe]] = {}
    for recipe in sorted(recipes, key=lambda shipped: (shipped.place, shipped.group, shipped.name)):
        groups.setdefault(recipe.group, []).append(recipe)
    return groups


def shipped_recipe(name: str) -> ShippedRecipe:
    """Read the description of a shipped recipe; raise ConfigError if its file is not TOML."""
    content = read_toml(find_source(name).path)
    placed = content
    while "group" not in placed and "extends" in placed:
        placed = read_toml(find_source(str(placed["extends"])).path)
    return ShippedRecipe(
        name=name,
        title=str(content["title"]),
        source=str(content["source"]),
        cost=str(content["cost"]),
        group=str(placed.get("group", OTHERS)),
        place=int(content.get("place", placed.get("place", sys.maxsize))),
    )
