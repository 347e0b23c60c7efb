"""Refuse a recipe whose model does not fit its starting weights, by field."""

import shlex

from pydantic import ValidationError

from sublayer.config.layers import as_setting
from sublayer.config.load import LoadedRecipe, Start
from sublayer.config.messages import show
from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.config.stacks import check_first_blocks, position_scheme
from sublayer.errors import ConfigError
from sublayer.estimate.cost import count_parameters

_ORDERS = ("block", "decoder_block")
"""Fields that permute the same number of weights."""
_OF_HEADS = (
    "head",
    "head_activation",
    "head_bias",
    "pooler",
    "sentence_classes",
    "label_outputs",
    "span_head",
)
"""Fields of parts that are newly initialized if the start has none that fits."""


def check_start(loaded: LoadedRecipe, command: str = "train") -> None:
    """Raise ConfigError if a recipe needs other weights than its start has.

    The message names each field with both values, and a working command. Heads may differ, learned
    positions be fewer, and with ``init.layers`` the number of blocks may differ.
    """
    start = loaded.start
    if start is None:
        return
    model, layers = loaded.recipe.model, loaded.recipe.init.layers
    if layers is not None:
        check_first_blocks(layers, start.model, start.run)
        check_first_blocks(layers, model, "the recipe")
    fields = _fields_of_weights(start, loaded)
    if fields:
        differences = [
            f"model.{name} = {show(getattr(model, name))} where {start.run} has "
            f"{show(getattr(start.model, name))}"
            for name in fields
        ]
        raise ConfigError(
            f"the weights of {start.run} do not fit {' and '.join(differences)}: "
            f"{_remedy(loaded, start, fields, command)}"
        )
    context, learned = loaded.recipe.data.context, start.model.max_len
    if position_scheme(model).has_rows and context > (learned or context):
        raise ConfigError(
            f"data.context = {context} is longer than the {learned} positions that {start.run} has "
            f"learned, and no others can be added: {_remedy(loaded, start, [], command)}"
        )


def _fields_of_weights(start: Start, loaded: LoadedRecipe) -> list[str]:
    """Return the changed fields that by themselves need other weights."""
    model = loaded.recipe.model
    theirs = _n_parameters(start.model)
    fields = []
    for name in ModelConfig.model_fields:
        value = getattr(model, name)
        # Ids follow from the tokenizer, and positions from the start, by default.
        if value == getattr(start.model, name) or name in ("vocab_size", *_OF_HEADS):
            continue
        if name == "max_len" and (value or 0) <= (start.model.max_len or value or 0):
            continue
        if name in ("n_layers", "n_decoder_layers") and loaded.recipe.init.layers is not None:
            continue
        if name in _ORDERS or _with(start.model, name, value) != theirs:
            fields.append(name)
    return fields


def _with(model: ModelConfig, name: str, value: object) -> int | None:
    """Count the parameters of a model with one field changed; None if that has no meaning."""
    changed = {**model.model_dump(exclude_unset=True), name: value}
    try:
        return _n_parameters(ModelConfig.model_validate(changed))
    except (ConfigError, ValidationError):
        return None


def _n_parameters(model: ModelConfig) -> int:
    # Both have the start's tokenizer and its positions, which therefore do not count as
    # differences.
    rows, positions = model.vocab_size or model.vocab_multiple, model.max_len or 2
    resolved = resolve_model(model, vocab_size=rows, context=positions)
    return count_parameters(resolved).total


def _remedy(loaded: LoadedRecipe, start: Start, fields: list[str], command: str) -> str:
    """Word the remedy: the command line's settings without those that do not fit."""
    keys = [f"model.{name}" for name in fields]
    if loaded.recipe.data.context > (start.model.max_len or loaded.recipe.data.context):
        keys.append("data.context")
    *_, last = loaded.layers
    below = loaded.layers[-2].origin if len(loaded.layers) > 1 else ""
    is_told = last.origin == "command line" and any(key in last.values for key in keys)
    # With a preset the words also name tasks and folders, which are in no layer.
    if not is_told or below.startswith("preset "):
        return f"leave out {' and '.join(keys)}, which keeps those of {start.run}"
    source = below.partition(" ")[2] if below else loaded.name
    settings = {key: value for key, value in last.values.items() if key not in keys}
    for key, name in zip(keys, fields, strict=False):
        if key not in last.values:
            settings[key] = getattr(start.model, name)
    words = ["sublayer", command, source]
    words += [f"{key}={as_setting(value)}" for key, value in settings.items()]
    return f"leave out {' and '.join(keys)}, as in `{shlex.join(words)}`"
