"""Where layers come from: shipped recipes, recipe files, finished runs and ``key=value`` texts."""

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sublayer import parsing
from sublayer.config.catalog import TABLES, declarations, default_kind, is_union, nearest
from sublayer.config.limits import LONGEST_TEXT
from sublayer.config.settings import Layer
from sublayer.config.texts import resolved
from sublayer.config.wording import show
from sublayer.errors import ConfigError

SHIPPED = Path(__file__).parent.parent / "recipes"
RUN_RECIPE = "recipe.toml"


@dataclass(frozen=True)
class Source:
    """A recipe file and how it was asked for: ``recipe gpt``, ``recipe ./x.toml``, ``run runs/a``."""

    path: Path
    name: str
    origin: str


def shipped_recipes() -> tuple[str, ...]:
    """List the names of the recipes that come with the package."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def find_source(source: str, folder: Path = Path()) -> Source:
    """Find a recipe by shipped name, path of a .toml file, or folder of a run; paths are relative to ``folder``.

    Raises ConfigError where there is none, with the nearest shipped name.
    """
    if source in shipped_recipes():
        return Source(SHIPPED / f"{source}.toml", source, f"recipe {source}")
    path = folder / source
    if path.is_dir():
        if not (path / RUN_RECIPE).is_file():
            raise ConfigError(f"{source} is a folder without a {RUN_RECIPE}: name a run, a recipe file or a recipe")
        return Source(path / RUN_RECIPE, resolved(path).name, f"run {source}")
    if path.is_file():
        is_in_run = path.name == RUN_RECIPE
        return Source(path, resolved(path).parent.name if is_in_run else path.stem, f"recipe {source}")
    raise ConfigError(_not_found(source))


def read_layers(source: Source) -> list[Layer]:
    """Read a recipe and those that it extends, the base first.

    Raises ConfigError for a file that is not TOML, and for recipes that extend each other in a circle.
    """
    layers: list[Layer] = []
    seen: list[Path] = []
    next_source: Source | None = source
    while next_source:
        path = resolved(next_source.path)
        if path in seen:
            raise ConfigError(f"extends = {show(next_source.name)} goes in a circle ({layers[-1].origin})")
        seen.append(path)
        table = read_toml(next_source.path)
        layer = layer_of(table, next_source.origin)
        layers.insert(0, layer if next_source is source else _without_headings(layer))
        next_source = _extended(table, next_source)
    return layers


def _without_headings(layer: Layer) -> Layer:
    # What a recipe is called, follows and costs is not true of those that extend it.
    return Layer(layer.origin, {key: value for key, value in layer.values.items() if "." in key})


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file; raises ConfigError, with the line, where it is not one."""
    try:
        return parsing.read_toml(path, ConfigError)
    except FileNotFoundError:
        raise ConfigError(f"{path} cannot be read: there is no such file") from None


def layer_of(table: Mapping[str, Any], origin: str) -> Layer:
    """Flatten a recipe's tables into a layer.

    Of a run's recipe, which lists what was ``derived``, the derived values and those equal to their defaults are left
    out: they are derived anew.
    """
    values: dict[str, Any] = {}
    for name, content in table.items():
        if name in TABLES:
            if not isinstance(content, dict):
                raise ConfigError(f"{name} = {show(content)} is not a table: write [{name}] ({origin})")
            values.update({f"{name}.{key}": value for key, value in content.items()})
        elif isinstance(content, dict):
            raise ConfigError(f"[{name}] is not a table of a recipe: {_table_hint(name)} ({origin})")
        elif name not in ("extends", "derived"):
            values[name] = content
    if "derived" in table:
        if not isinstance(table["derived"], list):
            raise ConfigError(f"derived = {show(table['derived'])} is not a list of fields ({origin})")
        values = _without_derived(values, table["derived"])
    return Layer(origin, values)


def override_layer(overrides: Sequence[str] | Mapping[str, Any], origin: str) -> Layer:
    """Make a layer of ``key=value`` texts (a TOML value, else a bare text) or of a mapping of values.

    Raises ConfigError for a text without ``=`` and for a key given twice.
    """
    if isinstance(overrides, Mapping):
        return Layer(origin, dict(overrides))
    values: dict[str, Any] = {}
    for text in overrides:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(f"{show(text)} is not a setting: write key=value, such as model.d_ff=512")
        if key in values:
            raise ConfigError(f"{key} is given twice: {show(values[key])} and {show(_parse_value(value))}")
        values[key] = _parse_value(value)
    return Layer(origin, values)


def _parse_value(text: str) -> Any:
    value = text if len(text) > LONGEST_TEXT else parsing.parse_toml_value(text)
    # No field takes a date or a time, so such a text is a name.
    return text if isinstance(value, datetime.date | datetime.time) else value


def _extended(table: Mapping[str, Any], source: Source) -> Source | None:
    if "extends" not in table:
        return None
    if not isinstance(table["extends"], str):
        raise ConfigError(f"extends = {show(table['extends'])} is not the name of a recipe ({source.origin})")
    try:
        return find_source(table["extends"], source.path.parent)
    except ConfigError as error:
        raise ConfigError(f"extends: {error} ({source.origin})") from None


def _without_derived(values: Mapping[str, Any], derived: Sequence[str]) -> dict[str, Any]:
    # The default of a union's ``kind`` is each kind's own name, so it is kept.
    kinds = {table: str(values.get(f"{table}.kind", default_kind(table))) for table in filter(is_union, TABLES)}
    kind_keys = [f"{table}.kind" for table in kinds]
    kept = {}
    for key, value in values.items():
        info = declarations(key).get(kinds.get(key.partition(".")[0], ""))
        value = tuple(value) if isinstance(value, list) else value
        is_default = info is not None and value == info.default and key not in kind_keys
        if key not in derived and not is_default:
            kept[key] = value
    return kept


def _table_hint(name: str) -> str:
    near = nearest(name, TABLES)
    return f"did you mean [{near}]?" if near else f"the tables are {', '.join(TABLES)}"


def _not_found(source: str) -> str:
    if source.endswith(".toml"):
        return f"there is no recipe file {source}"
    if "=" in source:
        return f"{show(source)} is a setting: name a recipe before it, such as gpt {source}"
    near = nearest(source, shipped_recipes())
    hint = f"did you mean {near}?" if near else f"the recipes are {', '.join(shipped_recipes())}"
    return f"{show(source)} is not a recipe, a .toml file or a run: {hint}"
