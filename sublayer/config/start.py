"""Settings that a recipe takes over from the model of ``init.run``: its architecture, its text."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sublayer.config.catalog import with_current_names
from sublayer.config.data import DataConfig
from sublayer.config.layers import Layer
from sublayer.config.messages import setting_in_words, show_path
from sublayer.config.model import ModelConfig
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_model import resolve_model
from sublayer.config.rules import is_idle, value_of
from sublayer.config.run_recipe import read_recipe
from sublayer.config.sources import RUN_RECIPE
from sublayer.errors import ConfigError
from sublayer.files.parsing import read_json_object
from sublayer.files.paths import resolved

_CONFIG = "config.json"
_LONGEST_LINE = 20
"""Of trainings, each of which starts from the one before."""


@dataclass(frozen=True)
class Start:
    """A model that training starts from, as its folder describes it."""

    run: str
    """The value of ``init.run``."""
    model: ModelConfig
    """Its architecture, without what follows from the rest."""
    data: DataConfig | None
    """The text that it was trained on; None of an imported model."""
    init: str | None = None
    """Start of that training."""

    @property
    def is_imported(self) -> bool:
        """True where its weights began as an imported model's, however long they trained on."""
        start: Start | None = self
        for _ in range(_LONGEST_LINE):
            if start is None or start.data is None:
                return start is not None
            start = read_start(start.init)
        return False


def read_start(run: Any) -> Start | None:
    """Read the description of a run, checkpoint or model folder; None where none can be read."""
    if not isinstance(run, str):
        return None
    try:
        folder = resolved(Path(run))
        recipe_path = _recipe_of(folder)
        if recipe_path is not None:
            recipe = read_recipe(recipe_path)
            model = _shortest(recipe.model, recipe.data.context)
            return Start(run, model, recipe.data, recipe.init.run)
        described = read_json_object(folder / _CONFIG, ConfigError)
        model = ModelConfig.model_validate(_model_fields(described.get("model")))
        return Start(run, _shortest(model, 1), None)
    except (ConfigError, ValueError, OSError):  # a path with a NUL is a ValueError
        return None


def _recipe_of(folder: Path) -> Path | None:
    """Return the recipe of the run that a folder is, or is the model or a checkpoint of."""
    run = folder.parent if folder.name == "model" else folder
    if run.parent.name == "checkpoints":
        run = run.parent.parent
    for candidate in (folder, run):
        if (candidate / RUN_RECIPE).is_file():
            return candidate / RUN_RECIPE
    return None


def _model_fields(described: Any) -> dict[str, Any]:
    """Return the fields of a model's config under their current names, those unset left out."""
    if not isinstance(described, dict):
        raise ConfigError("no model is described")
    keyed = {f"model.{name}": value for name, value in described.items() if value is not None}
    renamed = with_current_names(keyed)
    return {key.removeprefix("model."): value for key, value in renamed.items()}


def _shortest(model: ModelConfig, context: int) -> ModelConfig:
    """Leave out of a resolved model's fields what follows from the others, or has no effect."""
    rows = model.vocab_size or 1
    values = {name: value for name, value in model.model_dump().items() if value is not None}
    whole = _dump(ModelConfig.model_validate(values), rows, context)
    for name in tuple(values):
        if name in ("vocab_size", "max_len"):
            continue  # of the tokenizer and of the context, which another recipe may change
        shorter = {key: value for key, value in values.items() if key != name}
        try:
            follows = _dump(ModelConfig.model_validate(shorter), rows, context) == whole
        except (ConfigError, ValidationError):
            continue
        if follows or is_idle(f"model.{name}", Recipe(model=ModelConfig.model_validate(values))):
            values = shorter
    if is_idle("model.max_len", Recipe(model=ModelConfig.model_validate(values))):
        values.pop("max_len", None)
    return ModelConfig.model_validate(values)


def _dump(model: ModelConfig, rows: int, context: int) -> dict[str, Any]:
    return resolve_model(model, vocab_size=rows, context=context).model_dump()


