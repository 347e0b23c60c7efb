"""Every field of a recipe in words, by search, and as a JSON Schema for editors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from sublayer.config.layers import find_source, layer_of, read_toml, shipped_recipes
from sublayer.config.messages import bounds_in_words, show, type_in_words
from sublayer.config.recipe import (
    HEADINGS,
    TABLES,
    Recipe,
    current_name,
    declaration,
    declarations,
    default_kind,
    description,
    extra,
    is_union,
    keys,
    nearest_key,
)
from sublayer.config.rules import listed_uses
from sublayer.errors import ConfigError
from sublayer.nearest import nearest

_OWN_KEYWORDS = ("unit", "needs", "when", "derived")
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
    setters: dict[str, tuple[str, ...]] = {}
    for recipe in shipped_recipes():
        source = find_source(recipe)
        for key in layer_of(read_toml(source.path), source.origin).values:
            setters[key] = (*setters.get(key, ()), recipe)
    headings = () if table else HEADINGS
    return tuple(_row(key, setters.get(key, ())) for key in (*headings, *keys(table)))


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


def _describe(properties: dict[str, dict[str, Any]], rows: Mapping[str, FieldRow]) -> None:
    """Write the description of each field of a table, without keywords that JSON Schema lacks."""
    for name, content in properties.items():
        described = {**content, "description": _for_editors(rows[name])}
        content.clear()
        content |= {
            word: described[word] for word in sorted(described) if word not in _OWN_KEYWORDS
        }


def _row(key: str, set_by: tuple[str, ...]) -> FieldRow:
    table, _, name = key.rpartition(".")
    by_kind = declarations(key)
    info = declaration(key)
    kind = ", ".join(filter(None, (type_in_words(info.annotation), bounds_in_words(info))))
    default = _by_kind({name: _default(decl) for name, decl in by_kind.items()}, ", ")
    conditions = [use.when for use in listed_uses(key)]
    if table and is_union(table) and name == "kind":
        kind, default = f"one of {', '.join(TABLES[table])}", show(default_kind(table))
    elif table and len(by_kind) < len(TABLES[table]):
        conditions.insert(0, f"{table}.kind is {' or '.join(by_kind)}")
    return FieldRow(
        table=table,
        name=name,
        type=kind,
        default=default,
        unit=extra(info).get("unit", ""),
        used_when="; ".join(conditions),
        description=_by_kind({kind: description(key, kind) for kind in by_kind}, " "),
        set_by=set_by,
    )


def _by_kind(texts: Mapping[str, str], separator: str) -> str:
    """Join the texts of all kinds, once where several have the same text."""
    by_text: dict[str, list[str]] = {}
    for kind, text in texts.items():
        by_text.setdefault(text, []).append(kind)
    if len(by_text) == 1:
        return next(iter(by_text))
    return separator.join(f"{' and '.join(kinds)}: {text}" for text, kinds in by_text.items())


def _default(info: FieldInfo) -> str:
    rule = extra(info).get("derived")
    return f"derived: {rule}" if rule and info.default is None else show(info.default)


def _for_editors(row: FieldRow) -> str:
    parts = {
        f"Unit: {row.unit}.": row.unit,
        f"Counts where {row.used_when}.": row.used_when,
        f"{row.default.capitalize()}.": row.default.startswith("derived"),
    }
    return " ".join([row.description, *(text for text, is_said in parts.items() if is_said)])


def _schema(kind: str, description: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, **more, "description": description}


_FILE_ONLY: dict[str, Any] = {
    "extends": _schema("string", "Name or path of the recipe that this one changes."),
    "derived": _schema(
        "array",
        "In a run's recipe: the fields that were derived, which a new run derives anew.",
        items={"type": "string"},
    ),
    "lengthened": _schema(
        "array",
        "In a run's recipe: how it was lengthened, or planned anew by its pace, at which step, "
        "from how many steps to how many.",
        items={"type": "object"},
    ),
    "group": _schema(
        "string",
        "In a shipped recipe: the heading that `sublayer recipes` lists it under, and those that "
        "extend it.",
    ),
    "place": _schema(
        "integer",
        "In a shipped recipe: where it stands in its group, the lowest first.",
    ),
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
    name, word = current_name(asked), asked.casefold().strip()
    named = tuple(row for row in rows if name in (row.name, f"{row.table}.{row.name}"))
    having = [
        row
        for row in rows
        if word and word in f"{row.table}.{row.name}\n{row.type}\n{row.description}".casefold()
    ]
    if matches := named or tuple(sorted(having, key=lambda row: word not in row.name)):
        return matches
    # A table or the name of a field, whichever is nearer.
    near = nearest(asked, [*TABLES, *(row.name for row in rows)])
    if near not in TABLES:
        near = nearest_key(asked)
    hint = f"did you mean {near}?" if near else f"the tables are {', '.join(TABLES)}"
    raise ConfigError(f"no field is called {show(asked)}, and no description has it: {hint}")
