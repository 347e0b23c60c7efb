"""The processes that train together, and the units in which they gather a model."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from sublayer.config.architecture.stacks import stacks
from sublayer.config.objectives.base import ObjectiveTable
from sublayer.config.resolved import ResolvedModel
from sublayer.estimate.cost import count_parameters, n_own_parameters
from sublayer.estimate.micro_batch import FLOAT32_BYTES

Shard = Literal["none", "optimizer", "full"]
SHARDS: Sequence[Shard] = ("none", "optimizer", "full")


@dataclass(frozen=True)
class Group:
    """How many processes train together, and what each of them keeps of a model."""

    size: int
    shard: Shard = "none"
    exact: bool = False
    """Whether sums are those of one tree over micro-batches, as with ``train.exact``."""
    begins_whole: bool = False
    """Whether each process has all weights before they are divided, those of another model."""

    @property
    def is_divided(self) -> bool:
        """Return whether a process has a part of the weights alone."""
        return self.shard != "none" and self.size > 1


@dataclass(frozen=True)
class Units:
    """Bytes of weights that are gathered together: those of each block, and of all the rest."""

    blocks: tuple[int, ...]
    """Of each executed block, what no other shares."""
    root: int
    """What is outside the blocks, and what several of them share."""

    @property
    def largest_block(self) -> int:
        """Return the bytes of the largest block; 0 where all is shared."""
        return max(self.blocks, default=0)

    @property
    def total(self) -> int:
        """Return the bytes of all weights."""
        return sum(self.blocks) + self.root


def units_of(config: ResolvedModel, objective: ObjectiveTable) -> Units:
    """Return the units of a model with the heads that only training needs, in float32."""
    blocks = []
    for stack in stacks(config):
        own = FLOAT32_BYTES * n_own_parameters(config, stack)
        if own:
            blocks += [own] * stack.n_layers
    total = FLOAT32_BYTES * count_parameters(config, objective).training
    return Units(tuple(blocks), total - sum(blocks))