SOURCES = (
    "path",
    "corpus",
    "tasks",
    "source_path",
    "target_path",
    "valid_path",
    "test_path",
    "valid_source_path",
    "valid_target_path",
    "test_source_path",
    "test_target_path",
)
"""Fields of ``[data]`` that name a text: where one is told, none of the start's is kept."""
_READ_AS = (
    "split",
    "documents",
    "text_field",
    "sentences",
    "source_field",
    "target_field",
    "size_limit",
    "train_examples",
    "columns",
    "select",
    "held_out",
)
"""Fields that say how those texts are read."""
SEEN_AS = (
    "context",
    "source_language",
    "target_language",
    "moses",
    "moses_hyphens",
    "moses_escapes",
    "lowercase",
)
"""Fields of any text that the model was trained to see."""


@dataclass(frozen=True)
class Started:
    """Layers with the settings of the start between the base and the layer that names it."""

    layers: tuple[Layer, ...]
    start: Start | None
    """None where there is none, or none that can be read: loading its weights says why."""
    replaced: Mapping[str, Any]
    """Settings of the base that do not count, as they were given there."""


def with_start(layers: Sequence[Layer]) -> Started:
    """Put the settings of the start over the base, and under the layer that names the start.

    Where a finished run names it, the run's own recipe says all, and nothing is put. Settings of
    data in the base count where it names tasks: a recipe of fine-tuning is for any model.
    """
    naming = [index for index, layer in enumerate(layers) if "init.run" in layer.values]
    if not naming:
        return Started(tuple(layers), None, {})
    index = naming[-1]
    start = read_start(layers[index].values["init.run"])
    if start is None or layers[index].is_complete:
        return Started(tuple(layers), start, {})
    told = {key for layer in layers[index:] for key in layer.values}
    of_data = {key for layer in layers[:index] for key in layer.values if key.startswith("data.")}
    of_tasks = of_data if "data.tasks" in of_data else set()
    dropped = set(_kept_fields(start, told | of_tasks)) - of_tasks
    replaced: dict[str, Any] = {}
    below = []
    for layer in layers[:index]:
        kept = {}
        for key, value in layer.values.items():
            if key not in dropped:
                kept[key] = value
            elif key not in told:
                replaced[key] = value
        below.append(Layer(layer.origin, kept, is_complete=layer.is_complete))
    given = {**_set_fields("model", start.model), **_set_fields("data", start.data)}
    settings = {key: value for key, value in given.items() if key in dropped}
    if _exceeds_positions(start, layers if of_tasks else layers[index:]):
        # As many as the context has: of positions that are learned that is refused with the reason
        # (``check_start``), others have no end.
        settings.pop("model.max_len", None)
    own = Layer(f"run {start.run}", {**settings, **_fitting_context(start, below)})
    return Started((*below, own, *layers[index:]), start, replaced)


def _kept_fields(start: Start, told: Set[str]) -> list[str]:
    """Return the fields whose values are the start's, told or not, and no longer the base's."""
    keys = [f"model.{name}" for name in ModelConfig.model_fields]
    if start.data is None:
        return keys
    names = _seen_as(start.data)
    if not any(f"data.{name}" in told for name in SOURCES):
        names += [*SOURCES, *_READ_AS]
    return keys + [f"data.{name}" for name in names]


def _seen_as(data: DataConfig) -> list[str]:
    # Capitals of a text that is no pairs are lowered by the tokenizer, which is the start's.
    return [name for name in SEEN_AS if name != "lowercase" or data.is_parallel]


def _exceeds_positions(start: Start, told: Sequence[Layer]) -> bool:
    """Return whether a longer context is asked for than the start has positions for."""
    longest = start.model.max_len
    if longest is None:
        return False
    values = [layer.values["data.context"] for layer in told if "data.context" in layer.values]
    return bool(values) and isinstance(values[-1], int) and values[-1] > longest


