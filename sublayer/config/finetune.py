"""The recipe of fine-tuning: a model to start from, tasks, a preset and overrides.

A preset is what published work set for a task, each figure with its source.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from sublayer.config.data import OwnColumns
from sublayer.config.layers import Layer, as_setting, find_shipped, find_source, override_layer
from sublayer.config.load import SEEN_AS, LoadedRecipe, load_layers, read_start
from sublayer.config.model import ModelConfig
from sublayer.config.objective import KINDS, Format, SupervisedObjective
from sublayer.config.recipe import Recipe
from sublayer.config.resolve import in_proportion
from sublayer.config.rules import is_idle
from sublayer.config.stacks import position_scheme
from sublayer.config.train import LENGTHS
from sublayer.errors import LONGEST_WORD, ConfigError, nearest_hint
from sublayer.files import parsing
from sublayer.files.storage import as_typed, describe_runs_within
from sublayer.tasks.own_table import NAME, find_parts
from sublayer.tasks.registry import TASKS

DEFAULT = "default"
"""The preset of no paper: one setting for each format."""
SHIPPED = Path(__file__).parents[1] / "presets"
_HEADINGS = ("source", "differs")


@dataclass(frozen=True)
class PresetSetting:
    """A setting of a preset."""

    key: str
    """``table.field``."""
    value: Any
    source: str


@dataclass(frozen=True)
class Preset:
    """Settings of a preset for one task, or for a mixture."""

    name: str
    title: str
    figures: tuple[PresetSetting, ...]
    differs: tuple[str, ...]
    """Properties of the source that settings cannot say, a line each."""

    @property
    def settings(self) -> dict[str, Any]:
        """Return the overrides of a recipe."""
        return {figure.key: figure.value for figure in self.figures}


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
    """Load the settings of a preset for tasks in a format.

    A model that has learned ``positions`` for so many tokens reads no longer texts than that; None
    is no limit. Without ``has_start`` the preset's settings of a start are left out. Weights that
    began elsewhere, ``is_imported``, may have figures of their own.

    Raises ConfigError for a preset that there is not, one of another format, and tasks for which it
    has no figures.
    """
    names = preset_names()
    if name not in names:
        raise ConfigError(
            f"{name[:LONGEST_WORD]!r} is not a preset{nearest_hint(name, names)}; there are "
            f"{', '.join(names)}"
        )
    content = _read_preset(name)
    required = content.get("format", format_)
    if required != format_:
        fitting = [stem for stem in names if _read_preset(stem).get("format", format_) == format_]
        raise ConfigError(
            f"preset {name} is for objective.format = {required} (a model.kind = "
            f"{' or '.join(KINDS[required])}), not {format_}: give {' or '.join(fitting)}"
        )
    tables = _tables(name, content, format_, tasks, is_imported=is_imported)
    differs = [line for table in tables for line in table.get("differs", [])]
    figures = {
        f"{heading}.{field}": PresetSetting(f"{heading}.{field}", value, table["source"])
        for table in tables
        for heading, settings in table.items()
        if heading not in _HEADINGS
        for field, value in settings.items()
    }
    longest = figures.get("data.context")
    if longest is not None and positions is not None and longest.value > positions:
        source = f"{longest.value} in {longest.source}; the model has positions for {positions}"
        figures["data.context"] = PresetSetting("data.context", positions, source)
    used = [fig for fig in figures.values() if has_start or not fig.key.startswith("init.")]
    return Preset(name, str(content["title"]), tuple(used), tuple(dict.fromkeys(differs)))


def _read_preset(name: str) -> dict[str, Any]:
    return parsing.read_toml(SHIPPED / f"{name}.toml", ConfigError)


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
    suites, named = content.get("suites", {}), content.get("tasks", {})
    task = TASKS.get(tasks[0])  # none of a table of one's own
    specific = [suites.get(task.suite) if task is not None else None, named.get(tasks[0])]
    if len(tasks) > 1:
        specific = [content.get("mixture")]
    if not any(specific) and "any" not in content:
        what = "a mixture" if len(tasks) > 1 else tasks[0]
        task_names = [
            spec.name for spec in TASKS.values() if spec.suite in suites or spec.name in named
        ]
        raise ConfigError(
            f"preset {name} has no figures for {what}, only for {', '.join(task_names)}: give "
            f"--preset {DEFAULT}, or another"
        )
    general = [content.get(part) for part in ("common", "any")]
    return [table for table in (*general, *specific) if table is not None]


_FORMATS: dict[str, Format] = {
    kind: next(name for name, kinds in KINDS.items() if kind in kinds)  # type: ignore[misc]
    for kind in ("encoder", "decoder", "encoder-decoder", "lstm")
}
"""The format of each kind of model, unless told: the first that it can read."""

_WARMUP = "optimizer.warmup_steps"
_OF_LENGTH = (*(f"train.{name}" for name in LENGTHS), "train.keep_steps")
_OF_FRESH = ("data.tokenizer", *(f"data.{name}" for name in SEEN_AS))
"""Fields of a model without a start beside its ``[model]``, as a start gives them."""


class Finetuning(NamedTuple):
    """A recipe of fine-tuning, and the preset that it has its settings from, where not told."""

    loaded: LoadedRecipe
    preset: Preset

    def figures(self) -> list[PresetSetting]:
        """Return the figures of the preset that count, and are not told otherwise."""
        origin = f"preset {self.preset.name}"
        origins = self.loaded.origins
        return [fig for fig in self.preset.figures if origins.get(fig.key) == origin]

    def describe(self) -> Iterator[str]:
        """Yield the preset's title, its figures that count by source, and its differences."""
        yield f"preset {self.preset.name}: {self.preset.title}"
        figures = self.figures()
        for source in dict.fromkeys(figure.source for figure in figures):
            settings = [f"{f.key}={as_setting(f.value)}" for f in figures if f.source == source]
            yield f"  {' '.join(settings)} ({source})"
        for line in self.preset.differs:  # differences that no setting expresses
            yield f"  not set: {line}"


