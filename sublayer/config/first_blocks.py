"""What ``init.layers`` takes of a model: the first blocks of each of its stacks."""

from sublayer.config.architecture.stacks import stacks
from sublayer.config.model import ModelConfig
from sublayer.counts import count
from sublayer.errors import ConfigError


def check_first_blocks(n_blocks: int, model: ModelConfig, name: str) -> None:
    """Raise ConfigError where a stack of a model has fewer blocks than are to be taken.

    ``name`` is what the model is called.
    """
    shapes = stacks(model)
    for shape in shapes:
        if n_blocks > shape.n_layers:
            of = name if len(shapes) == 1 else f"the {shape.name} of {name}"
            raise ConfigError(
                f"init.layers = {n_blocks} is more than the {count(shape.n_layers, 'block')} of "
                f"{of}"
            )