def _fitting_context(start: Start, below: Sequence[Layer]) -> dict[str, int]:
    """Return the context of a model whose text is not known, where the base asks for a longer."""
    longest = start.model.max_len
    if start.data is not None or longest is None:
        return {}
    asked = DataConfig.model_fields["context"].default
    for layer in below:
        asked = layer.values.get("data.context", asked)
    return {"data.context": longest} if isinstance(asked, int) and asked > longest else {}


def check_kind(started: Started, recipe: Recipe) -> None:
    """Raise ConfigError where the start is another kind of model than the recipe trains."""
    start, trained = started.start, " or ".join(recipe.objective.model_kinds)
    is_other = not recipe.objective.trains_kind(recipe.model.kind)
    if start is not None and start.model.kind == recipe.model.kind and is_other:
        raise ConfigError(
            f"init.run = {start.run} is a model of another kind ({start.model.kind}) than the "
            f"recipe trains ({trained}, objective.kind = {recipe.objective.kind}): start from one "
            f"of that kind, or leave out init.run"
        )


def is_kept(start: Start, key: str, value: Any) -> bool:
    """Return whether a run that starts from a model has a setting from there."""
    if key in ("model.vocab_size", "model.max_len"):
        return True  # of the tokenizer and of the context
    if key not in _kept_fields(start, set()):
        return False
    table, _, name = key.partition(".")
    content = start.model if table == "model" else start.data
    return bool(getattr(content, name, None) == value)


def describe_start(started: Started, recipe: Recipe) -> list[str]:
    """Describe in lines the settings of a start that a recipe keeps, and those it changes."""
    start = started.start
    if start is None:
        return []
    changed = [*_changes("model", start.model, recipe.model)]
    keeps_text = False
    if start.data is not None:
        names = (*SOURCES, *_READ_AS, *_seen_as(start.data))
        text_changes = _changes("data", start.data, recipe.data, names)
        keeps_text = not any(
            getattr(start.data, name) != getattr(recipe.data, name) for name in SOURCES
        )
        changed += text_changes
    what = "model, tokenizer and text" if keeps_text else "model and tokenizer"
    line = f"starts from {start.run}, whose {what} it keeps"
    if changed:
        line += f", but for {', '.join(changed)}"
    instead = []
    for key, value in started.replaced.items():
        now = value_of(key, recipe)
        if (list(now) if isinstance(now, tuple) else now) != value:
            instead.append(_instead(recipe, key, value))
    if not instead:
        return [line]
    return [line, f"of {start.run}, not of the recipe: {', '.join(instead)}"]


def _set_fields(table: str, content: ModelConfig | DataConfig | None) -> dict[str, Any]:
    """Return the fields of a table that differ from their defaults, as a recipe file has them."""
    if content is None:
        return {}
    return {
        f"{table}.{name}": list(value) if isinstance(value, tuple) else value
        for name, value in content
        if value not in (type(content).model_fields[name].default, None)
    }


def _changes(table: str, before: Any, now: Any, names: Sequence[str] | None = None) -> list[str]:
    return [
        f"{setting_in_words(f'{table}.{name}', getattr(now, name))} (there {show_path(old)})"
        for name in names or type(before).model_fields
        if (old := getattr(before, name)) != getattr(now, name)
        and name not in ("vocab_size", "max_len")
    ]


def _instead(recipe: Recipe, key: str, value: Any) -> str:
    """Say what stands for a setting; for one that named a text, the settings that name it now."""
    table, _, name = key.partition(".")
    now = value_of(key, recipe)
    if now is not None or table != "data" or name not in SOURCES:
        return f"{setting_in_words(key, now)} instead of {show_path(value)}"
    sources = {each: getattr(recipe.data, each) for each in SOURCES}
    named = [
        setting_in_words(f"data.{each}", source)
        for each, source in sources.items()
        if source is not None
    ]
    return f"{', '.join(named)} instead of {setting_in_words(key, value)}"
