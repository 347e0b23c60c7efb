"""Loading and writing of recipes: a run's ``recipe.toml``, settings of ``init.run``, dropped ones.

A run's file is the recipe as it ran, with absolute paths and a list of derived fields. From the
model of ``init.run`` a recipe takes the architecture and the text. A loaded recipe is checked once.
"""

import os
from collections.abc import Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import tomli_w
from pydantic import ValidationError

from sublayer.config.contradictions import check_model, check_recipe, check_tables
from sublayer.config.data import HUB, WATCHED, DataConfig, is_tokenizer_file
from sublayer.config.layers import (
    RUN_RECIPE,
    Layer,
    Setting,
    build,
    find_source,
    layer_of,
    merge,
    override_layer,
    read_toml,
    where,
)
from sublayer.config.messages import setting_in_words, show_path
from sublayer.config.model import ModelConfig
from sublayer.config.plugins import (
    LISTED,
    UnnamedPlugin,
    check_listed,
    listed,
    mark_used,
    used_plugins,
)
from sublayer.config.recipe import (
    HEADINGS,
    Recipe,
    ResolvedModel,
    ResolvedRecipe,
    ResolvedTrain,
    current_name,
    keys,
    with_added,
    with_current_names,
)
from sublayer.config.resolve import derive, warmup_steps
from sublayer.config.rules import broken_use, has_value, is_idle, value_of
from sublayer.errors import CheckpointError, ConfigError
from sublayer.files.checkpoints import MANIFEST, checkpoint_path, saved_steps
from sublayer.files.parsing import read_json_object
from sublayer.files.storage import describe_absence, describe_runs_within, expanded, resolved
from sublayer.values import show

DERIVED = "derived"
"""List of the derived fields in a run's recipe; also the origin of their values."""


def dump_recipe(
    recipe: Recipe,
    derived: Sequence[str] = (),
    lengthened: Sequence[Mapping[str, int | str]] = (),
    *,
    as_run: bool = False,
) -> str:
    """Format a recipe as TOML, without unset fields.

    ``derived`` names the fields (``train.steps``) that were derived, and that a new run based on
    this recipe derives anew. ``lengthened`` are the records of changes of the run's length. With
    ``as_run`` the tokenizer of a recipe with ``init.run`` is left out, since it is that of the
    initial model.
    """
    written = {name: value for name, value in _plain(recipe.model_dump()).items() if value != ""}
    if as_run and recipe.init.run is not None and recipe.data.tokenizer == DataConfig().tokenizer:
        del written["data"]["tokenizer"]
    tables = {name: written.pop(name) for name in [*written] if name not in HEADINGS}
    if lengthened:
        tables["lengthened"] = [dict(record) for record in lengthened]
    if plugins := used_plugins(recipe.model, recipe.optimizer):
        tables[LISTED] = listed(plugins)
    return tomli_w.dumps({**written, DERIVED: list(derived), **tables})


def read_run_recipe(path: Path) -> ResolvedRecipe:
    """Read a run's ``recipe.toml`` as it ran, derived values included.

    Fields have their current names. Raises ConfigError where the file is missing, is not a recipe
    or leaves a field open.
    """
    try:
        recipe = read_recipe(path)
        model = ResolvedModel.model_validate(dict(recipe.model))
        train = ResolvedTrain.model_validate(dict(recipe.train))
        return recipe.resolved(model, train, recipe.optimizer)
    except ValidationError as error:
        reason = error.errors()[0]["msg"].removeprefix("Value error, ")
        raise ConfigError(f"{path} is not the recipe of a run: {reason}") from None


def read_recipe(path: Path) -> Recipe:
    """Read a recipe of ``dump_recipe``; raise ConfigError if the file is missing or invalid."""
    return recipe_of(read_toml(path), f"run {path.parent}")


def recipe_of(written: Mapping[str, Any], origin: str) -> Recipe:
    """Build the recipe that ``dump_recipe`` wrote as TOML; fields that came since are default, or
    as ``ADDED`` has them.

    ``origin`` names its file in errors. Raises ConfigError where it is invalid, or where fields of
    one of its tables contradict each other.
    """
    # The list of derived fields is dropped, since their values would be left out.
    table = {name: content for name, content in written.items() if name != DERIVED}
    layer = Layer(origin, with_current_names(layer_of(table, origin).values))
    layer.check_keys()
    recipe = build({key: Setting(value, origin) for key, value in layer.values.items()})
    try:
        check_tables(recipe)
    except ConfigError as error:
        raise ConfigError(f"{error}{where(origin)}") from None
    tables = {
        "model": with_added("model", recipe.model),
        "train": with_added("train", recipe.train),
    }
    return recipe.model_copy(update=tables)


