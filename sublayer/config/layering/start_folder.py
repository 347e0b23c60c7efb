"""What the folder of a model that training starts from says of it: architecture and text."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from sublayer.config.data import DataConfig
from sublayer.config.fields.applicability import is_idle
from sublayer.config.fields.renames import with_current_names
from sublayer.config.layering.run_recipe import read_recipe
from sublayer.config.layering.sources import RUN_RECIPE
from sublayer.config.model import ModelConfig
from sublayer.config.recipe import Recipe
from sublayer.config.resolve_model import resolve_model
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
    """What that training started from."""

    @property
    def is_imported(self) -> bool:
        """Whether its weights began as those of an imported model, however long they trained on."""
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
