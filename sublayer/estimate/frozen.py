"""Parameters that training leaves as they are, from the settings alone.

Configs are resolved.
"""

import math
from collections import Counter

from sublayer.config.architecture.derived import embedding_width
from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.architecture.stacks import stacks
from sublayer.config.freezing import Frozen, n_frozen_sets
from sublayer.config.optimizers.base import Shape
from sublayer.config.optimizers.kinds import OptimizerConfig
from sublayer.config.resolved import ResolvedModel
from sublayer.estimate.cost import embedding_parameters, entry_parameters
from sublayer.estimate.sublayers.table import estimate_of


def n_frozen_parameters(config: ResolvedModel, frozen: Frozen) -> int:
    """Count the parameters of the parts that are frozen, as they are built."""
    total = embedding_parameters(config) if frozen.embeddings else 0
    if frozen.embeddings and POSITIONS[config.positions].has_rows:
        total += len(stacks(config)) * config.max_len * embedding_width(config)
    if frozen.n_layers:
        (stack,) = stacks(config)
        sets = n_frozen_sets(config, frozen.n_layers)
        for entry, n_sets in zip(stack.block, sets, strict=True):
            total += n_sets * entry_parameters(config, entry)
        if POSITIONS[config.positions].adds_before == "every":
            total += (frozen.n_layers - 1) * config.max_len * config.d_model
    return total


def n_frozen_states(config: ResolvedModel, frozen: Frozen, optimizer: OptimizerConfig) -> int:
    """Count the numbers that an optimizer would keep of what is frozen."""
    left = n_frozen_parameters(config, frozen)
    total = 0
    for shape, n_copies in _frozen_shapes(config, frozen).items():
        kept = optimizer.state_shapes(shape).values()
        total += n_copies * sum(math.prod(each) for each in kept if each)
        left -= n_copies * math.prod(shape)
    return total + optimizer.states_per_parameter * left


def _frozen_shapes(config: ResolvedModel, frozen: Frozen) -> Counter[Shape]:
    """Count the frozen matrices by shape, of those that ``matrix_shapes`` counts."""
    shapes: Counter[Shape] = Counter()
    if frozen.embeddings:
        shapes[config.vocab_size, config.d_embed] += 1
    if frozen.n_layers:
        (stack,) = stacks(config)
        sets = n_frozen_sets(config, frozen.n_layers)
        for entry, n_sets in zip(stack.block, sets, strict=True):
            for shape in estimate_of(config, entry).matrix_shapes():
                shapes[shape] += n_sets
    return shapes