def read_derived(path: Path) -> list[str]:
    """Read the list of derived fields of a run's ``recipe.toml``, by their current names.

    Raises ConfigError where the file is missing or invalid.
    """
    listed = read_toml(path).get(DERIVED, [])
    return [current_name(str(key)) for key in listed] if isinstance(listed, list) else []


def _plain(value: Any) -> Any:
    """Convert a value to TOML: without unset fields, and with lists for tuples."""
    if isinstance(value, tuple):
        return list(value)
    if not isinstance(value, dict):
        return value
    return {name: _plain(content) for name, content in value.items() if content is not None}


_SCORED = ("valid_path", "test_path")
"""Fields that may name a corpus."""


def absolute_paths(recipe: Recipe) -> Recipe:
    """Return a recipe with every relative path made absolute from the working directory.

    Data sets of the hub and URLs are not paths, and remain unchanged. Raises ConfigError for a
    ``~`` of an unknown user.
    """
    data = recipe.data
    paths = {name: getattr(data, name) for name in type(data).model_fields if name.endswith("path")}
    corpora = {name for name in _SCORED if paths[name] in WATCHED}
    changes = {name: path if name in corpora else _absolute(path) for name, path in paths.items()}
    if isinstance(data.watch, dict):
        changes["watch"] = _absolute(data.watch)
    if is_tokenizer_file(data.tokenizer):
        changes["tokenizer"] = _absolute(data.tokenizer)
    tables: dict[str, object] = {
        "data": data.model_copy(update=changes),
        "init": recipe.init.model_copy(update={"run": _absolute(recipe.init.run)}),
    }
    if isinstance(recipe.train.probes, dict):
        tables["train"] = recipe.train.model_copy(update={"probes": _absolute(recipe.train.probes)})
    return recipe.model_copy(update=tables)


def _absolute(paths: Any) -> Any:
    """Make paths absolute: one path, a list of paths, paths with weights, or paths by name."""
    if isinstance(paths, tuple):
        return tuple(map(_absolute, paths))
    if isinstance(paths, dict):
        are_named = all(isinstance(value, str) for value in paths.values())
        return {
            name if are_named else _absolute(name): _absolute(value) if are_named else value
            for name, value in paths.items()
        }
    if paths is None or paths.startswith(HUB) or "://" in paths:
        return paths
    return os.path.normpath(expanded(paths).absolute())


_CHECKPOINTS, _CONFIG = "checkpoints", "config.json"
ENGINE_FILE = "sublayer.json"
"""File of a folder that is exported for an engine, such as ONNX Runtime."""
MODEL_FORMAT = "sublayer"
"""The format that the ``config.json`` of a model folder names."""
_LONGEST_LINE = 20
"""Maximum length of a chain of trainings, each of which starts from the previous one."""


@dataclass(frozen=True)
class Start:
    """Initial model of a training, as described in its folder."""

    run: str
    """Value of ``init.run``."""
    model: ModelConfig
    """Architecture, without fields that follow from others."""
    data: DataConfig | None
    """Text that the model was trained on; None for an imported model."""
    init: str | None = None
    """Value of ``init.run`` in that training."""

    @property
    def is_imported(self) -> bool:
        """Return whether the weights come from an imported model, even if trained since."""
        start: Start | None = self
        for _ in range(_LONGEST_LINE):
            if start is None or start.data is None:
                return start is not None
            start = read_start(start.init)
        return False

    def keeps(self, key: str, value: Any) -> bool:
        """Return whether a run that starts from this model has a setting from there."""
        table, _, name = key.partition(".")
        content = self.model if table == "model" else self.data
        is_same = bool(getattr(content, name, None) == value)
        return name in _OF_TEXT or (key in self.kept_fields(set()) and is_same)

    def kept_fields(self, set_keys: Set[str]) -> list[str]:
        """Return the fields whose values come from the initial model instead of the base."""
        keys = [f"model.{name}" for name in ModelConfig.model_fields]
        if self.data is None:
            return keys
        names = _seen_as(self.data)
        if not any(f"data.{name}" in set_keys for name in SOURCES):
            names += [*SOURCES, *_READ_AS]
        return keys + [f"data.{name}" for name in names]

    def describe(self, replaced: Mapping[str, Any], recipe: Recipe) -> list[str]:
        """Describe, in lines, the initial model's settings that a recipe keeps or changes."""
        changed = _changes("model", self.model, recipe.model, ModelConfig.model_fields)
        kept = "model and tokenizer"
        if self.data is not None:
            if not _changes("data", self.data, recipe.data, SOURCES):
                kept = "model, tokenizer and text"
            names = (*SOURCES, *_READ_AS, *_seen_as(self.data))
            changed += _changes("data", self.data, recipe.data, names)
        but = f", except {', '.join(changed)}" if changed else ""
        lines = [f"starts from {self.run} and keeps its {kept}{but}"]
        texts = {f"data.{name}": getattr(recipe.data, name) for name in SOURCES}
        named = [setting_in_words(key, path) for key, path in texts.items() if path is not None]
        instead = []
        for key, value in replaced.items():
            now = value_of(key, recipe)
            if (list(now) if isinstance(now, tuple) else now) != value:
                # A setting that named a text is replaced by those that name it now.
                is_named = now is None and key in texts
                given = ", ".join(named) if is_named else setting_in_words(key, now)
                old = setting_in_words(key, value) if is_named else show_path(value)
                instead.append(f"{given} instead of {old}")
        if instead:
            lines.append(f"from {self.run}, not from the recipe: {', '.join(instead)}")
        return lines


