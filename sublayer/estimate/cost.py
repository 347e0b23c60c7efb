"""Parameters and floating-point operations of a model, from its config only.

Configs are resolved (``sublayer.config.resolve.resolve_model``): no derived field is None.
The counts are tested to equal those of the built module.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from sublayer.config.model import POSITIONS, Entry
from sublayer.config.objective import Lengths, ObjectiveTable
from sublayer.config.recipe import NEXT_TOKEN, ResolvedModel
from sublayer.config.stacks import (
    HeadRow,
    StackShape,
    asked_heads,
    embedding_width,
    is_factorised,
    linear_parameters,
    n_copies,
    norm_parameters,
    stacks,
)
from sublayer.model.estimates import AttentionEstimate, estimate_of, stack_length


@dataclass(frozen=True)
class Parameters:
    """Parameter counts of a model by part.

    Papers count different parts of an encoder: the last three are None for other models.
    """

    total: int
    """Each parameter once, as saved."""
    training: int
    """``total`` with training-only heads."""
    non_embedding: int
    """``total`` without tables of tokens, positions and segments; an untied output matrix stays."""
    executed: int
    """Shared block weights once per executed block; a tied embedding matrix once."""
    encoder: int | None = None
    """Without pooler and heads."""
    with_pooler: int | None = None
    """Without heads."""
    with_heads: int | None = None
    """All of it."""


def count_parameters(config: ResolvedModel, objective: ObjectiveTable = NEXT_TOKEN) -> Parameters:
    """Count the parameters of the built model, and the training-only ones of an objective.

    Learned slopes and every bias, gain and offset count.
    """
    position_row = POSITIONS[config.positions]
    positions = sum(
        position_row.n_parameters(config, stack.n_layers, embedding_width(config))
        for stack in stacks(config)
        if position_row.in_attention == "nothing" or stack.attends_to_itself
    )
    tables = _token_and_segment_tables(config) + positions
    around_blocks = embedding_parameters(config) + positions
    if config.final_norm == "affine":
        around_blocks += len(stacks(config)) * norm_parameters(config, config.d_model)
    unique = executed = 0
    for stack, entry, n_sets in entry_sets(config):
        size = entry_parameters(config, entry)
        unique += n_sets * size
        executed += stack.n_layers * size
    body = around_blocks + unique
    heads = {name: row.n_parameters(config) for name, row in asked_heads(config).items()}
    pooler = heads.get("pooler", 0)
    total = body + sum(heads.values())
    classifier = config.vocab_size * (config.d_model + 1)
    is_encoder = config.kind == "encoder"
    return Parameters(
        total=total,
        training=total + all_classifiers(config, objective) * classifier,
        non_embedding=total - tables,
        executed=total - unique + executed,
        encoder=body if is_encoder else None,
        with_pooler=body + pooler if is_encoder else None,
        with_heads=total if is_encoder else None,
    )


def all_classifiers(config: ResolvedModel, objective: ObjectiveTable) -> int:
    """Count the training-only classifiers of all executed blocks."""
    below, last = objective.n_classifiers()
    return (config.n_layers - 1) * below + last


def trained_heads(config: ResolvedModel, objective: ObjectiveTable) -> list[HeadRow]:
    """Return the heads with a loss, and the pooler if one of them reads it."""
    heads = asked_heads(config)
    pooler = heads.pop("pooler", None)
    trained = [row for name, row in heads.items() if objective.trains(name)]
    if pooler is not None and any(row.reads == "pooled" for row in trained):
        trained.append(pooler)
    return trained


def n_read_states(config: ResolvedModel, objective: ObjectiveTable, n_tokens: int) -> int:
    """Count the positions of an example with a final state that is read, of ``n_tokens``.

    Queries of the last attention and all later layers are computed only there.
    """
    if not objective.reads_texts_alone():
        return n_tokens
    is_read = any(
        row.reads == "positions" and not row.predicts_tokens
        for row in trained_heads(config, objective)
    )
    return n_tokens if is_read else 1


def flops_per_token(
    config: ResolvedModel, context: int, objective: ObjectiveTable = NEXT_TOKEN
) -> int:
    """Count the floating-point operations of training on one token: three forward passes.

    A backward pass takes two. A multiply-add is two. Counted: every matrix product, at its actual
    width, once per executed block; attention over ``context`` tokens (half of it in a decoder,
    whose queries see half the keys on average; if one state of a text is read, the last attention
    and later layers have only that position); heads with a loss, at predicting positions or once
    per window for heads of texts; losses that stop during the run, by their mean over it. Not
    counted: lookups, biases, norms, activations, softmax, rotations, biases of scores, dropout, the
    optimizer.

    An encoder-decoder's token is one of the target with one of the source. If an objective's
    examples have lengths other than ``context``, a token is ``1 / context`` of an example.
    ``context`` is in tokens. Recomputation is not counted.
    """
    d_model = config.d_model
    d_embed = config.d_embed
    lengths = objective.lengths(context)
    blocks = n_entering = 0
    for stack in stacks(config):
        n_tokens = stack_length(stack, lengths)
        n_entering += n_tokens
        n_read = n_read_states(config, objective, n_tokens)
        blocks += (stack.n_layers - 1) * _block_products(config, stack, lengths, n_tokens)
        blocks += _block_products(config, stack, lengths, n_read)
    projection = d_model * d_embed if is_factorised(config) else 0
    per_prediction = per_example = 0
    for head in trained_heads(config, objective):
        if head.predicts_tokens:
            per_prediction += head.n_products(config)
        else:
            n_read = lengths.read if head.reads == "positions" else 1
            per_example += n_read * head.n_products(config)
    classifier = config.vocab_size * d_model
    classifiers = objective.mean_classifiers(config.n_layers) * classifier
    n_predictions = objective.n_predictions(lengths.written)
    heads = n_predictions * (per_prediction + classifiers) + per_example
    entering = n_entering * projection
    products = blocks / context + entering / context + heads / context
    # Forward and twice as much backward; a multiply-add is two operations.
    return round(3 * 2 * products)


def _block_products(config: ResolvedModel, stack: StackShape, lengths: Lengths, n_read: int) -> int:
    """Count the multiply-adds of an example in a block with ``n_read`` output states read."""
    n_tokens, total = stack_length(stack, lengths), 0
    for index, entry in enumerate(stack.block):
        estimate = estimate_of(config, entry)
        if index == stack.last_attention and n_read < n_tokens:
            assert isinstance(estimate, AttentionEstimate), "an entry that attends to something"
            total += estimate.n_products_of_queries(n_read, n_tokens)
            n_tokens = n_read
        else:
            total += estimate.n_products(stack, n_tokens, lengths.read)
    return total


def entry_parameters(config: ResolvedModel, entry: Entry) -> int:
    """Count the parameters of one copy of a sub-layer, with its norm."""
    norm = norm_parameters(config, config.d_model) if config.norm_affine else 0
    return norm + estimate_of(config, entry).n_parameters()


def entry_sets(config: ResolvedModel) -> Iterator[tuple[StackShape, Entry, int]]:
    """Yield each entry of each stack's block, with its sets of weights as ``n_copies`` counts."""
    for stack in stacks(config):
        for entry in stack.block:
            yield stack, entry, n_copies(config, stack, entry)


def n_own_parameters(config: ResolvedModel, stack: StackShape) -> int:
    """Count the parameters of a block that it shares with no other."""
    unshared = (entry for entry in stack.block if n_copies(config, stack, entry) == stack.n_layers)
    return sum(entry_parameters(config, entry) for entry in unshared)


def embedding_parameters(config: ResolvedModel) -> int:
    """Count the parameters before the first blocks, except positions."""
    total = _token_and_segment_tables(config)
    if is_factorised(config):
        total += linear_parameters(config, config.d_embed, config.d_model)
    if config.embedding_norm:
        total += len(stacks(config)) * norm_parameters(config, embedding_width(config))
    return total


def _token_and_segment_tables(config: ResolvedModel) -> int:
    n_rows_of_segments = {"none": 0, "second": 1, "both": 2}[config.segments]
    return config.vocab_size * config.d_embed + n_rows_of_segments * embedding_width(config)
