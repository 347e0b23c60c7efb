"""Parameters and floating-point operations of a model from its config alone: plain arithmetic, no tensors.

Configs are resolved (``sublayer.config.resolve.resolve_model``): no derived field is None. The counts are tested
to equal those of the built module.
"""

from dataclasses import dataclass

from sublayer.config.block import Entry
from sublayer.config.model import ModelConfig
from sublayer.config.objective import NEXT_TOKEN, MaskedObjective, ObjectiveConfig
from sublayer.config.resolve import GATED, entries, is_factorised


@dataclass(frozen=True)
class Parameters:
    """How many parameters a model has, by what is counted.

    ``total`` is unique, as saved; ``training`` adds the heads that only training needs; ``non_embedding`` is ``total``
    without token and position tables (an untied output matrix stays); ``executed`` counts the weights of blocks that
    share them once per executed block (a tied token table counts once).
    """

    total: int
    training: int
    non_embedding: int
    executed: int


def count_parameters(config: ModelConfig, objective: ObjectiveConfig = NEXT_TOKEN) -> Parameters:
    """Count the parameters that the built model has, and those that an objective adds in training."""
    tables = _token_table(config) + _position_tables(config)
    outside_blocks = _projection(config) + _final_norm(config) + _output(config)
    block = entries(config)
    unique = sum(n_copies(config, entry) * entry_parameters(config, entry) for entry in block)
    executed = sum(config.n_layers * entry_parameters(config, entry) for entry in block)
    total = tables + outside_blocks + unique
    return Parameters(
        total=total,
        training=total + sum(n_classifiers(config, objective)) * _classifier(config),
        non_embedding=total - tables,
        executed=tables + outside_blocks + executed,
    )


def n_classifiers(config: ModelConfig, objective: ObjectiveConfig) -> tuple[int, ...]:
    """Count the training-only classifiers of each executed block, first to last."""
    if isinstance(objective, MaskedObjective):
        return (0,) * config.n_layers
    below = objective.targets if objective.auxiliary == "layers" else 0
    return (*[below] * (config.n_layers - 1), objective.targets - 1)


def flops_per_token(config: ModelConfig, context: int, objective: ObjectiveConfig = NEXT_TOKEN) -> int:
    """Count the floating-point operations of training on one token: forward and backward, three forward passes.

    A multiply-add is two. Counted: every matrix product, at the width it runs, once per executed block; attention over
    ``context`` tokens, half of it, for a query sees half the keys on average; losses that stop on the way, by their
    mean over the run. Not counted: lookups, biases, norms, activations, softmax, rotations, dropout, the optimizer.
    """
    d_model, d_embed = config.d_model, need(config.d_embed)
    block = sum(_entry_products(config, entry, context) for entry in entries(config))
    projection = d_model * d_embed if is_factorised(config) else 0
    classifiers = _mean_classifiers(config, objective) * need(config.vocab_size) * d_model
    output = projection + need(config.vocab_size) * d_embed + classifiers
    share = predicting_share(objective, context)
    return round(3 * 2 * (config.n_layers * block + projection + share * output))


def predicting_share(objective: ObjectiveConfig, context: int) -> float:
    """Give the share of a window's positions that have a loss."""
    if isinstance(objective, MaskedObjective):
        return objective.mask_share
    return 1.0 if objective.positions == "all" else 1.0 / context


def entry_parameters(config: ModelConfig, entry: Entry) -> int:
    """Count one copy of a sub-layer, its norm included."""
    d_model, d_heads, d_ff = config.d_model, config.n_heads * need(config.d_head), need(config.d_ff)
    norm = _norm(config) if config.norm_affine else 0
    if entry.name == "attention":
        return norm + _linear(config, d_model, 3 * d_heads) + _linear(config, d_heads, d_model)
    n_in = 2 if entry.variant in GATED else 1
    return norm + _linear(config, d_model, n_in * d_ff) + _linear(config, d_ff, d_model)


def n_copies(config: ModelConfig, entry: Entry) -> int:
    """Count the sets of weights that the executed blocks hold of one entry of the block."""
    if config.share in ("all", entry.name):
        return config.share_groups * config.share_inner
    return config.n_layers


def need(value: int | None) -> int:
    """Give the value of a derived field, which a resolved config has."""
    assert value is not None, "the config is not resolved: call resolve_model first"
    return value


def _mean_classifiers(config: ModelConfig, objective: ObjectiveConfig) -> float:
    """Count the training-only classifiers that an optimizer step has, on average over the run."""
    *below, last = n_classifiers(config, objective)
    if isinstance(objective, MaskedObjective):
        return 0.0
    shares = (objective.auxiliary_stop * layer / config.n_layers for layer in range(1, config.n_layers))
    return float(last) + sum(n * share for n, share in zip(below, shares, strict=True))


def _classifier(config: ModelConfig) -> int:
    return need(config.vocab_size) * (config.d_model + 1)


def _entry_products(config: ModelConfig, entry: Entry, context: int) -> int:
    d_heads, d_ff = config.n_heads * need(config.d_head), need(config.d_ff)
    if entry.name == "attention":
        return 4 * config.d_model * d_heads + d_heads * context  # q, k, v, o; scores and weighted values, half of each
    return (3 if entry.variant in GATED else 2) * config.d_model * d_ff


def _linear(config: ModelConfig, d_in: int, d_out: int) -> int:
    return d_in * d_out + (d_out if config.bias else 0)


def _norm(config: ModelConfig) -> int:
    return {"layer": 2, "rms": 1, "none": 0}[config.norm] * config.d_model


def _final_norm(config: ModelConfig) -> int:
    return _norm(config) if config.final_norm == "affine" else 0


def _token_table(config: ModelConfig) -> int:
    return need(config.vocab_size) * need(config.d_embed)


def _position_tables(config: ModelConfig) -> int:
    tables = {"learned": 1, "learned-per-layer": config.n_layers}.get(config.positions, 0)
    return tables * need(config.max_len) * config.d_model


def _projection(config: ModelConfig) -> int:
    return _linear(config, need(config.d_embed), config.d_model) if is_factorised(config) else 0


def _output(config: ModelConfig) -> int:
    down = _linear(config, config.d_model, need(config.d_embed)) if is_factorised(config) else 0
    matrix = 0 if config.tie_embeddings else _token_table(config)
    return down + matrix + (need(config.vocab_size) if config.head_bias else 0)
