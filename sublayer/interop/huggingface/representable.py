"""How a table says what a foreign class can represent, and which fields of a model it refuses."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sublayer.config.architecture.block import Entry, with_cross
from sublayer.config.architecture.derived import head_activation, is_factorised
from sublayer.config.architecture.stacks import entries, stacks
from sublayer.config.fields.catalog import extra
from sublayer.config.resolved import ResolvedModel
from sublayer.interop.activations import has_activation_name, network_activation
from sublayer.interop.t5.t5_networks import has_network_name


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
    missing = [name for name in type(config).model_fields if name not in table]
    refused = []
    for name in (*table, *missing):
        if not _is_allowed(config, name, table):
            refused.append(name)
    described = []
    for name in refused:
        deciders = _deciders(config, name)
        if deciders.isdisjoint(refused):
            described.append(f"model.{name} = {_format_field(config, name, table)}")
    return described


def _is_allowed(config: ResolvedModel, name: str, table: Table) -> bool:
    allowed = table.get(name, ())
    if isinstance(allowed, Rule):
        return allowed.holds(config)
    return getattr(config, name) in allowed


def _format_field(config: ResolvedModel, name: str, table: Table) -> str:
    value = getattr(config, name)
    rule = table.get(name)
    if isinstance(rule, Rule) and rule.value is not None:
        value = rule.value(config)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        value = list(value)
    return str(value)


def _deciders(config: ResolvedModel, name: str) -> set[str]:
    """Return the fields whose values decide whether a field counts."""
    info = type(config).model_fields[name]
    needs = extra(info).get("needs")
    return set(needs or ())


def _steps(block: tuple[Entry, ...]) -> list[tuple[str, float]]:
    return [(entry.name, entry.step) for entry in block]


def _has_usual_block(config: ResolvedModel) -> bool:
    first, *_ = stacks(config)
    usual = [("attention", 1.0), ("ffn", 1.0)]
    return _steps(first.block) == usual


def _has_usual_decoder_block(config: ResolvedModel) -> bool:
    encoder, decoder = stacks(config)
    usual = [("attention", 1.0), ("cross", 1.0), ("ffn", 1.0)]
    # What follows from the encoder's block is named there.
    of_encoder = with_cross(encoder.block)
    return _steps(decoder.block) in (usual, _steps(of_encoder))


def _networks(config: ResolvedModel) -> list[str]:
    networks = set()
    for entry in entries(config):
        if entry.variant is not None:
            networks.add(entry.variant)
    return sorted(networks)


def _one_network(has_name: Callable[[str], bool]) -> Rule:
    """Build the rule of the same network in every block, which a class has a name for."""

    def holds(config: ResolvedModel) -> bool:
        networks = _networks(config)
        return len(networks) <= 1 and all(map(has_name, networks))

    def in_the_way(config: ResolvedModel) -> str:
        networks = _networks(config)
        unnamed = [name for name in networks if not has_name(name)]
        return ", ".join(unnamed or networks)

    return Rule(holds, in_the_way)


def _activates_head_alike(config: ResolvedModel) -> bool:
    return config.head == "none" or head_activation(config) in map(
        network_activation, _networks(config)
    )


def _predicts_where_it_judges(config: ResolvedModel) -> bool:
    return config.head == "transform" or (config.head == "none" and not config.sentence_classes)


def _projects_sum(config: ResolvedModel) -> bool:
    if is_factorised(config):
        return config.embedding_projection == "sum"
    return config.embedding_projection in ("sum", "tokens")


def _pools_for_sentences(config: ResolvedModel) -> bool:
    if config.pooler == "none":
        return config.sentence_classes != 2
    return config.pooler == "tanh"


def _pads_before_first(config: ResolvedModel) -> bool:
    return 0 < config.first_position <= config.vocab_size


def _heads_fill_d_model(config: ResolvedModel) -> bool:
    return config.d_head * config.n_heads == config.d_model


def _has_tanh_gelu(config: ResolvedModel) -> bool:
    if config.gelu == "exact":
        return "gelu" not in _networks(config)
    return config.gelu == "tanh"


ANY = Rule(lambda config: True)
"""A number that every class has, or that trained weights no longer show."""
USUAL_BLOCK = Rule(_has_usual_block)
"""Attention, then a feed-forward network, each added whole."""
USUAL_DECODER_BLOCK = Rule(_has_usual_decoder_block)
"""Attention, cross-attention, then a feed-forward network, each added whole."""
USUAL_NETWORK = _one_network(has_activation_name)
"""In every block the same network, without a gate, of an activation that transformers has."""
T5_NETWORK = _one_network(has_network_name)
"""In every block the same network, gated or not, that T5's class has a name for."""
HEADS_FILL_D_MODEL = Rule(_heads_fill_d_model)
"""``d_head * n_heads == d_model``."""
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
PADDING_BEFORE_FIRST = Rule(_pads_before_first)
"""Positions are numbered from the id of the padding on, which is an id of the vocabulary."""


def final_norms(*allowed: str, norm: str = "layer") -> Rule:
    """Build the rule of the norm after the last block; with other norms, the norm is named."""
    return Rule(lambda config: config.norm != norm or config.final_norm in allowed)
