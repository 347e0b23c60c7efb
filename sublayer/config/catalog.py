"""Which tables and fields a recipe can have: one place that knows their names, kinds and declarations."""

import difflib
from collections.abc import Iterable
from typing import Any

from pydantic.fields import FieldInfo

from sublayer.config.data import DataConfig
from sublayer.config.model import ModelConfig
from sublayer.config.objective import OBJECTIVES
from sublayer.config.optimizer import OPTIMIZERS
from sublayer.config.recipe import Recipe
from sublayer.config.table import Table
from sublayer.config.train import InitConfig, TrainConfig

TABLES: dict[str, dict[str, type[Table]]] = {
    "model": {"": ModelConfig},
    "data": {"": DataConfig},
    "objective": OBJECTIVES,
    "optimizer": OPTIMIZERS,
    "train": {"": TrainConfig},
    "init": {"": InitConfig},
}
LONGEST_WORD = 80
HEADINGS = tuple(name for name in Recipe.model_fields if name not in TABLES)


def is_union(table: str) -> bool:
    """Tell whether a table's fields depend on its ``kind``."""
    return "" not in TABLES[table]


def default_kind(table: str) -> str:
    """Return the kind that a table has when no layer names one; empty where the table has no kinds."""
    return str(getattr(_DEFAULTS, table).kind) if is_union(table) else ""


def declarations(key: str) -> dict[str, FieldInfo]:
    """Map each kind of the key's table that has the field to its declaration; empty for an unknown key."""
    table, _, name = key.rpartition(".")
    if not table:
        return {"": Recipe.model_fields[name]} if name in HEADINGS else {}
    kinds = TABLES.get(table, {})
    return {kind: cls.model_fields[name] for kind, cls in kinds.items() if name in cls.model_fields}


def declaration(key: str, kind: str = "") -> FieldInfo:
    """Return the declaration of a known field, that of the given kind where it differs by kind."""
    found = declarations(key)
    return found[kind] if kind in found else next(iter(found.values()))


def extra(info: FieldInfo) -> dict[str, Any]:
    """Return what ``field`` declared beyond pydantic's own: unit, needs, derived, selects."""
    return info.json_schema_extra if isinstance(info.json_schema_extra, dict) else {}


def keys(table: str | None = None) -> tuple[str, ...]:
    """List every ``table.field``, in the order of declaration, of one table or of all."""
    names: dict[str, None] = {}
    for each in [table] if table else TABLES:
        for cls in TABLES[each].values():
            ordered = sorted(cls.model_fields, key=lambda name: name != "kind")
            names.update(dict.fromkeys(f"{each}.{name}" for name in ordered))
    return tuple(names)


def nearest(word: str, choices: Iterable[str]) -> str | None:
    """Return the choice that the word was probably meant to be, if any is near."""
    if len(word) > LONGEST_WORD:  # which takes long to compare, and is no slip
        return None
    found = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return found[0] if found else None


def nearest_key(key: str) -> str | None:
    """Return the field that an unknown key was probably meant to be: a slip in the field, the table, or both."""
    table, _, name = key.rpartition(".")
    same_table = keys(table) if table in TABLES else ()
    by_name = {each.rpartition(".")[2]: each for each in reversed(keys())}
    near_here = nearest(name, (each.rpartition(".")[2] for each in same_table))
    if near_here:
        return f"{table}.{near_here}"
    near_table = nearest(table, TABLES) if table else None
    if near_table and f"{near_table}.{name}" in keys(near_table):
        return f"{near_table}.{name}"
    near_name = name if name in by_name else nearest(name, by_name)
    if near_name:
        return by_name[near_name]
    return None if table else nearest(name, HEADINGS)


_DEFAULTS = Recipe()