def find_recipe(path: Path) -> Path | None:
    """Return the recipe of the run of a folder, checkpoint or model; None if it has no run."""
    folder = resolved(path)
    run = folder.parent if folder.name == "model" else folder
    if run.parent.name == _CHECKPOINTS:
        run = run.parent.parent
    recipes = (candidate / RUN_RECIPE for candidate in (folder, run))
    return next((recipe for recipe in recipes if recipe.is_file()), None)


def check_model_path(path: Path) -> None:
    """Raise CheckpointError where a path is no run, checkpoint or model folder; open no weights."""
    if not path.is_dir():
        run = path.parent.parent
        if path.parent.name == _CHECKPOINTS and (run / RUN_RECIPE).is_file():
            steps = saved_steps(path.parent)
            there = ", ".join(checkpoint_path(path.parent, step).name for step in steps) or "none"
            raise CheckpointError(
                f"{run} has no checkpoint {path.name}: there are {there}; to keep one, name it in "
                "train.keep_steps"
            )
        if str(path).startswith("hub:"):
            raise CheckpointError(
                f"{path} is read by `sublayer import huggingface {path}`: name the folder that it "
                "writes"
            )
        fault = f"{path} is a file" if path.is_file() else describe_absence(path)
        raise CheckpointError(f"{fault}: name a run, a checkpoint or a model folder")
    if (path / MANIFEST).is_file() or (path / RUN_RECIPE).is_file():
        return
    if (path / ENGINE_FILE).is_file():
        engine = read_json_object(path / ENGINE_FILE, CheckpointError).get("engine")
        raise CheckpointError(
            f"{path} is exported for {engine!s:.40}: give --engine {engine!s:.40}"
        )
    if not (path / _CONFIG).is_file():
        raise CheckpointError(
            f"{path} is not a run, a checkpoint or a model folder: "
            f"it has no {RUN_RECIPE} and no {_CONFIG}{describe_runs_within(path)}"
        )
    described = read_json_object(path / _CONFIG, CheckpointError)
    if described.get("format") != MODEL_FORMAT and "model_type" in described:
        raise CheckpointError(
            f"{path} is a HuggingFace folder: `sublayer import huggingface {path} --out OUT` "
            "converts it"
        )


def read_start(run: Any) -> Start | None:
    """Read the description of a run, checkpoint or model folder; None if it cannot be read.

    Raises UnnamedPlugin.
    """
    if not isinstance(run, str):
        return None
    try:
        folder = resolved(Path(run))
        recipe_path = find_recipe(folder)
        if recipe_path is not None:
            recipe = read_recipe(recipe_path)
            model = _shortest(recipe.model, recipe.data.context)
            return Start(run, model, recipe.data, recipe.init.run)
        content = read_json_object(folder / _CONFIG, ConfigError)
        check_listed(content.get(LISTED), str(folder / _CONFIG))
        described = content.get("model")
        if not isinstance(described, dict):
            return None
        fields = with_current_names(described, table="model")
        set_fields = {name: value for name, value in fields.items() if value is not None}
        return Start(run, _shortest(ModelConfig.model_validate(set_fields), 1), None)
    except UnnamedPlugin:
        raise
    except (ConfigError, ValueError, OSError):  # a path with a NUL is a ValueError
        return None


