"""The heads of models: rows of a table that counts, models and warm starts read."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from sublayer.config.recipe import ResolvedModel
from sublayer.config.stacks import (
    head_activation,
    is_factorised,
    learns_beta,
    linear_parameters,
    norm_parameters,
)

Reads = Literal["positions", "text", "pooled"]
"""The final hidden state of every position, that which stands for the text, or that one pooled."""


@dataclass(frozen=True)
class HeadRow:
    """Properties of a head that are known from the settings alone."""

    implementation: str
    """The class that computes it, as ``module:class``."""
    attribute: str
    """Prefix of the names of its saved tensors; also an attribute of the model."""
    title: str
    """Its name in messages."""
    reads: Reads
    is_asked: Callable[[ResolvedModel], bool]
    """True where a model has it, of whatever kind."""
    n_parameters: Callable[[ResolvedModel], int]
    """Counts its parameters where a model has it."""
    n_products: Callable[[ResolvedModel], int]
    """Counts the multiply-adds of its matrix products for one state that it reads."""
    predicts_tokens: bool = False
    """True where training computes it only where a token is predicted."""


def _count_vocabulary(config: ResolvedModel) -> int:
    width = config.d_embed
    n_parameters = config.vocab_size if config.head_bias else 0
    if has_head_projection(config):
        n_parameters += linear_parameters(config, config.d_model, width)
    if config.head == "transform":
        n_parameters += norm_parameters(config, width)
        n_parameters += learns_beta(config, head_activation(config))
    if not config.tie_embeddings:
        n_parameters += config.vocab_size * width
    return n_parameters


def _count_vocabulary_products(config: ResolvedModel) -> int:
    to_embedding = config.d_model * config.d_embed if has_head_projection(config) else 0
    return to_embedding + n_classes(config) * config.d_embed


def _count_pooler(config: ResolvedModel) -> int:
    return config.d_model * (config.d_model + 1)


def _count_sentence(config: ResolvedModel) -> int:
    return config.sentence_classes * (config.d_model + 1)


def _count_joint_span(config: ResolvedModel) -> int:
    width = config.d_model
    start = width + 1
    end = 2 * width * width + width + norm_parameters(config, width) + width + 1
    answerable = 2 * width * width + width + width
    return start + end + answerable


def _count_joint_span_products(config: ResolvedModel) -> int:
    # Of a position: its start, and its end given a start; whether there is an answer is of a text.
    width = config.d_model
    return width + 2 * width * width + width


def has_head_projection(config: ResolvedModel) -> bool:
    """Return whether a linear map to the width of the output matrix stands before it."""
    return config.head == "transform" or is_factorised(config)


def n_classes(config: ResolvedModel) -> int:
    """Count the classes that share the probability of a token: tokens, or positions beside them."""
    return config.vocab_size + (config.max_len if config.softmax == "all" else 0)


HEADS: dict[str, HeadRow] = {
    "vocabulary": HeadRow(
        "sublayer.model.layers.heads:VocabularyHead",
        attribute="head",
        title="vocabulary head",
        reads="positions",
        is_asked=lambda config: config.head != "none",
        n_parameters=_count_vocabulary,
        n_products=_count_vocabulary_products,
        predicts_tokens=True,
    ),
    "pooler": HeadRow(
        "sublayer.model.layers.heads:Pooler",
        attribute="pooler",
        title="pooler",
        reads="text",
        is_asked=lambda config: config.pooler == "tanh",
        n_parameters=_count_pooler,
        n_products=lambda config: config.d_model**2,
    ),
    "sentence": HeadRow(
        "sublayer.model.layers.heads:SentenceHead",
        attribute="sentence_head",
        title="sentence head",
        reads="pooled",
        is_asked=lambda config: config.sentence_classes > 0,
        n_parameters=_count_sentence,
        n_products=lambda config: config.d_model * config.sentence_classes,
    ),
    "label": HeadRow(
        "sublayer.model.layers.heads:LabelHead",
        attribute="label_head",
        title="label head",
        reads="pooled",
        is_asked=lambda config: config.label_outputs > 0,
        n_parameters=lambda config: config.label_outputs * (config.d_model + 1),
        n_products=lambda config: config.d_model * config.label_outputs,
    ),
    "span": HeadRow(
        "sublayer.model.layers.heads:SpanHead",
        attribute="span_head",
        title="span head",
        reads="positions",
        is_asked=lambda config: config.span_head == "independent",
        n_parameters=lambda config: 2 * (config.d_model + 1),
        n_products=lambda config: 2 * config.d_model,
    ),
    "joint_span": HeadRow(
        "sublayer.model.layers.heads:JointSpanHead",
        attribute="joint_span_head",
        title="joint span head",
        reads="positions",
        is_asked=lambda config: config.span_head == "joint",
        n_parameters=_count_joint_span,
        n_products=_count_joint_span_products,
    ),
}
"""By name, in the order of their computation: what reads the pooler's output stands after it."""


def asked_heads(config: ResolvedModel) -> dict[str, HeadRow]:
    """Return the rows of the heads that a config asks for, by name."""
    return {name: row for name, row in HEADS.items() if row.is_asked(config)}
