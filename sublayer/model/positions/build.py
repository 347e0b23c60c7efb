"""The class of a position scheme, from its row of the table."""

from importlib import import_module

from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.architecture.stacks import StackShape
from sublayer.config.resolved import ResolvedModel
from sublayer.model.positions.base import Positions


def build_positions(config: ResolvedModel, shape: StackShape) -> Positions:
    """Build the positions of a stack, as ``config.positions`` names them."""
    return position_class(config.positions)(config, shape)


def position_class(name: str) -> type[Positions]:
    """Return the class that a row's ``implementation`` names, as ``module:class``."""
    module, _, attribute = POSITIONS[name].implementation.partition(":")
    scheme: type[Positions] = getattr(import_module(module), attribute)
    assert issubclass(scheme, Positions), f"{scheme} does not follow the protocol of positions"
    return scheme
