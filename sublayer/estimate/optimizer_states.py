"""What an optimizer keeps of a model and works with, from the shapes of its matrices.

Configs are resolved.
"""

import math
from collections import Counter

from sublayer.config.architecture.stacks import stacks
from sublayer.config.freezing import NOTHING, Frozen
from sublayer.config.objectives.base import ObjectiveTable
from sublayer.config.optimizers.adafactor import AdafactorConfig
from sublayer.config.optimizers.base import Shape
from sublayer.config.optimizers.kinds import OptimizerConfig
from sublayer.config.resolved import ResolvedModel
from sublayer.estimate.cost import all_classifiers, count_parameters, n_copies
from sublayer.estimate.frozen import n_frozen_states
from sublayer.estimate.kernel_sizes import CPU_UPDATE_PART, GPU_UPDATE_PART
from sublayer.estimate.micro_batch import DeviceKind
from sublayer.estimate.sublayers.table import estimate_of

_UPDATE_PART = {"cpu": CPU_UPDATE_PART, "cuda": GPU_UPDATE_PART}


def n_states(
    config: ResolvedModel,
    objective: ObjectiveTable,
    optimizer: OptimizerConfig,
    frozen: Frozen = NOTHING,
) -> int:
    """Count the numbers that an optimizer keeps of all parameters that are not frozen.

    Its counts of steps take next to nothing and are left out. Where what is kept of a matrix
    depends on its shape, that of a matrix which ``matrix_shapes`` leaves out is counted as large as
    the matrix.
    """
    n_left = count_parameters(config, objective).training
    total = 0
    for shape, n_copies_of_shape in matrix_shapes(config, objective).items():
        kept = optimizer.state_shapes(shape).values()
        n_kept = sum(math.prod(each) for each in kept if each)
        total += n_copies_of_shape * n_kept
        n_left -= n_copies_of_shape * math.prod(shape)
    total += optimizer.states_per_parameter * n_left
    return total - n_frozen_states(config, frozen, optimizer)


def matrix_shapes(config: ResolvedModel, objective: ObjectiveTable) -> Counter[Shape]:
    """Count the matrices of blocks and vocabulary by the shape in which they are stored.

    Left out are tables of positions and segments, the maps on either side of the blocks, the
    pooler and what reads it, and what a row of a table adds without saying its shape.
    """
    shapes: Counter[Shape] = Counter()
    for stack in stacks(config):
        for entry in stack.block:
            for shape in estimate_of(config, entry).matrix_shapes():
                shapes[shape] += n_copies(config, stack, entry)
    n_tables = 1 if config.tie_embeddings else 2
    shapes[config.vocab_size, config.d_embed] += n_tables
    shapes[config.vocab_size, config.d_model] += all_classifiers(config, objective)
    return +shapes


def adafactor_work(
    config: ResolvedModel,
    objective: ObjectiveTable,
    optimizer: AdafactorConfig,
    device: DeviceKind,
) -> int:
    """Count the most numbers that Adafactor works with, of the parameters that go together.

    A matrix that goes alone has its update; several are copied first, with their mean squares
    where they are not factored.
    """
    most = 0
    for shape, n_copies_of_shape in matrix_shapes(config, objective).items():
        size = math.prod(shape)
        n_together = min(n_copies_of_shape, max(1, _UPDATE_PART[device] // size))
        n_arrays = 1
        if n_together > 1:
            n_arrays = 2 if optimizer.is_factored(shape) else 3
        most = max(most, n_arrays * n_together * size)
    return most
