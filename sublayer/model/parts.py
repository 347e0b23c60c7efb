"""Parameters of a model by location: before the first block, in a block, elsewhere."""

from collections.abc import Iterator

from torch import nn

from sublayer.config.architecture import POSITIONS
from sublayer.model.body import Body
from sublayer.model.transformer import Transformer


def embedding_parameters(model: Transformer) -> Iterator[nn.Parameter]:
    """Generate the parameters before the first block, of every stack.

    Tables of tokens, segments and added positions, and the map and norm after them. A tied output
    matrix is the token table.
    """
    yield from model.embedding.parameters()
    for body in model.modules():
        if not isinstance(body, Body):
            continue
        for part in (body.segment_table, body.embedding_norm):
            if part is not None:
                yield from part.parameters()
        if POSITIONS[model.config.positions].has_rows:
            yield from body.positions.get_submodule("tables.0").parameters()


def block_parameters(model: Transformer, layer: int) -> Iterator[nn.Parameter]:
    """Generate the parameters of an executed block of the last stack, with its positions.

    Layers count from 0. Shared parameters belong to all their blocks.
    """
    for sublayer in model.stack.block(layer):
        yield from sublayer.parameters()
    if layer > 0 and POSITIONS[model.config.positions].adds_before == "every":
        yield from model.positions.get_submodule(f"tables.{layer}").parameters()
