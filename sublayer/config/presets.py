"""Presets of fine-tuning: what published work set for a task, each figure with its source."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sublayer.config.objectives.supervised import KINDS, Format
from sublayer.errors import ConfigError
from sublayer.files import parsing
from sublayer.nearest import LONGEST_WORD, nearest_hint
from sublayer.tasks.registry import TASKS

DEFAULT = "default"
"""The preset of no paper: one setting for each format."""
SHIPPED = Path(__file__).parents[1] / "presets"
_HEADINGS = ("source", "differs")


@dataclass(frozen=True)
class Figure:
    """A setting of a preset."""

    key: str
    """``table.field``."""
    value: Any
    source: str


@dataclass(frozen=True)
class Preset:
    """What a preset sets for one task, or for a mixture."""

    name: str
    title: str
    figures: tuple[Figure, ...]
    differs: tuple[str, ...]
    """What of the source cannot be said by settings, a line each."""

    @property
    def settings(self) -> dict[str, Any]:
        """Return the overrides of a recipe."""
        return {figure.key: figure.value for figure in self.figures}

    @property
    def sources(self) -> tuple[str, ...]:
        """Return the sources, each once, in the order of the figures."""
        return tuple(dict.fromkeys(figure.source for figure in self.figures))


def preset_names() -> tuple[str, ...]:
    """Return the names of the presets, sorted."""
    return tuple(sorted(path.stem for path in SHIPPED.glob("*.toml")))


def load_preset(
    name: str,
    format_: Format,
    tasks: Sequence[str],
    *,
    positions: int | None = None,
    has_start: bool = True,
    is_imported: bool = False,
) -> Preset:
    """Load what a preset sets for tasks in a format.

    A model that has learned ``positions`` for so many tokens reads no longer texts than that; None
    is no limit. Without ``has_start`` what the preset says of a start is left out. Weights that
    began elsewhere, ``is_imported``, may have figures of their own.

    Raises ConfigError for a preset that there is not, one of another format, and tasks for which it
    has no figures.
    """
    if name not in preset_names():
        raise ConfigError(
            f"{name[:LONGEST_WORD]!r} is no preset{nearest_hint(name, preset_names())}; there are "
            f"{', '.join(preset_names())}"
        )
    content = parsing.read_toml(SHIPPED / f"{name}.toml", ConfigError)
    _check_format(name, content, format_)
    tables = _tables(name, content, format_, tasks, is_imported=is_imported)
    figures: dict[str, Figure] = {}
    differs: list[str] = []
    for table in tables:
        differs += table.get("differs", [])
        for key, value in _flattened(table):
            figures[key] = Figure(key, value, table["source"])
    longest = figures.get("data.context")
    if longest is not None and positions is not None and longest.value > positions:
        source = f"{longest.value} in {longest.source}; the model has positions for {positions}"
        figures["data.context"] = Figure("data.context", positions, source)
    kept = [each for each in figures.values() if has_start or not each.key.startswith("init.")]
    return Preset(name, str(content["title"]), tuple(kept), tuple(dict.fromkeys(differs)))


def _check_format(name: str, content: Mapping[str, Any], format_: Format) -> None:
    own = content.get("format", format_)
    if own != format_:
        raise ConfigError(
            f"preset {name} is for objective.format = {own} (a model.kind = "
            f"{' or '.join(KINDS[own])}), and this is {format_}: give {_of_format(format_)}"
        )


def _of_format(format_: Format) -> str:
    """Name the presets for a format."""
    names = []
    for name in preset_names():
        content = parsing.read_toml(SHIPPED / f"{name}.toml", ConfigError)
        if content.get("format", format_) == format_:
            names.append(name)
    return " or ".join(names)


def _tables(
    name: str,
    content: Mapping[str, Any],
    format_: Format,
    tasks: Sequence[str],
    *,
    is_imported: bool,
) -> list[Mapping[str, Any]]:
    """Return the tables of a preset that count for tasks, the most general first."""
    if "format" not in content:
        table = dict(content[format_])
        imported = table.pop("imported")
        if not is_imported:
            return [table]
        # Their rate is another, and nothing is to be said of a larger model's.
        table.pop("differs", None)
        return [table, imported]
    general = [content[part] for part in ("common", "any") if part in content]
    if len(tasks) > 1:
        own = [content["mixture"]] if "mixture" in content else []
    else:
        task = TASKS.get(tasks[0])  # none of a table of one's own
        suite = content.get("suites", {}).get(task.suite) if task is not None else None
        own = [suite, content.get("tasks", {}).get(tasks[0])]
    found = [each for each in own if each is not None]
    if not found and "any" not in content:
        what = "a mixture" if len(tasks) > 1 else tasks[0]
        raise ConfigError(
            f"preset {name} has no figures for {what}, only for {', '.join(_known(content))}: give "
            f"--preset {DEFAULT}, or another"
        )
    return [*general, *found]


def _known(content: Mapping[str, Any]) -> list[str]:
    """Name the tasks that a preset has figures for."""
    suites, named = content.get("suites", {}), content.get("tasks", {})
    return [task.name for task in TASKS.values() if task.suite in suites or task.name in named]


def _flattened(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, content in table.items():
        if name not in _HEADINGS:
            for key, value in content.items():
                yield f"{name}.{key}", value
