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
    names = {key: current_name(f"{prefix}{key}").removeprefix(prefix) for key in values}
    return {(key if names[key] in values else names[key]): value for key, value in values.items()}


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
    classes = TABLES.get(table, {}) if table else {"": Recipe} if name in HEADINGS else {}
    return {
        kind: cls.model_fields[name] for kind, cls in classes.items() if name in cls.model_fields
    }


def declaration(key: str, kind: str = "") -> FieldInfo:
    """Return the declaration of a known field, that of the given kind where it differs by kind."""
    by_kind = declarations(key)
    return by_kind.get(kind) or next(iter(by_kind.values()))


def extra(info: FieldInfo) -> dict[str, Any]:
    """Return what ``field`` declared beyond pydantic's own: unit, needs, derived."""
    declared = info.json_schema_extra
    return declared if isinstance(declared, dict) else {}


def keys(table: str | None = None) -> tuple[str, ...]:
    """Return every ``table.field``, in the order of declaration, of one table or of all."""
    if not table:
        return tuple(key for heading in TABLES for key in keys(heading))
    names = [
        name
        for cls in TABLES[table].values()
        for name in ("kind", *cls.model_fields)
        if name in cls.model_fields
    ]
    return tuple(f"{table}.{name}" for name in dict.fromkeys(names))


def nearest_key(key: str) -> str | None:
    """Return the field that an unknown key was probably meant to be.

    The slip may be in the field, in the table, or in both.
    """
    table, _, name = key.rpartition(".")
    # Of fields that share a name the first one stays.
    by_name = {full_key.partition(".")[2]: full_key for full_key in reversed(keys())}
    names = [full_key.partition(".")[2] for full_key in keys(table)] if table in TABLES else []
    if near_here := nearest(name, names):
        return f"{table}.{near_here}"
    elsewhere = f"{nearest(table, TABLES)}.{name}"
    if elsewhere in keys():
        return elsewhere
    near_name = nearest(name, by_name)
    return by_name[near_name] if near_name else nearest(key, HEADINGS)


_DEFAULTS = Recipe()