def load_finetune(
    source: str | LoadedRecipe,
    tasks: Sequence[str],
    folder: str | None,
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    preset: str = DEFAULT,
    columns: OwnColumns | None = None,
) -> Finetuning:
    """Put together the recipe that ``sublayer finetune`` trains.

    ``source`` is a run, a checkpoint or an imported folder to start from, or a recipe, whose model
    then starts from random weights. Of a recipe that is loaded the model and how it sees a text
    count, as of a run: settings of its training do not. ``folder`` has the tasks' files; with
    ``columns`` it is a table of one's own, and there are no ``tasks``. Raises ConfigError as
    ``load_recipe`` and ``load_preset`` do.
    """
    top = override_layer(overrides, "command line")
    is_table, start, positions = columns is not None, None, None
    names = [NAME] if is_table else list(tasks)
    title = Path(folder or "").name if is_table else ", ".join(tasks)
    words: dict[str, Any] = {
        "title": f"{title}, fine-tuned from {_named(source)}",
        "source": "sublayer finetune",
        "cost": "",
        "objective.kind": "supervised",
        "objective.format": format_of(source, writes=bool(columns and "target" in columns)),
        "data.tasks": names if len(names) > 1 else names[0],
    }
    if is_table:
        words["data.columns"] = columns
        if find_parts(folder or "") == {"train", "dev", "test"}:
            words["data.select"] = "parts"
    if folder is not None:
        words["data.path"] = folder
    base: list[Layer] = []
    model = ModelConfig.model_validate({"kind": kind_of(source)})
    if isinstance(source, LoadedRecipe):
        # Settings that say what model it is and how it sees a text; one that a later layer made
        # idle was dropped, and has its default.
        fresh = {
            key: value
            for layer in source.layers
            for key, value in layer.values.items()
            if (key.startswith("model.") or key in _OF_FRESH)
            and source.origins.get(key) != "default"
        }
        base = [Layer(f"recipe {source.name}", fresh)]
        positions = _last_position(source.recipe.model, source.recipe.data.context)
    elif is_recipe(source):
        # How long it pre-trains is left out: a task is trained on by its number of examples.
        for layer in find_source(source).read_layers():
            values = {key: value for key, value in layer.values.items() if key not in _OF_LENGTH}
            base.append(replace(layer, values=values))
    else:
        words["init.run"] = source
        start = read_start(source)
        if start is not None:
            model = start.model
            positions = _last_position(model, model.max_len)
    layers = [*base, Layer("finetune", words)]
    format_ = top.values.get("objective.format", words["objective.format"])
    chosen = None
    notes: list[str] = []
    # Any other format is refused with its choices, by the recipe.
    if format_ in KINDS:
        chosen = load_preset(
            preset,
            format_,
            names,
            positions=positions,
            has_start=start is not None,
            is_imported=start is not None and start.is_imported,
        )
        # An LSTM has no attention to drop: settings of parts that a model lacks are left out.
        plain_recipe = Recipe(model=model)
        settings = {
            key: value
            for key, value in chosen.settings.items()
            if not (key.startswith("model.") and is_idle(key, plain_recipe))
        }
        layers.append(Layer(f"preset {preset}", settings))
        if shorter := _shortened(settings, top.values):
            layers.append(Layer(f"preset {preset}, shortened", {_WARMUP: shorter}))
            notes = [
                f"{_WARMUP} = {settings[_WARMUP]} of preset {preset} is for "
                f"{settings['train.steps']:,} steps: {shorter} of {top.values['train.steps']:,}"
            ]
    # A run of a table is named as that up to what says its kind, and whether it is packed.
    name = "-".join(tasks) or Path(folder or "").name.partition(".")[0] or NAME
    loaded = load_layers([*layers, top], name)
    assert chosen is not None, "a recipe has one of the formats"
    objective = loaded.recipe.objective
    if not isinstance(objective, SupervisedObjective):
        raise ConfigError(
            f"objective.kind = {objective.kind} answers no task: leave it out, or train with "
            "`sublayer train`"
        )
    # Settings of a pre-training's text have no effect here, which is no news.
    idle = [f"of {layer.origin} has no effect" for layer in base]
    relevant = [note for note in loaded.notes if not any(phrase in note for phrase in idle)]
    return Finetuning(replace(loaded, notes=(*relevant, *notes)), chosen)


