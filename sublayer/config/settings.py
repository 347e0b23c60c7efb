"""The values that layers give, who gave them, and the rules by which a later layer replaces an earlier one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sublayer.config.catalog import TABLES, declaration, declarations, default_kind, extra, is_union, nearest_key
from sublayer.config.data import TOKENIZERS
from sublayer.config.train import BATCHES, LENGTHS
from sublayer.config.wording import LONGEST_VALUE, choice_error, show
from sublayer.errors import ConfigError


@dataclass(frozen=True)
class Layer:
    """What one source says: ``table.field`` (or a heading such as ``title``) to its value."""

    origin: str
    values: Mapping[str, Any]


@dataclass(frozen=True)
class Setting:
    """A value that a layer gave, and which layer; ``restores`` the default that an earlier layer had changed."""

    value: Any
    origin: str
    restores: bool = False


EXCLUSIVE: tuple[tuple[str, ...], ...] = (
    tuple(f"train.{name}" for name in LENGTHS),
    tuple(f"train.{name}" for name in BATCHES),
    ("optimizer.warmup_steps", "optimizer.warmup_share"),
)
"""Fields of which a recipe has one: a later layer's replaces an earlier layer's; two in one layer are an error."""

REPLACES: dict[str, tuple[str, ...]] = {
    "data.path": ("data.path", "data.corpus"),
    "data.corpus": ("data.path", "data.corpus"),
    "init.run": ("data.tokenizer", "data.vocab_size"),
}
"""What a field, given by a later layer, drops of earlier layers; in one layer they stand together."""


def merge(layers: Sequence[Layer]) -> dict[str, Setting]:
    """Lay each layer over those before it, dropping what it replaces.

    Raises ConfigError for a key that no table has, and for fields of one layer that exclude each other.
    """
    settings: dict[str, Setting] = {}
    for layer in layers:
        _check_layer(layer)
        before = dict(settings)
        for key in _replaced(layer, settings):
            settings.pop(key, None)
        settings.update({key: _setting(key, layer, before) for key in layer.values})
    return settings


def chosen_kind(table: str, settings: Mapping[str, Setting]) -> str:
    """Return the kind that the settings choose for a table; empty where the table has no kinds.

    Raises ConfigError for an unknown kind.
    """
    key = f"{table}.kind"
    if not is_union(table) or key not in settings:
        return default_kind(table)
    kind = settings[key].value
    if kind not in tuple(TABLES[table]):
        raise ConfigError(choice_error(key, kind, TABLES[table]) + where(settings[key].origin))
    return str(kind)


def where(origin: str) -> str:
    """Say where a value was given, for the end of a message; nothing for the command line, which the user sees."""
    return f" ({origin})" if origin.startswith(("recipe ", "run ")) else ""


def _setting(key: str, layer: Layer, before: Mapping[str, Setting]) -> Setting:
    value, earlier = layer.values[key], before.get(key)
    is_default = any(declared.default == value for declared in declarations(key).values())
    restores = earlier is not None and is_default and (earlier.restores or earlier.value != value)
    return Setting(value, layer.origin, restores)


def check_keys(layer: Layer) -> None:
    """Raise ConfigError for a key that no table has, with the one that was probably meant."""
    for key in layer.values:
        if not declarations(key):
            raise ConfigError(_unknown(key) + where(layer.origin))


def _check_layer(layer: Layer) -> None:
    check_keys(layer)
    for group in EXCLUSIVE:
        given = [key for key in group if key in layer.values]
        if len(given) > 1:
            both = " and ".join(f"{key} = {show(layer.values[key])}" for key in given)
            raise ConfigError(f"{both} exclude each other: give one of {', '.join(group)}{where(layer.origin)}")


def _unknown(key: str) -> str:
    name = key if key.isprintable() and len(key) <= LONGEST_VALUE else show(key)
    near = nearest_key(key)
    if near:
        return f"{name} is not a field: did you mean {near}?"
    table = key.partition(".")[0]
    if table in TABLES:
        return f"{name} is not a field: `sublayer fields {table}` lists those of [{table}]"
    return f"{name} is not a field: the tables are {', '.join(TABLES)}"


def _replaced(layer: Layer, settings: Mapping[str, Setting]) -> list[str]:
    dropped: list[str] = []
    for group in EXCLUSIVE:
        if any(key in layer.values for key in group):
            dropped += group
    for key in layer.values:
        dropped += REPLACES.get(key, ())
        if key == "data.tokenizer" and not _is_trained(layer.values[key]):
            dropped.append("data.vocab_size")
        if extra(declaration(key)).get("selects"):
            dropped += _set_for_another(key, layer, settings)
    return dropped


def _is_trained(tokenizer: Any) -> bool:
    return tokenizer in TOKENIZERS and tokenizer != "bytes"


def _set_for_another(selector: str, layer: Layer, settings: Mapping[str, Setting]) -> list[str]:
    """Name the earlier settings that were meant for what the selector was before this layer, and not for what it is."""
    table, _, name = selector.rpartition(".")
    earlier = [key for key in settings if key.startswith(f"{table}.") and key != selector]
    given = Setting(layer.values[selector], layer.origin)
    if is_union(table) and name == "kind":
        old, new = chosen_kind(table, settings), chosen_kind(table, {selector: given})
        return [key for key in earlier if not _means_the_same(key, old, new)]
    return [key for key in earlier if given.value not in _needed(key).get(name, (given.value,))]


def _needed(key: str) -> Mapping[str, Sequence[object]]:
    needs: Mapping[str, Sequence[object]] = extra(declaration(key)).get("needs") or {}
    return needs


def _means_the_same(key: str, old: str, new: str) -> bool:
    found = declarations(key)
    return old == new or (old in found and new in found and found[old].default == found[new].default)
