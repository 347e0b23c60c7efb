"""Models that foreign classes can represent: for every field of a model the values, or a rule."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sublayer.config.architecture.block import Entry, with_cross
from sublayer.config.architecture.derived import head_activation, is_factorised
from sublayer.config.architecture.stacks import entries, stacks
from sublayer.config.fields.catalog import extra
from sublayer.config.resolved import ResolvedModel
from sublayer.interop.foreign_config import has_activation_name, network_activation


@dataclass(frozen=True)
class Rule:
    """A condition that a field, or several together, must meet in a resolved config."""

    holds: Callable[[ResolvedModel], bool]
    value: Callable[[ResolvedModel], Any] | None = None
    """Computes what an error shows of the field; None shows its own value."""


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


def _networks(config: ResolvedModel) -> list[str]:
    return sorted({entry.variant for entry in entries(config) if entry.variant is not None})


def one_network(has_name: Callable[[str], bool]) -> Rule:
    """Build the rule of the same network in every block, which a class has a name for."""

    def holds(config: ResolvedModel) -> bool:
        networks = _networks(config)
        return len(networks) <= 1 and all(map(has_name, networks))

    def in_the_way(config: ResolvedModel) -> str:
        networks = _networks(config)
        return ", ".join([name for name in networks if not has_name(name)] or networks)

    return Rule(holds, in_the_way)


def final_norms(*allowed: str, norm: str = "layer") -> Rule:
    """Build the rule of the norm after the last block; with other norms, the norm is named."""
    return Rule(lambda config: config.norm != norm or config.final_norm in allowed)


def _activates_head_alike(config: ResolvedModel) -> bool:
    activations = map(network_activation, _networks(config))
    return config.head == "none" or head_activation(config) in activations


def _predicts_where_it_judges(config: ResolvedModel) -> bool:
    return config.head == "transform" or (config.head == "none" and not config.sentence_classes)


def _projects_sum(config: ResolvedModel) -> bool:
    return config.embedding_projection == "sum" or not is_factorised(config)


def _pools_for_sentences(config: ResolvedModel) -> bool:
    return config.pooler == "tanh" or config.sentence_classes != 2


def _has_tanh_gelu(config: ResolvedModel) -> bool:
    return config.gelu == "tanh" or "gelu" not in _networks(config)


ANY = Rule(lambda config: True)
"""A number that every class has, or that trained weights no longer show."""
USUAL_DECODER_BLOCK = Rule(_has_usual_decoder_block)
"""Attention, cross-attention, then a feed-forward network, each added whole."""
TANH_GELU = Rule(_has_tanh_gelu)
"""A GELU is that by tanh."""
NETWORK_OF_FOUR_WIDTHS = Rule(lambda config: config.d_ff == 4 * config.d_model)
"""``d_ff == 4 * d_model``."""
TWO_FREQUENCIES = Rule(lambda config: config.d_model > 2)
"""Sinusoids have two frequencies or more: the class divides by the steps between them."""
TABLE_AS_WIDE_AS_MODEL = Rule(lambda config: config.d_embed == config.d_model)
"""``d_embed == d_model``."""
SUM_WHERE_FACTORISED = Rule(_projects_sum)
"""Where embeddings are projected, their sum is."""
HEAD_ACTIVATION_OF_BLOCKS = Rule(_activates_head_alike, head_activation)
"""The head's activation is that of the feed-forward networks."""
POOLER_FOR_SENTENCES = Rule(_pools_for_sentences)
"""Sentences are judged by what a pooler makes of them."""
TOKENS_WHERE_SENTENCES = Rule(_predicts_where_it_judges)
"""Tokens are predicted by a transform head, or there is no head at all."""
PADDING_BEFORE_FIRST = Rule(lambda config: 0 < config.first_position <= config.vocab_size)
"""Positions are numbered from the id of the padding on, which is an id of the vocabulary."""

EITHER = (True, False)
# What a class always has, or never, may be written otherwise (see ``expand``): biases as zeros,
# shared weights once for each block, sinusoids as a table.
ALL: Table = {
    "swish_beta": (1.0,),
    # Attention, then a feed-forward network, each added whole.
    "block": Rule(_has_usual_block),
    # The same in every block, without a gate, of an activation that transformers has.
    "ffn": one_network(has_activation_name),
    "gelu": ("exact", "tanh"),
    "norm": ("layer",),
    "norm_affine": EITHER,
    "norm_eps": ANY,
    "positions": ("learned", "sinusoidal", "none"),
    "sinusoids": ("tensor2tensor", "fairseq", "marian", "interleaved"),
    "first_position": ANY,
    "rotary_base": ANY,
    "relative_buckets": ANY,
    "relative_distance": ANY,
    "n_layers": ANY,
    "d_model": ANY,
    "n_heads": ANY,
    "d_head": Rule(lambda config: config.d_head * config.n_heads == config.d_model),
    "d_ff": ANY,
    "share": ("none", "all", "attention", "ffn"),
    "share_groups": ANY,
    "share_inner": ANY,
    "softmax": ("tokens",),
    "tie_embeddings": EITHER,
    "embedding_scale": ("none", "sqrt"),
    "output_scale": ("none",),
    "attention_scale": ("sqrt",),
    "bias": EITHER,
    "vocab_size": ANY,
    "max_len": ANY,
    "label_outputs": (0,),
    "span_head": ("none",),
    # What changes no number of a trained model.
    "dropout": ANY,
    "dropout_attention": ANY,
    "dropout_ffn": ANY,
    "dropout_embedding": ANY,
    "dropout_embedding_of": ("sum", "matrix"),
    "dropout_final": ANY,
    "init": ("normal", "scaled", "truncated", "xavier", "kaiming", "t5"),
    "init_std": ANY,
    "zero_padding": EITHER,
    "vocab_multiple": ANY,
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
    "decoder_block": USUAL_DECODER_BLOCK,
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
