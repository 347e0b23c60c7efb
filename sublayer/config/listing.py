"""Every field of a recipe in words, by search, and as a JSON Schema for editors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from sublayer.config.catalog import (
    HEADINGS,
    TABLES,
    current_name,
    declaration,
    declarations,
    default_kind,
    extra,
    is_union,
    keys,
    nearest_key,
)
from sublayer.config.messages import bounds_in_words, show, type_in_words
from sublayer.config.recipe import Recipe
from sublayer.config.rules import said_uses
from sublayer.config.sources import find_source, layer_of, read_toml, shipped_recipes
from sublayer.errors import ConfigError
from sublayer.nearest import nearest

_OWN_KEYWORDS = ("unit", "needs", "derived")
SCHEMA_DRAFT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class FieldRow:
    """One field in words."""

    table: str
    """Empty for a heading."""
    name: str
    type: str
    default: str
    unit: str
    """Unit of a number; empty where it has no unit."""
    used_when: str
    """Empty where the field always counts."""
    description: str
    set_by: tuple[str, ...]
    """The shipped recipes that say something of it."""


def field_rows(table: str | None = None) -> tuple[FieldRow, ...]:
    """Return the fields of a table, or of a whole recipe file, in the order of declaration.

    Reads every shipped recipe. Raises KeyError for an unknown table.
    """
    setters = _setters()
    headings = () if table else HEADINGS
    return tuple(_row(key, setters) for key in (*headings, *keys(table)))


def json_schema() -> dict[str, Any]:
    """Build the JSON Schema (draft 2020-12) of a recipe file, for editors.

    A table may leave its ``kind`` to the recipe that it extends, so a union takes the fields of any
    of its kinds.
    """
    schema = Recipe.model_json_schema()
    definitions = schema["$defs"]
    rows = field_rows()
    for table, kinds in TABLES.items():
        by_name = {row.name: row for row in rows if row.table == table}
        for cls in kinds.values():
            definition = definitions[cls.__name__]
            _describe(definition["properties"], by_name)
    # Pydantic tells the kinds of a union by a field that a recipe may leave out.
    for content in schema["properties"].values():
        if content.pop("discriminator", None):
            content["anyOf"] = content.pop("oneOf")
    schema["properties"] = {**_FILE_ONLY, **schema["properties"]}
    return {"$schema": SCHEMA_DRAFT, **schema}


def _describe(properties: Mapping[str, dict[str, Any]], rows: Mapping[str, FieldRow]) -> None:
    """Write the description of each field of a table, without keywords that JSON Schema lacks."""
    for name, content in properties.items():
        for keyword in _OWN_KEYWORDS:
            content.pop(keyword, None)
        content["description"] = _for_editors(rows[name])


def _row(key: str, setters: Mapping[str, tuple[str, ...]]) -> FieldRow:
    table, _, name = key.rpartition(".")
    by_kind = declarations(key)
    info = declaration(key)
    descriptions = {kind: each.description or "" for kind, each in by_kind.items()}
    return FieldRow(
        table=table,
        name=name,
        type=_type_in_words(key, info),
        default=_default_in_words(key, by_kind),
        unit=extra(info).get("unit", ""),
        used_when=_used_when(key, by_kind),
        description=_by_kind(descriptions, " "),
        set_by=setters.get(key, ()),
    )


def _is_selector(key: str) -> bool:
    table, _, name = key.partition(".")
    return name == "kind" and is_union(table)


def _type_in_words(key: str, info: FieldInfo) -> str:
    if _is_selector(key):
        table, _, _ = key.partition(".")
        return f"one of {', '.join(TABLES[table])}"
    words = type_in_words(info.annotation)
    bounds = bounds_in_words(info)
    return f"{words}, {bounds}" if bounds else words


def _default_in_words(key: str, by_kind: Mapping[str, FieldInfo]) -> str:
    if _is_selector(key):
        table, _, _ = key.partition(".")
        return show(default_kind(table))
    defaults = {kind: _one_default(info) for kind, info in by_kind.items()}
    return _by_kind(defaults, ", ")


def _by_kind(texts: Mapping[str, str], separator: str) -> str:
    """Join the texts of all kinds, once where several have the same text."""
    said: dict[str, list[str]] = {}
    for kind, text in texts.items():
        said.setdefault(text, []).append(kind)
    if len(said) == 1:
        (text,) = said
        return text
    parts = [f"{' and '.join(kinds)}: {text}" for text, kinds in said.items()]
    return separator.join(parts)


def _one_default(info: FieldInfo) -> str:
    rule = extra(info).get("derived")
    if rule and info.default is None:
        return f"derived: {rule}"
    return show(info.default)


def _used_when(key: str, by_kind: Mapping[str, FieldInfo]) -> str:
    table, _, _ = key.rpartition(".")
    conditions = [use.when for use in said_uses(key)]
    is_of_some_kinds = table and len(by_kind) < len(TABLES[table])
    if is_of_some_kinds and not _is_selector(key):
        conditions.insert(0, f"{table}.kind is {' or '.join(by_kind)}")
    return "; ".join(conditions)


def _setters() -> dict[str, tuple[str, ...]]:
    setters: dict[str, tuple[str, ...]] = {}
    for recipe in shipped_recipes():
        source = find_source(recipe)
        layer = layer_of(read_toml(source.path), source.origin)
        for key in layer.values:
            setters[key] = (*setters.get(key, ()), recipe)
    return setters


def _for_editors(row: FieldRow) -> str:
    parts = [row.description]
    if row.unit:
        parts.append(f"Unit: {row.unit}.")
    if row.used_when:
        parts.append(f"Counts where {row.used_when}.")
    if row.default.startswith("derived"):
        parts.append(f"{row.default.capitalize()}.")
    return " ".join(parts)


_FILE_ONLY: dict[str, Any] = {
    "extends": {
        "type": "string",
        "description": "Name or path of the recipe that this one changes.",
    },
    "derived": {
        "type": "array",
        "items": {"type": "string"},
        "description": (
            "In a run's recipe: the fields that were derived, which a new run derives anew."
        ),
    },
    "lengthened": {
        "type": "array",
        "items": {"type": "object"},
        "description": (
            "In a run's recipe: how it was lengthened, or planned anew by its pace, at which step, "
            "from how many steps to how many."
        ),
    },
    "group": {
        "type": "string",
        "description": (
            "In a shipped recipe: the heading that `sublayer recipes` lists it under, and those "
            "that extend it."
        ),
    },
    "place": {
        "type": "integer",
        "description": "In a shipped recipe: where it stands in its group, the lowest first.",
    },
}
"""Schemas of ``FILE_ONLY``."""


def find_fields(asked: str) -> tuple[FieldRow, ...]:
    """Return the fields that are meant by a table, a name or a word.

    A name may lack its table. Any other word is looked for in names, types (which list choices) and
    descriptions; fields that have it in their name come first.
    Raises ConfigError, with the nearest names, where there is none.
    """
    if asked in TABLES:
        return field_rows(asked)
    rows = field_rows()
    name = current_name(asked)
    named = tuple(row for row in rows if name in (row.name, f"{row.table}.{row.name}"))
    if named:
        return named
    word = asked.casefold().strip()
    texts = [f"{row.table}.{row.name}\n{row.type}\n{row.description}".casefold() for row in rows]
    found = [row for row, text in zip(rows, texts, strict=True) if word in text]
    if not found or not word:
        raise ConfigError(_not_found(asked))
    return tuple(sorted(found, key=lambda row: word not in row.name))


def _not_found(asked: str) -> str:
    message = f"no field is called {show(asked)}, and no description has it"
    table, dot, _ = asked.partition(".")
    # A table or the name of a field, whichever is nearer.
    near = nearest(asked, [*TABLES, *(row.name for row in field_rows())])
    if dot or near not in TABLES:
        near = nearest_key(asked)
    if near:
        return f"{message}: did you mean {near}?"
    if table in TABLES:
        return f"{message}: `sublayer fields {table}` lists those of [{table}]"
    return f"{message}: give a table ({', '.join(TABLES)}), a field or a word of its description"
