"""Models that foreign classes can represent: for every field of a model the values, or a rule."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sublayer.config.architecture import Entry, with_cross
from sublayer.config.recipe import ResolvedModel, extra
from sublayer.config.stacks import entries, stacks
from sublayer.interop.foreign_config import has_activation_name


@dataclass(frozen=True)
class Rule:
    """A condition that a field, or several together, must meet in a resolved config."""

    holds: Callable[[ResolvedModel], bool]
    value: Callable[[ResolvedModel], Any] | None = None
    """Computes the field's value in an error; None shows its own value."""


Table = Mapping[str, tuple[Any, ...] | Rule]
"""For every field of a model the values that a class has an equal for, or a rule."""


def refused_fields(config: ResolvedModel, table: Table) -> list[str]:
    """List the fields of a resolved config, with their values, that a class has no equal for.

    A field without a row is among them, whatever its value: nobody has said what becomes of it.
    One that counts only where another has certain values is left out where that other is refused.
    Each reads as ``model.norm = rms``; an empty list says that the class can represent the model.
    """
    refused = []
    for name in {**table, **type(config).model_fields}:
        allowed = table.get(name, ())
        if isinstance(allowed, Rule):
            is_allowed = allowed.holds(config)
        else:
            is_allowed = getattr(config, name) in allowed
        if not is_allowed:
            refused.append(name)
    described = []
    for name in refused:
        deciders = extra(type(config).model_fields[name]).get("needs") or ()
        if set(deciders).isdisjoint(refused):
            described.append(f"model.{name} = {_format_field(config, name, table.get(name))}")
    return described


def _format_field(config: ResolvedModel, name: str, rule: Any) -> str:
    value = getattr(config, name)
    if isinstance(rule, Rule) and rule.value is not None:
        value = rule.value(config)
    if isinstance(value, bool):
        return str(value).lower()
    return str(list(value) if isinstance(value, tuple) else value)


def _steps(block: tuple[Entry, ...]) -> list[tuple[str, float]]:
    return [(entry.name, entry.step) for entry in block]


def _has_usual_block(config: ResolvedModel) -> bool:
    first, *_ = stacks(config)
    return _steps(first.block) == [("attention", 1.0), ("ffn", 1.0)]


def _has_usual_decoder_block(config: ResolvedModel) -> bool:
    encoder, decoder = stacks(config)
    usual = [("attention", 1.0), ("cross", 1.0), ("ffn", 1.0)]
    # What follows from the encoder's block is named there.
    return _steps(decoder.block) in (usual, _steps(with_cross(encoder.block)))


def networks(config: ResolvedModel) -> list[str]:
    """List the feed-forward networks of a model's blocks, each once."""
    return sorted({entry.variant for entry in entries(config) if entry.variant is not None})


def one_network(has_name: Callable[[str], bool]) -> Rule:
    """Build the rule of the same network in every block, which a class has a name for."""

    def holds(config: ResolvedModel) -> bool:
        return len(networks(config)) <= 1 and all(map(has_name, networks(config)))

    def in_the_way(config: ResolvedModel) -> str:
        unnamed = [name for name in networks(config) if not has_name(name)]
        return ", ".join(unnamed or networks(config))

    return Rule(holds, in_the_way)


def final_norms(*allowed: str, norm: str = "layer") -> Rule:
    """Build the rule of the norm after the last block; with other norms, the norm is named."""
    return Rule(lambda config: config.norm != norm or config.final_norm in allowed)


ANY = Rule(lambda config: True)
"""A number that every class has, or that trained weights no longer show."""
TABLE_AS_WIDE_AS_MODEL = Rule(lambda config: config.d_embed == config.d_model)
"""``d_embed == d_model``."""

EITHER = (True, False)
_ANY = """
    norm_eps first_position rotary_base relative_buckets relative_distance n_layers d_model
    n_heads d_ff share_groups share_inner vocab_size max_len dropout dropout_attention
    dropout_ffn dropout_embedding dropout_final init_std vocab_multiple
"""
"""Fields of which every class has all values, or that change no number of a trained model."""
# Parts that a class always or never has may be written otherwise (see ``expand``): biases as zeros,
# shared weights once for each block, sinusoids as a table.
ALL: Table = {
    **dict.fromkeys(_ANY.split(), ANY),
    "swish_beta": (1.0,),
    # Attention, then a feed-forward network, each added whole.
    "block": Rule(_has_usual_block),
    # The same in every block, without a gate, of an activation that transformers has.
    "ffn": one_network(has_activation_name),
    "gelu": ("exact", "tanh"),
    "norm": ("layer",),
    "norm_affine": EITHER,
    "positions": ("learned", "sinusoidal", "none"),
    "sinusoids": ("tensor2tensor", "fairseq", "marian", "interleaved"),
    "d_head": Rule(lambda config: config.d_head * config.n_heads == config.d_model),
    "share": ("none", "all", "attention", "ffn"),
    "softmax": ("tokens",),
    "tie_embeddings": EITHER,
    "embedding_scale": ("none", "sqrt"),
    "output_scale": ("none",),
    "attention_scale": ("sqrt",),
    "bias": EITHER,
    "label_outputs": (0,),
    "span_head": ("none",),
    "dropout_embedding_of": ("sum", "matrix"),
    "init": ("normal", "scaled", "truncated", "xavier", "kaiming", "t5"),
    "zero_padding": EITHER,
}
ONE_STACK: Table = {
    "n_decoder_layers": ANY,
    "decoder_block": ANY,
    "decoder_start": ("end", "pad"),
}
"""Fields that only a decoder beside an encoder has."""
NO_ENCODER: Table = {
    "embedding_norm": (False,),
    "d_embed": TABLE_AS_WIDE_AS_MODEL,
    "embedding_projection": ("tokens", "sum"),
    "project_embeddings": ("as-needed",),
    # Every token is of the first segment, which has no vector, or one of zeros.
    "segments": ("none", "second"),
    "head": ("linear",),
    "head_activation": ("ffn", "relu", "gelu", "swish"),
    "pooler": ("none", "tanh"),
    "sentence_classes": (0, 1, 2),
}
"""Fields that encoders alone are exported with."""
PAIR: Table = {
    "kind": ("encoder-decoder",),
    **ALL,
    **NO_ENCODER,
    "n_decoder_layers": ANY,
    # Attention, cross-attention, then a feed-forward network, each added whole.
    "decoder_block": Rule(_has_usual_decoder_block),
    "decoder_start": ("end", "pad"),
}
"""An encoder and a decoder beside it."""
ANSWERS: Table = {
    "head": ("none", "linear", "transform"),
    "softmax": ("tokens", "all"),
    "head_activation": ("ffn", "relu", "gelu", "swish"),
    "head_bias": EITHER,
    "output_scale": ("none", "sqrt"),
    "sentence_classes": (0, 1, 2),
}
"""Heads that a model may have beside the one that answers, and that are left out."""
