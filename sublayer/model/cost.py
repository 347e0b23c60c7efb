"""Parameters and floating-point operations of a model from its config alone: plain arithmetic, no tensors.

Configs are resolved (``sublayer.config.resolve.resolve_model``): no derived field is None. The counts are tested
to equal those of the built module.
"""

from dataclasses import dataclass

from sublayer.config.block import Entry
from sublayer.config.model import ModelConfig
from sublayer.config.objective import (
    NEXT_TOKEN,
    CausalObjective,
    MaskedObjective,
    ObjectiveConfig,
    TranslationObjective,
)
from sublayer.config.resolve import GATED, StackShape, embedding_width, is_factorised, shares, stacks


@dataclass(frozen=True)
class Parameters:
    """How many parameters a model has, by what is counted.

    ``total`` is unique, as saved; ``training`` adds the heads that only training needs; ``non_embedding`` is ``total``
    without tables of tokens, positions and segments (an untied output matrix stays); ``executed`` counts the weights of
    blocks that share them once per executed block (a tied token table counts once). Papers differ in what of an encoder
    they count: ``encoder`` has neither pooler nor heads, ``with_pooler`` no heads, ``with_heads`` is all of it.
    """

    total: int
    training: int
    non_embedding: int
    executed: int
    encoder: int | None = None
    with_pooler: int | None = None
    with_heads: int | None = None


def count_parameters(config: ModelConfig, objective: ObjectiveConfig = NEXT_TOKEN) -> Parameters:
    """Count the parameters that the built model has, and those that an objective adds in training."""
    tables = _token_table(config) + _position_tables(config) + _segment_table(config)
    around_blocks = _projection(config) + len(stacks(config)) * (_embedding_norm(config) + _final_norm(config))
    pooler, heads = _pooler(config), _output(config) + _sentence_head(config)
    unique = executed = 0
    for stack in stacks(config):
        for size, entry in ((entry_parameters(config, entry), entry) for entry in stack.block):
            unique += n_copies(config, stack, entry) * size
            executed += stack.n_layers * size
    body = tables + around_blocks + unique
    total = body + pooler + heads
    is_encoder = config.kind == "encoder"
    return Parameters(
        total=total,
        training=total + all_classifiers(config, objective) * _classifier(config),
        non_embedding=total - tables,
        executed=total - unique + executed,
        encoder=body if is_encoder else None,
        with_pooler=body + pooler if is_encoder else None,
        with_heads=total if is_encoder else None,
    )


def n_classifiers(objective: ObjectiveConfig) -> tuple[int, int]:
    """Count the training-only classifiers of each executed block below the last, and of the last."""
    if not isinstance(objective, CausalObjective):
        return 0, 0
    return objective.targets if objective.auxiliary == "layers" else 0, objective.targets - 1


def all_classifiers(config: ModelConfig, objective: ObjectiveConfig) -> int:
    """Count the training-only classifiers of all executed blocks together."""
    below, last = n_classifiers(objective)
    return (config.n_layers - 1) * below + last


def n_predicting(objective: ObjectiveConfig, context: int) -> int:
    """Count the places of a window of ``context`` tokens that predict a token."""
    if isinstance(objective, CausalObjective):
        return context if objective.positions == "all" else 1
    if isinstance(objective, TranslationObjective):
        return context
    n_hidden = max(1, round(objective.mask_share * context))
    return min(n_hidden, objective.mask_most or n_hidden) + objective.predict_first


def judges_pairs(config: ModelConfig, objective: ObjectiveConfig) -> bool:
    """Tell whether the sentence head has a loss; objectives that do not know of it leave it to the model."""
    is_asked = not isinstance(objective, MaskedObjective) or objective.sentence != "none"
    return config.sentence_classes > 0 and is_asked


def flops_per_token(config: ModelConfig, context: int, objective: ObjectiveConfig = NEXT_TOKEN) -> int:
    """Count the floating-point operations of training on one token: forward and backward, three forward passes.

    A multiply-add is two. Counted: every matrix product, at the width it runs, once per executed block; attention over
    ``context`` tokens (of a decoder half of it, for a query sees half the keys on average); the heads where they
    predict, pooler and sentence head once per window; an encoder-decoder's token is one of the target with one of the
    source, each text of ``context`` tokens; losses that stop on the way, by their mean over the run. Not
    counted: lookups, biases, norms, activations, softmax, rotations, dropout, the optimizer.
    """
    d_model, d_embed = config.d_model, need(config.d_embed)
    blocks = sum(
        stack.n_layers * _entry_products(config, stack, entry, context)
        for stack in stacks(config)
        for entry in stack.block
    )
    projection = len(stacks(config)) * d_model * d_embed if is_factorised(config) else 0
    classifiers = _mean_classifiers(config, objective) * need(config.vocab_size) * d_model
    to_embedding = d_model * d_embed if has_head_projection(config) else 0
    output = to_embedding + need(config.vocab_size) * d_embed + classifiers
    per_window = n_predicting(objective, context) * output + _sentence_products(config, objective)
    return round(3 * 2 * (blocks + projection + per_window / context))