def _shortened(settings: Mapping[str, Any], overrides: Mapping[str, Any]) -> int:
    """Return the warm-up of a preset for a shorter run, which its own would not fit in; else 0."""
    steps, before = overrides.get("train.steps"), settings.get("train.steps")
    warmup = settings.get(_WARMUP)
    if not isinstance(steps, int) or not before or not warmup or not 0 < steps < warmup:
        return 0
    return in_proportion(warmup, of=before, to=steps)


def _last_position(model: ModelConfig, n_positions: int | None) -> int | None:
    return n_positions if position_scheme(model).has_end else None


def _named(source: str | LoadedRecipe) -> str:
    return source.name if isinstance(source, LoadedRecipe) else as_typed(source)


def is_recipe(source: str) -> bool:
    """Return whether a word names a recipe, and no model."""
    return find_shipped(source) is not None or Path(source).suffix == ".toml"


def kind_of(source: str | LoadedRecipe) -> str:
    """Return the kind of model that a run, a folder or a recipe has.

    Raises ConfigError where there is none.
    """
    if isinstance(source, LoadedRecipe):
        return source.recipe.model.kind
    if is_recipe(source):
        layers = find_source(source).read_layers()
        kinds = [layer.values["model.kind"] for layer in layers if "model.kind" in layer.values]
        return kinds[-1] if kinds else ModelConfig().kind
    if (start := read_start(source)) is None:
        raise ConfigError(
            f"{as_typed(source)} is not a run, an imported folder or a recipe: name a model to "
            f"start from (`sublayer runs` lists runs){describe_runs_within(source)}"
        )
    return start.model.kind


def format_of(source: str | LoadedRecipe, *, writes: bool = False) -> Format:
    """Return the format in which a model reads tasks, unless told.

    ``writes``: the answers are texts of any words. Raises as ``kind_of`` does, and ConfigError
    where the model writes none.
    """
    kind = kind_of(source)
    if writes and kind == "encoder":
        raise ConfigError(
            f"{_named(source)} is an encoder and cannot write text: start from a T5 or a decoder, "
            "or name classes (--label) or spans of the text (--answer)"
        )
    if kind not in _FORMATS:
        raise ConfigError(f"a model.kind = {kind} answers no task")
    return "text" if writes else _FORMATS[kind]
