"""Every field of a recipe in words, and as a JSON Schema for editors."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic.fields import FieldInfo

from sublayer.config.catalog import HEADINGS, TABLES, declarations, default_kind, extra, is_union, keys
from sublayer.config.idle import uses
from sublayer.config.recipe import Recipe
from sublayer.config.sources import find_source, layer_of, read_toml, shipped_recipes
from sublayer.config.wording import bounds_in_words, show, type_in_words

SCHEMA_DRAFT = "https://json-schema.org/draft/2020-12/schema"


@dataclass(frozen=True)
class FieldRow:
    """One field in words; ``used_when`` is empty where it always counts, ``set_by`` names shipped recipes."""

    table: str
    name: str
    type: str
    default: str
    unit: str
    used_when: str
    description: str
    set_by: tuple[str, ...]


def field_rows(table: str | None = None) -> tuple[FieldRow, ...]:
    """List the fields of one table, or of a whole recipe file, in the order of declaration."""
    setters = _setters()
    headings = () if table else HEADINGS
    return tuple(_row(key, setters) for key in (*headings, *keys(table)))


def json_schema() -> dict[str, Any]:
    """Describe a recipe file for editors, as JSON Schema (draft 2020-12).

    A table may leave its ``kind`` to the recipe that it extends, so a union takes the fields of any of its kinds.
    """
    schema = Recipe.model_json_schema()
    rows = {(row.table, row.name): row for row in field_rows()}
    for table, kinds in TABLES.items():
        for cls in kinds.values():
            for name, content in schema["$defs"][cls.__name__]["properties"].items():
                for keyword in ("unit", "needs", "derived", "selects"):
                    content.pop(keyword, None)
                content["description"] = _for_editors(rows[table, name])
    for content in schema["properties"].values():
        if content.pop("discriminator", None):
            content["anyOf"] = content.pop("oneOf")
    schema["properties"] = {**_FILE_ONLY, **schema["properties"]}
    return {"$schema": SCHEMA_DRAFT, **schema}


def _row(key: str, setters: Mapping[str, tuple[str, ...]]) -> FieldRow:
    table, _, name = key.rpartition(".")
    by_kind = declarations(key)
    info = next(iter(by_kind.values()))
    return FieldRow(
        table=table,
        name=name,
        type=_type_in_words(key, info),
        default=_default_in_words(key, by_kind),
        unit=extra(info).get("unit", ""),
        used_when=_used_when(key, by_kind),
        description=_by_kind({kind: each.description or "" for kind, each in by_kind.items()}, " "),
        set_by=setters.get(key, ()),
    )


def _is_selector(key: str) -> bool:
    table, _, name = key.partition(".")
    return name == "kind" and is_union(table)


def _type_in_words(key: str, info: FieldInfo) -> str:
    if _is_selector(key):
        return "one of " + ", ".join(TABLES[key.partition(".")[0]])
    return ", ".join(filter(None, (type_in_words(info.annotation), bounds_in_words(info))))


def _default_in_words(key: str, by_kind: Mapping[str, FieldInfo]) -> str:
    if _is_selector(key):
        return show(default_kind(key.partition(".")[0]))
    return _by_kind({kind: _one_default(info) for kind, info in by_kind.items()}, ", ")


def _by_kind(texts: Mapping[str, str], separator: str) -> str:
    said: dict[str, list[str]] = {}
    for kind, text in texts.items():
        said.setdefault(text, []).append(kind)
    if len(said) == 1:
        return next(iter(said))
    return separator.join(f"{' and '.join(kinds)}: {text}" for text, kinds in said.items())


def _one_default(info: FieldInfo) -> str:
    rule = extra(info).get("derived")
    return f"derived: {rule}" if rule and info.default is None else show(info.default)


def _used_when(key: str, by_kind: Mapping[str, FieldInfo]) -> str:
    table = key.rpartition(".")[0]
    conditions = [use.when for use in uses(key)]
    if table and len(by_kind) < len(TABLES[table]) and not _is_selector(key):
        conditions.insert(0, f"{table}.kind is {' or '.join(by_kind)}")
    return "; ".join(conditions)


def _setters() -> dict[str, tuple[str, ...]]:
    found: dict[str, tuple[str, ...]] = {}
    for recipe in shipped_recipes():
        source = find_source(recipe)
        for key in layer_of(read_toml(source.path), source.origin).values:
            found[key] = (*found.get(key, ()), recipe)
    return found


def _for_editors(row: FieldRow) -> str:
    parts = [row.description, row.unit and f"Unit: {row.unit}.", row.used_when and f"Counts where {row.used_when}."]
    if row.default.startswith("derived"):
        parts.append(f"{row.default.capitalize()}.")
    return " ".join(part for part in parts if part)


_FILE_ONLY: dict[str, Any] = {
    "extends": {"type": "string", "description": "Name or path of the recipe that this one changes."},
    "derived": {
        "type": "array",
        "items": {"type": "string"},
        "description": "In a run's recipe: the fields that were derived, which a new run derives anew.",
    },
}
"""What a recipe file may say beyond the recipe itself."""