def entry_parameters(config: ModelConfig, entry: Entry) -> int:
    """Count one copy of a sub-layer, its norm included."""
    d_model, d_heads, d_ff = config.d_model, config.n_heads * need(config.d_head), need(config.d_ff)
    norm = _norm(config) if config.norm_affine else 0
    if entry.name in ("attention", "cross"):
        return norm + _linear(config, d_model, 3 * d_heads) + _linear(config, d_heads, d_model)
    n_in = 2 if entry.variant in GATED else 1
    return norm + _linear(config, d_model, n_in * d_ff) + _linear(config, d_ff, d_model)


def n_copies(config: ModelConfig, stack: StackShape, entry: Entry) -> int:
    """Count the sets of weights that the executed blocks of a stack hold of one entry of its block."""
    return config.share_groups * config.share_inner if shares(config, entry) else stack.n_layers


def has_head_projection(config: ModelConfig) -> bool:
    """Whether a linear map to the width of the output matrix stands before it."""
    return config.head == "transform" or is_factorised(config)


def need(value: int | None) -> int:
    """Give the value of a derived field, which a resolved config has."""
    assert value is not None, "the config is not resolved: call resolve_model first"
    return value


def _mean_classifiers(config: ModelConfig, objective: ObjectiveConfig) -> float:
    """Count the training-only classifiers that an optimizer step has, on average over the run."""
    if not isinstance(objective, CausalObjective):
        return 0.0
    below, last = n_classifiers(objective)
    # That of block l of n counts for a share l / n of the run up to the stop.
    return last + below * objective.auxiliary_stop * (config.n_layers - 1) / 2


def _classifier(config: ModelConfig) -> int:
    return need(config.vocab_size) * (config.d_model + 1)


def _sentence_products(config: ModelConfig, objective: ObjectiveConfig) -> int:
    if not judges_pairs(config, objective):
        return 0
    return (config.d_model**2 if config.pooler == "tanh" else 0) + config.d_model * config.sentence_classes


def _entry_products(config: ModelConfig, stack: StackShape, entry: Entry, context: int) -> int:
    d_heads, d_ff = config.n_heads * need(config.d_head), need(config.d_ff)
    if entry.name in ("attention", "cross"):
        # Scores and weighted values, of a causal attention half of each.
        products = 1 if entry.name == "attention" and stack.is_causal else 2
        return 4 * config.d_model * d_heads + products * d_heads * context  # q, k, v, o first
    return (3 if entry.variant in GATED else 2) * config.d_model * d_ff


def _linear(config: ModelConfig, d_in: int, d_out: int) -> int:
    return d_in * d_out + (d_out if config.bias else 0)


def _norm(config: ModelConfig, width: int | None = None) -> int:
    return {"layer": 2, "rms": 1, "none": 0}[config.norm] * (width or config.d_model)


def _final_norm(config: ModelConfig) -> int:
    return _norm(config) if config.final_norm == "affine" else 0


def _token_table(config: ModelConfig) -> int:
    return need(config.vocab_size) * need(config.d_embed)


def _position_tables(config: ModelConfig) -> int:
    if config.positions not in ("learned", "learned-per-layer"):
        return 0
    further = sum(stack.n_layers - 1 for stack in stacks(config)) if config.positions == "learned-per-layer" else 0
    return need(config.max_len) * (len(stacks(config)) * embedding_width(config) + further * config.d_model)


def _segment_table(config: ModelConfig) -> int:
    return {"none": 0, "second": 1, "both": 2}[config.segments] * embedding_width(config)


def _embedding_norm(config: ModelConfig) -> int:
    return _norm(config, embedding_width(config)) if config.embedding_norm else 0


def _projection(config: ModelConfig) -> int:
    return _linear(config, need(config.d_embed), config.d_model) if is_factorised(config) else 0


def _output(config: ModelConfig) -> int:
    down = _linear(config, config.d_model, need(config.d_embed)) if has_head_projection(config) else 0
    norm = _norm(config, need(config.d_embed)) if config.head == "transform" else 0
    matrix = 0 if config.tie_embeddings else _token_table(config)
    return down + norm + matrix + (need(config.vocab_size) if config.head_bias else 0)


def _pooler(config: ModelConfig) -> int:
    return config.d_model * (config.d_model + 1) if config.pooler == "tanh" else 0


def _sentence_head(config: ModelConfig) -> int:
    return config.sentence_classes * (config.d_model + 1)
