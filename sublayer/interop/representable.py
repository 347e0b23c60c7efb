"""Models representable in foreign classes: allowed values of fields, or rules."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sublayer.config.architecture import FFNS, Entry, with_cross
from sublayer.config.model import ModelConfig
from sublayer.config.recipe import ResolvedModel, extra
from sublayer.config.resolve import resolve_model
from sublayer.config.stacks import entries, stacks
from sublayer.errors import ConfigError


@dataclass(frozen=True)
class Rule:
    """A condition that a field, or several together, must meet in a resolved config."""

    holds: Callable[[ResolvedModel], bool]
    value: Callable[[ResolvedModel], Any] | None = None
    """Computes the field's value in an error; None shows its own value."""


Table = Mapping[str, tuple[Any, ...] | Rule]
"""Of some fields of a model the values that a class has an equal for, or a rule."""


def refused_fields(config: ResolvedModel, table: Table) -> list[str]:
    """List the fields of a resolved config, with values, that a class cannot represent.

    A field without a row is among them unless it has its default, or counts for nothing. One that
    counts only where another has certain values is left out where that other is refused. Each reads
    as ``model.norm = rms``; an empty list says that the class can represent the model.
    """
    refused = []
    for name in type(config).model_fields:
        row = table.get(name)
        if row is None:
            is_allowed = _is_idle(config, name) or getattr(config, name) == _default(config, name)
        elif isinstance(row, Rule):
            is_allowed = row.holds(config)
        else:
            is_allowed = getattr(config, name) in row
        if not is_allowed:
            refused.append(name)
    described = []
    for name in refused:
        if set(_deciders(config, name)).isdisjoint(refused):
            described.append(f"model.{name} = {_format_field(config, name, table.get(name))}")
    return described


def _deciders(config: ResolvedModel, name: str) -> Mapping[str, tuple[Any, ...]]:
    """Return the fields, and their values, under which a field has an effect."""
    if name == "final_norm":
        return {"norm": ("layer", "rms")}
    needs: Mapping[str, tuple[Any, ...]] = extra(type(config).model_fields[name]).get("needs") or {}
    return needs


def _is_idle(config: ResolvedModel, name: str) -> bool:
    deciders = _deciders(config, name).items()
    return any(getattr(config, decider) not in values for decider, values in deciders)


def _default(config: ResolvedModel, name: str) -> Any:
    """Return a field's default value."""
    default = type(config).model_fields[name].default
    if default is not None:
        return default
    model = ModelConfig.model_construct(**{**dict(config), name: None})
    try:
        derived = resolve_model(model, vocab_size=config.vocab_size, context=1)
    except ConfigError:
        return None
    return getattr(derived, name)


def _format_field(config: ResolvedModel, name: str, row: tuple[Any, ...] | Rule | None) -> str:
    value = getattr(config, name)
    if isinstance(row, Rule) and row.value is not None:
        value = row.value(config)
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value) if isinstance(value, tuple) else value)


def _steps(block: tuple[Entry, ...]) -> list[tuple[str, float]]:
    return [(entry.name, entry.step) for entry in block]


def _has_usual_block(config: ResolvedModel) -> bool:
    first, *_ = stacks(config)
    return _steps(first.block) == [("attention", 1.0), ("ffn", 1.0)]


def _has_usual_decoder_block(config: ResolvedModel) -> bool:
    encoder, *beside = stacks(config)
    usual = [("attention", 1.0), ("cross", 1.0), ("ffn", 1.0)]
    # What follows from the encoder's block is named there.
    allowed = (usual, _steps(with_cross(encoder.block)))
    return all(_steps(decoder.block) in allowed for decoder in beside)


def networks(config: ResolvedModel) -> list[str]:
    """List the feed-forward networks of a model's blocks, each once."""
    return sorted({entry.variant for entry in entries(config) if entry.variant is not None})


def network_rows(known: Collection[tuple[str, str]]) -> Table:
    """Return the rows of the same network in every block, of those ``known`` with their GELUs."""
    names = {name for name, _ in known}

    def has_gelu(config: ResolvedModel) -> bool:
        gelus = [name for name in networks(config) if name in names and is_gelu(name)]
        return all((name, config.gelu) in known for name in gelus)

    def in_the_way(config: ResolvedModel) -> str:
        unknown = [name for name in networks(config) if name not in names]
        return ", ".join(unknown or networks(config))

    def is_one(config: ResolvedModel) -> bool:
        return len(networks(config)) <= 1 and names.issuperset(networks(config))

    return {"ffn": Rule(is_one, in_the_way), "gelu": Rule(has_gelu)}


def is_gelu(network: str) -> bool:
    """Return whether a network's activation is a GELU, of one form or the other."""
    return FFNS[network].activation == "gelu"


ANY = Rule(lambda config: True)
"""All values of a field."""
TRAINING_ONLY = (
    *("dropout", "dropout_attention", "dropout_ffn", "dropout_embedding", "dropout_embedding_of"),
    *("dropout_final", "init", "init_std", "vocab_multiple", "zero_padding"),
)
"""Fields of a model that change no number of a trained one."""
EXPANDED: Mapping[tuple[str, Any], tuple[Any, ...]] = {
    ("bias", True): (False,),
    ("norm_affine", True): (False,),
    ("head_bias", True): (False,),
    ("final_norm", "affine"): ("plain",),
    ("positions", "learned"): ("sinusoidal", "none"),
    ("segments", "both"): ("none", "second"),
    ("share", "none"): ("all", "attention", "ffn"),
    ("embedding_scale", "none"): ("sqrt",),
    ("project_embeddings", "always"): ("as-needed",),
    ("softmax", "tokens"): ("all",),
}
"""Values of a field of which other models can be written: biases as zeros, shared weights once for
each block, sinusoids as a table (see ``expand``)."""
COMMON: Table = {
    **dict.fromkeys(TRAINING_ONLY, ANY),
    # Attention, then a feed-forward network, with step size 1; in an encoder-decoder's decoder with
    # cross-attention between them.
    "block": Rule(_has_usual_block),
    "decoder_block": Rule(_has_usual_decoder_block),
    # They count where the field before them is not the default, and are written out with it.
    **dict.fromkeys(("sinusoids", "first_position", "share_groups", "share_inner"), ANY),
    # Where the table is as wide as the model, and is not projected.
    "embedding_projection": ANY,
    # Every token is of the first segment, which has no vector, or one of zeros.
    "segments": ("none", "second"),
    "softmax": ("tokens",),
}
"""Rows of every class."""


def rows_of(always: Mapping[str, Any]) -> Table:
    """Return the rows of fields that a class requires, with equivalent values."""
    rows = {name: (value, *EXPANDED.get((name, value), ())) for name, value in always.items()}
    return {name: row for name, row in rows.items() if name not in TRAINING_ONLY}