def _shortest(model: ModelConfig, context: int) -> ModelConfig:
    """Drop the fields of a resolved model that follow from others or have no effect."""
    complete, fields = ModelConfig.model_validate(dict(model)), ModelConfig.model_fields
    check_model(complete, vocab_size=complete.vocab_size or 1, context=context)
    recipe = Recipe(model=complete)
    unset = {name: None for name in fields if fields[name].default is None}
    follows = {name: field.default for name, field in fields.items()}
    follows |= derive(complete.model_copy(update=unset), vocab_size=1, context=context)
    if complete.d_model % complete.n_heads:
        follows["d_head"] = None  # the field must be given
    # Another recipe may have another tokenizer and another context.
    follows |= dict.fromkeys(_OF_TEXT)
    values = {
        name: value
        for name, value in complete
        if value not in (None, follows[name]) and not is_idle(f"model.{name}", recipe)
    }
    return ModelConfig.model_validate(values)


_OF_TEXT = ("vocab_size", "max_len")
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
"""Fields of ``[data]`` that name a text: if one is set, none is taken from the initial model."""
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
"""Fields that set how those texts are read."""
SEEN_AS = (
    "context",
    "source_language",
    "target_language",
    "moses",
    "moses_hyphens",
    "moses_escapes",
    "lowercase",
)
"""Fields that set the form of texts that the model was trained on, taken for any text."""


def _with_start(
    layers: Sequence[Layer],
) -> tuple[Sequence[Layer], Start | None, dict[str, Any]]:
    """Insert the settings of the initial model between the base and the layer that names it.

    Returns the layers; the initial model, None if there is none that can be read (the loading of
    its weights reports the error); and the settings of the base that it replaces, as given there.

    The recipe of a finished run is complete, so that nothing is inserted. Data settings of a base
    that names tasks have precedence, since a recipe for fine-tuning is for any model.
    """
    naming = [index for index, layer in enumerate(layers) if "init.run" in layer.values]
    if not naming:
        return layers, None, {}
    index = naming[-1]
    start = read_start(layers[index].values["init.run"])
    if start is None or layers[index].is_complete:
        return layers, start, {}
    base, upper = layers[:index], layers[index:]
    set_keys = {key for layer in upper for key in layer.values}
    of_data = {key for layer in base for key in layer.values if key.startswith("data.")}
    of_tasks = of_data if "data.tasks" in of_data else set()
    dropped = set(start.kept_fields(set_keys | of_tasks)) - of_tasks
    below = [
        replace(
            layer, values={key: layer.values[key] for key in layer.values if key not in dropped}
        )
        for layer in base
    ]
    base_values = {key: value for layer in base for key, value in layer.values.items()}
    replaced = {key: value for key, value in base_values.items() if key in dropped - set_keys}
    settings = {**_set_fields("model", start.model), **_set_fields("data", start.data)}
    settings = {key: value for key, value in settings.items() if key in dropped}
    longest = start.model.max_len
    if longest is not None and _context(layers if of_tasks else upper, 0) > longest:
        # As many positions as the context has: ``check_start`` refuses them if positions are
        # learned, and other schemes have no maximum.
        settings.pop("model.max_len", None)
    default = DataConfig.model_fields["context"].default
    if longest is not None and start.data is None and _context(below, default) > longest:
        settings["data.context"] = longest
    of_start = Layer(f"run {start.run}", settings)
    return (*below, of_start, *upper), start, replaced


def _context(layers: Sequence[Layer], default: int) -> int:
    contexts = [layer.values["data.context"] for layer in layers if "data.context" in layer.values]
    last = contexts[-1] if contexts else default
    # Values that are not numbers are errors when the recipe is built.
    return last if isinstance(last, int) else 0


def _seen_as(data: DataConfig) -> list[str]:
    # In texts other than pairs, capitals are lowered by the initial model's tokenizer.
    return [name for name in SEEN_AS if name != "lowercase" or data.is_parallel]


def _set_fields(table: str, content: ModelConfig | DataConfig | None) -> dict[str, Any]:
    """Return the fields of a table that differ from their defaults, as in a recipe file."""
    if content is None:
        return {}
    return {
        f"{table}.{name}": list(value) if isinstance(value, tuple) else value
        for name, value in content
        if value not in (type(content).model_fields[name].default, None)
    }


def _changes(table: str, before: Any, now: Any, names: Iterable[str]) -> list[str]:
    return [
        f"{setting_in_words(f'{table}.{name}', getattr(now, name))} (there {show_path(old)})"
        for name in names
        if (old := getattr(before, name)) != getattr(now, name) and name not in _OF_TEXT
    ]


