"""How an objective is trained by the processes that there are."""

from sublayer.config.optimizers import OptimizerConfig
from sublayer.config.recipe import ResolvedTrain
from sublayer.config.train import InitConfig, TrainConfig
from sublayer.objective.base import Objective
from sublayer.training.processes.alone import Alone
from sublayer.training.processes.exact import Exact
from sublayer.training.processes.replicated import Replicated
from sublayer.training.processes.world import World


def parallelise(
    objective: Objective, world: World, train: ResolvedTrain, optimizer: OptimizerConfig
) -> Alone:
    """Wrap an objective for the processes that train it, as ``[train]`` asks.

    ``optimizer`` is what updates it.
    """
    if train.exact:
        return Exact(objective, world, n_parts=train.n_micro_batches)
    if world.size == 1:
        return Alone(objective, world)
    if train.shard != "none":
        # PyTorch's FSDP takes long to import, and few runs need it.
        from sublayer.training.processes.sharded import Sharded

        return Sharded(objective, world, train.shard, optimizer, train.seed)
    return Replicated(objective, world)


def begins_divided(world: World, train: TrainConfig, init: InitConfig) -> bool:
    """Return whether an objective is built on the meta device, as no process ever has all of it.

    What starts from another model has that one's weights whole.
    """
    return world.size > 1 and train.shard != "none" and not train.exact and init.run is None
