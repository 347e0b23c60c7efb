"""Layers of settings, merged with the origin of each value and built into a recipe."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from sublayer.config.catalog import (
    RENAMED,
    TABLES,
    declaration,
    declarations,
    default_kind,
    is_union,
    nearest_key,
)
from sublayer.config.limits import text_problem
from sublayer.config.messages import (
    LONGEST_VALUE,
    choice_error,
    field_problem,
    show,
)
from sublayer.config.recipe import Recipe
from sublayer.config.texts import TRAINED_TOKENIZERS
from sublayer.config.train import BATCHES, LENGTHS
from sublayer.errors import ConfigError


def unknown_field(key: str) -> str:
    """Format the message for a key that no table has: its new name, a near one, where to look."""
    name = key if key.isprintable() and len(key) <= LONGEST_VALUE else show(key)
    if key in RENAMED:
        return f"{name} is now called {RENAMED[key]}: write that"
    table, _, _ = key.partition(".")
    hint = f"the tables are {', '.join(TABLES)}"
    if near := nearest_key(key):
        hint = f"did you mean {near}?"
    elif table in TABLES:
        hint = f"`sublayer fields {table}` lists those of [{table}]"
    return f"{name} is not a field: {hint}"


@dataclass(frozen=True)
class Layer:
    """Settings of one source: ``table.field`` (or a heading such as ``title``) to its value."""

    origin: str
    values: Mapping[str, Any]
    is_complete: bool = False
    """True for the recipe of a run, which leaves nothing to layers below."""


@dataclass(frozen=True)
class Setting:
    """A value and the layer that set it."""

    value: Any
    origin: str
    restores: bool = False
    """True where the value is a default that an earlier layer had changed."""


EXCLUSIVE: tuple[tuple[str, ...], ...] = (
    tuple(f"train.{name}" for name in LENGTHS),
    tuple(f"train.{name}" for name in BATCHES),
    ("optimizer.warmup_steps", "optimizer.warmup_share"),
    ("data.vocab_size", "data.merges"),
)
"""Fields of which a recipe has one; two in one layer are an error, a later layer replaces."""

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
"""Fields of earlier layers that a field drops; in one layer they stand together.

Settings that a later layer makes idle are dropped where layers settle, with a note (``load.py``).
"""


def merge(layers: Sequence[Layer]) -> dict[str, Setting]:
    """Merge layers, each over those before it, without the settings that it replaces.

    Raises ConfigError for a key that no table has, and for fields of one layer that exclude each
    other.
    """
    settings: dict[str, Setting] = {}
    for layer in layers:
        check_keys(layer)
        for group in EXCLUSIVE:
            given = [f"{key} = {show(layer.values[key])}" for key in group if key in layer.values]
            if len(given) > 1:
                raise ConfigError(
                    f"{' and '.join(given)} exclude each other: give one of {', '.join(group)}"
                    f"{where(layer.origin)}"
                )
        before, dropped = settings, _replaced(layer, settings)
        settings = {key: setting for key, setting in before.items() if key not in dropped}
        for key, value in layer.values.items():
            earlier = before.get(key)
            was_changed = earlier is not None and (earlier.restores or earlier.value != value)
            is_default = value in [field.default for field in declarations(key).values()]
            settings[key] = Setting(value, layer.origin, restores=is_default and was_changed)
    return settings


def chosen_kind(table: str, settings: Mapping[str, Setting]) -> str:
    """Return the kind that the settings choose for a table; empty where the table has no kinds.

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
    """Format where a value was set, for the end of a message.

    Empty for the command line, which the user sees.
    """
    return f" ({origin})" if origin.startswith(("recipe ", "run ")) else ""


def check_keys(layer: Layer) -> None:
    """Raise ConfigError for a key that no table has, with the one that was probably meant."""
    for key in layer.values:
        if not declarations(key):
            raise ConfigError(unknown_field(key) + where(layer.origin))


def _replaced(layer: Layer, settings: Mapping[str, Setting]) -> set[str]:
    """Return the keys of earlier settings that a layer drops, whether they are set or not."""
    dropped: set[str] = set()
    for group in EXCLUSIVE:
        if not layer.values.keys().isdisjoint(group):
            dropped.update(group)
    for key, value in layer.values.items():
        dropped.update(REPLACES.get(key, ()))
        # A tokenizer that is not trained has the size that it has.
        if key == "data.tokenizer" and value not in TRAINED_TOKENIZERS:
            dropped.add("data.vocab_size")
        table, _, name = key.partition(".")
        if name == "kind" and is_union(table):
            old, new = (
                chosen_kind(table, settings),
                chosen_kind(table, {key: Setting(value, layer.origin)}),
            )
            earlier = [prev for prev in settings if prev.startswith(f"{table}.") and prev != key]
            dropped.update(prev for prev in earlier if not _means_the_same(prev, old, new))
    return dropped


def _means_the_same(key: str, old: str, new: str) -> bool:
    """Return whether tables of both kinds have the field, with the same default."""
    by_kind = declarations(key)
    has_both = old in by_kind and new in by_kind
    return old == new or (has_both and bool(by_kind[old].default == by_kind[new].default))


def build(settings: Mapping[str, Setting]) -> Recipe:
    """Build the recipe that the settings describe; fields that no layer set have their defaults.

    Raises ConfigError, in one line with field, value and rule, for the first value that its field
    does not take.
    """
    # Pydantic tells the members of a union by their kind, also where no layer set it.
    tables: dict[str, Any] = {
        table: {"kind": chosen_kind(table, settings)} if is_union(table) else {} for table in TABLES
    }
    for key, setting in settings.items():
        value, origin = setting.value, where(setting.origin)
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
        detail = error.errors(include_url=False)[0]
    # The location names a union's kind between table and field.
    table, *rest = map(str, detail["loc"])
    kind = rest.pop(0) if table in TABLES and is_union(table) else ""
    key = f"{table}.{rest[0]}" if rest else table
    setting, annotation = settings[key], declaration(key, kind).annotation
    raise ConfigError(field_problem(detail, key, annotation, setting.value) + where(setting.origin))