def settle(layers: Sequence[Layer]) -> tuple[Recipe, dict[str, Setting], tuple[str, ...]]:
    """Merge layers, and drop inherited settings that a later layer makes ineffective.

    Returns the recipe, the settings, and notes on dropped settings, a line each. Raises ConfigError
    for a setting that was already ineffective in its own layer, and as ``merge`` and ``build`` do.
    """
    settings = merge(layers)
    notes: list[str] = []
    while True:
        recipe = build(settings)
        # A layer that restores a field's default has an effect on the setting of an earlier layer.
        idle = (
            (key, use)
            for key, setting in settings.items()
            if not setting.restores and (use := broken_use(key, recipe))
        )
        key, use = next(idle, ("", None))
        if use is None:
            return recipe, settings, tuple(notes)
        last = max(n for n, layer in enumerate(layers) if key in layer.values)
        had_effect = False
        if last < len(layers) - 1:
            with suppress(ConfigError):
                had_effect = key in settle(layers[: last + 1])[1]
        if not had_effect:
            raise ConfigError(use.without_effect(key, recipe, settings))
        # The loop ends, since the next recipe has one setting fewer.
        setting = settings.pop(key)
        later = {name for layer in layers[last + 1 :] for name in layer.values}
        deciders = [name for name in use.deciders if name in later] or use.deciders
        reasons = " and ".join(f"{name} = {show(value_of(name, recipe))}" for name in deciders)
        source = "the command line" if setting.origin == "command line" else setting.origin
        dropped = f"{key} = {show(setting.value)} of {source}"
        notes.append(f"{dropped} has no effect with {reasons}: dropped")


@dataclass(frozen=True)
class LoadedRecipe:
    """Checked recipe with the origin of each of its values."""

    recipe: Recipe
    origins: Mapping[str, str]
    """Origin by ``table.field``: ``default``, ``recipe gpt``, ``run runs/a``, ``command line`` ...
    """
    name: str
    """Name of the recipe, after which a run is named."""
    layers: tuple[Layer, ...]
    """Layers that were merged, the base first."""
    run: Path | None = None
    """Folder of the run from which the recipe was read; None if it was not read from a run."""
    start: Start | None = None
    """Initial model that ``init.run`` names; None if there is none that can be read."""
    notes: tuple[str, ...] = ()
    """Notes on unexpected effects of the layers, and on dropped settings, a line each."""

    def vary(
        self, overrides: Sequence[str] | Mapping[str, Any], *, origin: str = "vary"
    ) -> "LoadedRecipe":
        """Return a loaded recipe with one more layer of overrides.

        The layer is an arm of a study, or a derived value. Raises ConfigError as ``load_recipe``
        does.
        """
        layer = override_layer(overrides, origin)
        return load_layers([*self.layers, layer], self.name)


def load_recipe(
    source: str | PathLike[str],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    origin: str = "command line",
) -> LoadedRecipe:
    """Load a recipe, with overrides.

    ``source`` is the name of a shipped recipe, or the path of a .toml file or of a finished run.
    ``overrides`` are ``key=value`` texts, or values by key; ``origin`` is their origin. Settings of
    an earlier layer that a later one makes ineffective are dropped, with a line of ``notes``.
    Raises ConfigError, in one line, for the first invalid or ineffective setting.
    """
    recipe_source = find_source(fspath(source))
    layers = recipe_source.read_layers()
    if overrides:
        layers.append(override_layer(overrides, origin))
    return replace(load_layers(layers, recipe_source.name), run=recipe_source.run)


def load_layers(layers: Sequence[Layer], name: str) -> LoadedRecipe:
    """Merge layers, the base first, into a checked recipe; raise as ``load_recipe`` does."""
    merged, start, replaced = _with_start(layers)
    recipe, settings, dropped = settle(merged)
    kind, objective = recipe.model.kind, recipe.objective
    if start is not None and start.model.kind == kind and not objective.trains_kind(kind):
        raise ConfigError(
            f"init.run = {start.run} has model.kind = {kind}, but the recipe trains another kind "
            f"of model ({' or '.join(objective.model_kinds)}, objective.kind = {objective.kind}): "
            "start from a model of that kind, or leave out init.run"
        )
    mark_used(used_plugins(recipe.model, recipe.optimizer))
    check_recipe(recipe)
    if recipe.train.steps is not None:
        warmup_steps(recipe.optimizer, recipe.train.steps)
        recipe.train.check_keep_steps(recipe.train.steps)
    fields = [key for key in keys() if has_value(key, recipe)]
    origins = dict.fromkeys((*HEADINGS, *fields), "default")
    origins |= {key: setting.origin for key, setting in settings.items()}
    notes = [layer.note for layer in layers if layer.note]
    notes += [] if start is None else start.describe(replaced, recipe)
    return LoadedRecipe(recipe, origins, name, tuple(layers), start=start, notes=(*notes, *dropped))
