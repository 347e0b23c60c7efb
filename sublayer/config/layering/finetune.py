"""The recipe of fine-tuning: a model to start from, tasks, a preset, and what is told."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from sublayer.config.layering.layers import LoadedRecipe, load_layers
from sublayer.config.layering.overrides import override_layer
from sublayer.config.layering.settings import Layer
from sublayer.config.layering.sources import find_source, read_layers, shipped_recipes
from sublayer.config.layering.start_folder import read_start
from sublayer.config.objectives.supervised import KINDS, Format
from sublayer.errors import ConfigError
from sublayer.files.paths import as_typed

_FORMATS: dict[str, Format] = {
    kind: next(name for name, kinds in KINDS.items() if kind in kinds)  # type: ignore[misc]
    for kind in ("encoder", "decoder", "encoder-decoder")
}
"""The format of each kind of model, unless told: the first that it can read."""


_ADAM = {
    "optimizer.kind": "adamw",
    "optimizer.schedule": "linear",
    "optimizer.warmup_share": 0.1,
    "optimizer.weight_decay": 0.01,
    "optimizer.clip_norm": 1.0,
    "train.batch_sequences": 32,
    "train.epochs": 3.0,
    "train.best_by": "score",
}
_DEFAULTS: dict[Format, dict[str, Any]] = {
    "pair": {**_ADAM, "optimizer.lr": 2e-4},
    "traversal": {**_ADAM, "optimizer.lr": 2e-4, "objective.language_weight": 0.5},
    "text": {**_ADAM, "optimizer.lr": 1e-3},
}
"""What is set where nothing is told: ours, for models of a few million parameters."""


def load_finetune(
    source: str,
    tasks: Sequence[str],
    folder: str | None,
    settings: Mapping[str, Any],
    overrides: Sequence[str] | Mapping[str, Any] = (),
    *,
    origin: str = "default",
) -> LoadedRecipe:
    """Put together the recipe that ``sublayer finetune`` trains.

    ``source`` is a run, a checkpoint or an imported folder to start from, or a recipe, whose model
    then starts from random weights. ``folder`` has the tasks' files. ``settings`` are those of a
    preset, of which ``origin`` is the name. Raises ConfigError as ``load_recipe`` does.
    """
    told = override_layer(overrides, "command line")
    base: list[Layer] = []
    words: dict[str, Any] = {
        "title": f"{', '.join(tasks)}, fine-tuned from {as_typed(source)}",
        "source": "sublayer finetune",
        "cost": "",
        "objective.kind": "supervised",
        "objective.format": format_of(source),
        "data.tasks": list(tasks) if len(tasks) > 1 else tasks[0],
    }
    if folder is not None:
        words["data.path"] = folder
    if is_recipe(source):
        base = read_layers(find_source(source))
    else:
        words["init.run"] = source
    format_ = told.values.get("objective.format", words["objective.format"])
    defaults = _DEFAULTS.get(format_, {})
    layers = [
        *base,
        Layer("finetune", {**defaults, **words}),
        Layer(origin, dict(settings)),
        told,
    ]
    loaded = load_layers(layers, "-".join(tasks))
    # What the recipe of a pre-training says of its text has no effect here, which is no news.
    return replace(
        loaded, notes=tuple(note for note in loaded.notes if "has no effect" not in note)
    )


def is_recipe(source: str) -> bool:
    """Return whether a word names a recipe, and no model."""
    if source in shipped_recipes():
        return True
    return Path(source).suffix == ".toml"


def kind_of(source: str) -> str:
    """Return the kind of model that a run, a folder or a recipe has.

    Raises ConfigError where there is none.
    """
    if is_recipe(source):
        layers = read_layers(find_source(source))
        kind = "decoder"
        for layer in layers:
            kind = layer.values.get("model.kind", kind)
        return kind
    start = read_start(source)
    if start is None:
        raise ConfigError(
            f"{as_typed(source)} is no run, no imported folder and no recipe: name what to start "
            "from (`sublayer runs` lists runs)"
        )
    return start.model.kind


def format_of(source: str) -> Format:
    """Return the format in which a model reads tasks, unless told. Raises as ``kind_of`` does."""
    kind = kind_of(source)
    if kind not in _FORMATS:
        raise ConfigError(f"a model.kind = {kind} answers no task")
    return _FORMATS[kind]
