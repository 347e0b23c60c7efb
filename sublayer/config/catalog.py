"""Catalogue of a recipe's tables and fields: names, former names, kinds and declarations."""

from collections.abc import Mapping
from typing import Any

from pydantic.fields import FieldInfo

from sublayer.config.data import DataConfig
from sublayer.config.model import ModelConfig
from sublayer.config.optimizers import OPTIMIZERS
from sublayer.config.recipe import OBJECTIVES, Recipe
from sublayer.config.table import Table
from sublayer.config.train import InitConfig, TrainConfig
from sublayer.nearest import nearest

RENAMED: dict[str, str] = {
    "data.longest_words": "data.max_words",
    "data.words_ratio": "data.max_words_ratio",
    "objective.alone": "objective.single_sentence",
    "objective.mask_most": "objective.max_predictions",
    "objective.ngram_longest": "objective.max_ngram",
}
"""Each field that once had another name: the old ``table.field`` to the new one."""


def current_name(key: str) -> str:
    """Return a field's current name, whether ``key`` is its old one or its new one."""
    return RENAMED.get(key, key)


def with_current_names(values: Mapping[str, Any], *, table: str = "") -> dict[str, Any]:
    """Return the values by the current names of their fields, in the same order.

    The keys are ``table.field``, or the fields of ``table`` where that is given. An old name stays
    where the new one stands beside it: the program never wrote both.
    """
    prefix = f"{table}." if table else ""
    renamed: dict[str, Any] = {}
    for key, value in values.items():
        name = current_name(f"{prefix}{key}").removeprefix(prefix)
        if name in values:
            name = key
        renamed[name] = value
    return renamed


TABLES: dict[str, Mapping[str, type[Table]]] = {
    "model": {"": ModelConfig},
    "data": {"": DataConfig},
    "objective": OBJECTIVES,
    "optimizer": OPTIMIZERS,
    "train": {"": TrainConfig},
    "init": {"": InitConfig},
}
"""By name in a recipe, then by kind; a table that has no kinds stands under the empty one."""
HEADINGS = tuple(name for name in Recipe.model_fields if name not in TABLES)
"""Keys above the tables, such as ``title``."""


def is_union(table: str) -> bool:
    """Return whether a table's fields depend on its ``kind``."""
    return "" not in TABLES[table]


def default_kind(table: str) -> str:
    """Return a table's kind where no layer sets one; empty where the table has no kinds."""
    if not is_union(table):
        return ""
    default = getattr(_DEFAULTS, table)
    return str(default.kind)


def declarations(key: str) -> dict[str, FieldInfo]:
    """Return a field's declaration by kind of its table; empty for an unknown key."""
    table, _, name = key.rpartition(".")
    if not table:
        return {"": Recipe.model_fields[name]} if name in HEADINGS else {}
    return {
        kind: cls.model_fields[name]
        for kind, cls in TABLES.get(table, {}).items()
        if name in cls.model_fields
    }


def declaration(key: str, kind: str = "") -> FieldInfo:
    """Return the declaration of a known field, that of the given kind where it differs by kind."""
    by_kind = declarations(key)
    any_kind = next(iter(by_kind))
    return by_kind.get(kind, by_kind[any_kind])


def extra(info: FieldInfo) -> dict[str, Any]:
    """Return what ``field`` declared beyond pydantic's own: unit, needs, derived."""
    declared = info.json_schema_extra
    return declared if isinstance(declared, dict) else {}


def keys(table: str | None = None) -> tuple[str, ...]:
    """Return every ``table.field``, in the order of declaration, of one table or of all."""
    if not table:
        return tuple(key for each in TABLES for key in keys(each))
    # A mapping instead of a set, which would forget the order.
    names: dict[str, None] = {}
    for cls in TABLES[table].values():
        ordered = sorted(cls.model_fields, key=lambda name: name != "kind")
        names.update(dict.fromkeys(ordered))
    return tuple(f"{table}.{name}" for name in names)


def nearest_key(key: str) -> str | None:
    """Return the field that an unknown key was probably meant to be.

    The slip may be in the field, in the table, or in both.
    """
    table, _, name = key.rpartition(".")
    near_here = nearest(name, _names(table)) if table in TABLES else None
    if near_here:
        return f"{table}.{near_here}"
    near_table = nearest(table, TABLES) if table else None
    if near_table and name in _names(near_table):
        return f"{near_table}.{name}"
    # Of fields that share a name the first one stays.
    table_of: dict[str, str] = {}
    for other in TABLES:
        for field in _names(other):
            table_of.setdefault(field, other)
    near_name = name if name in table_of else nearest(name, table_of)
    if near_name:
        return f"{table_of[near_name]}.{near_name}"
    return None if table else nearest(name, HEADINGS)


def _names(table: str) -> tuple[str, ...]:
    """Return the names of a table's fields."""
    return tuple(key.removeprefix(f"{table}.") for key in keys(table))


_DEFAULTS = Recipe()
