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
    choices_of,
    is_choice,
    rule_in_words,
    show,
    type_in_words,
)
from sublayer.config.recipe import Recipe
from sublayer.config.texts import TRAINED_TOKENIZERS
from sublayer.config.train import BATCHES, LENGTHS
from sublayer.errors import ConfigError
from sublayer.nearest import nearest


def unknown_field(key: str) -> str:
    """Format the message for a key that no table has: its new name, a near one, where to look."""
    name = key if key.isprintable() and len(key) <= LONGEST_VALUE else show(key)
    if key in RENAMED:
        return f"{name} is now called {RENAMED[key]}: write that"
    near = nearest_key(key)
    if near:
        return f"{name} is not a field: did you mean {near}?"
    table, _, _ = key.partition(".")
    if table in TABLES:
        return f"{name} is not a field: `sublayer fields {table}` lists those of [{table}]"
    return f"{name} is not a field: the tables are {', '.join(TABLES)}"


def unknown_table(name: str) -> str:
    """Format the message for a heading that is no table of a recipe."""
    near = nearest(name, TABLES)
    hint = f"did you mean [{near}]?" if near else f"the tables are {', '.join(TABLES)}"
    return f"[{name}] is not a table of a recipe: {hint}"


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
        _check_layer(layer)
        before = dict(settings)
        for key in _replaced(layer, settings):
            settings.pop(key, None)
        for key in layer.values:
            earlier = before.get(key)
            settings[key] = _setting(key, layer, earlier)
    return settings


def chosen_kind(table: str, settings: Mapping[str, Setting]) -> str:
    """Return the kind that the settings choose for a table; empty where the table has no kinds.

    Raises ConfigError for an unknown kind.
    """
    key = f"{table}.kind"
    if not is_union(table) or key not in settings:
        return default_kind(table)
    chosen = settings[key]
    kinds = tuple(TABLES[table])
    if chosen.value not in kinds:
        raise ConfigError(choice_error(key, chosen.value, kinds) + where(chosen.origin))
    return str(chosen.value)


def where(origin: str) -> str:
    """Format where a value was set, for the end of a message.

    Empty for the command line, which the user sees.
    """
    is_file = origin.startswith(("recipe ", "run "))
    return f" ({origin})" if is_file else ""


def _setting(key: str, layer: Layer, earlier: Setting | None) -> Setting:
    value = layer.values[key]
    if earlier is None:
        return Setting(value, layer.origin)
    defaults = [declared.default for declared in declarations(key).values()]
    is_default = value in defaults
    was_changed = earlier.restores or earlier.value != value
    return Setting(value, layer.origin, restores=is_default and was_changed)


def check_keys(layer: Layer) -> None:
    """Raise ConfigError for a key that no table has, with the one that was probably meant."""
    for key in layer.values:
        if not declarations(key):
            raise ConfigError(unknown_field(key) + where(layer.origin))


def _check_layer(layer: Layer) -> None:
    check_keys(layer)
    for group in EXCLUSIVE:
        given = [f"{key} = {show(layer.values[key])}" for key in group if key in layer.values]
        if len(given) > 1:
            raise ConfigError(
                f"{' and '.join(given)} exclude each other: give one of {', '.join(group)}"
                f"{where(layer.origin)}"
            )


def _replaced(layer: Layer, settings: Mapping[str, Setting]) -> list[str]:
    """Return the keys of earlier settings that a layer drops, whether they are set or not."""
    dropped: list[str] = []
    for group in EXCLUSIVE:
        if any(key in layer.values for key in group):
            dropped += group
    for key, value in layer.values.items():
        dropped += REPLACES.get(key, ())
        # A tokenizer that is not trained has the size that it has.
        if key == "data.tokenizer" and value not in TRAINED_TOKENIZERS:
            dropped.append("data.vocab_size")
        table, _, name = key.partition(".")
        if name == "kind" and is_union(table):
            dropped += _set_for_another(table, Setting(value, layer.origin), settings)
    return dropped


def _set_for_another(table: str, given: Setting, settings: Mapping[str, Setting]) -> list[str]:
    """Return the keys that were set for a table's earlier kind, and not for the given one."""
    selector = f"{table}.kind"
    old = chosen_kind(table, settings)
    new = chosen_kind(table, {selector: given})
    earlier = [key for key in settings if key.startswith(f"{table}.") and key != selector]
    return [key for key in earlier if not _means_the_same(key, old, new)]


def _means_the_same(key: str, old: str, new: str) -> bool:
    """Return whether tables of both kinds have the field, with the same default."""
    if old == new:
        return True
    by_kind = declarations(key)
    if old not in by_kind or new not in by_kind:
        return False
    return bool(by_kind[old].default == by_kind[new].default)


def build(settings: Mapping[str, Setting]) -> Recipe:
    """Build the recipe that the settings describe; fields that no layer set have their defaults.

    Raises ConfigError, in one line with field, value and rule, for the first value that its field
    does not take.
    """
    # Pydantic tells the members of a union by their kind, also where no layer set it.
    kinds = {table: chosen_kind(table, settings) for table in TABLES if is_union(table)}
    tables: dict[str, dict[str, Any]] = {
        table: {"kind": kinds[table]} if table in kinds else {} for table in TABLES
    }
    headings = {}
    for key, setting in settings.items():
        _check_texts(key, setting)
        table, _, name = key.rpartition(".")
        if not table:
            headings[name] = setting.value
            continue
        if table in kinds:
            _check_kind(key, kinds[table], setting)
        tables[table][name] = setting.value
    try:
        return Recipe.model_validate({**headings, **tables})
    except ValidationError as error:
        first, *_ = error.errors(include_url=False)
        raise ConfigError(_one_line(first, settings)) from None


def _check_texts(key: str, setting: Setting) -> None:
    value = setting.value
    for text in value if isinstance(value, list | tuple | Mapping) else [value]:
        if isinstance(text, str) and (problem := text_problem(text)):
            raise ConfigError(f"{key} = {show(text)} {problem}{where(setting.origin)}")


def _check_kind(key: str, kind: str, setting: Setting) -> None:
    kinds = declarations(key).keys()
    if kind in kinds:
        return
    table, _, _ = key.partition(".")
    its_kinds = " or ".join(kinds)
    raise ConfigError(
        f"{key} is a field of {table}.kind = {its_kinds}, not of {kind}{where(setting.origin)}"
    )


def _one_line(detail: Mapping[str, Any], settings: Mapping[str, Setting]) -> str:
    key, kind = _field_of(detail["loc"])
    setting = settings[key]
    annotation = declaration(key, kind).annotation
    value = setting.value
    rule = rule_in_words(detail)
    if rule:
        text = f"{key} = {show(value)} {rule}"
    elif is_choice(annotation):
        text = choice_error(key, value, choices_of(annotation))
    else:
        expected = type_in_words(annotation)
        text = f"{key} = {show(value)} is not {expected}"
        if "text" in expected and isinstance(value, int | float):
            text += ": put it in quotes"
    return text + where(setting.origin)


def _field_of(location: Sequence[str | int]) -> tuple[str, str]:
    """Return the field that pydantic's location of an error begins with, and its table's kind."""
    table, *rest = [str(part) for part in location]
    # The location names a union's kind between table and field.
    kind = ""
    if table in TABLES and is_union(table):
        kind, *rest = rest
    key = f"{table}.{rest[0]}" if rest else table
    return key, kind
