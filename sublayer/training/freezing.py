"""Leave parts of a model as they are: no gradient, nothing of them in the optimizer."""

from collections.abc import Iterator

from torch import nn

from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.freezing import Frozen
from sublayer.config.train import InitConfig
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.model.body import Body
from sublayer.model.transformer import Transformer
from sublayer.objective.base import Objective


def freeze(objective: Objective, init: InitConfig) -> list[str]:
    """Freeze what ``init.freeze`` names of an objective's model; return a line that says so.

    A tied output matrix stays with the embedding matrix. Raises ConfigError where nothing is left
    to train.
    """
    frozen = init.frozen
    if not frozen:
        return []
    parameters = {id(each): each for each in frozen_parameters(objective.model, frozen)}
    for parameter in parameters.values():
        parameter.requires_grad = False
    if not any(each.requires_grad for each in objective.parameters()):
        raise ConfigError(f"init.freeze leaves nothing to train beside {frozen}: name less")
    n_frozen = sum(each.numel() for each in parameters.values())
    n_all = sum(each.numel() for each in objective.model.parameters())
    line = f"stays as it is: {count(n_frozen, 'parameter')} of {n_all:,} ({frozen}"
    head = objective.model.head
    if frozen.embeddings and head is not None and head.weight is None:
        line += ", and so the output matrix, which is the same"
    return [f"{line})"]


def frozen_parameters(model: Transformer, frozen: Frozen) -> Iterator[nn.Parameter]:
    """Generate the parameters of parts of a model; one that is shared may come twice.

    Embeddings are the tables of tokens, of segments and of positions that are added before the
    first block, and the map and the norm that follow them. A block's own table of positions goes
    with the block.
    """
    has_tables = POSITIONS[model.config.positions].has_rows
    if frozen.embeddings:
        yield from model.embedding.parameters()
        for body in model.modules():
            if not isinstance(body, Body):
                continue
            for part in (body.segment_table, body.embedding_norm):
                if part is not None:
                    yield from part.parameters()
            if has_tables:
                yield from body.positions.get_submodule("tables.0").parameters()
    for layer in range(frozen.n_layers):
        for sublayer in model.stack.block(layer):
            yield from sublayer.parameters()
        if layer > 0 and POSITIONS[model.config.positions].adds_before == "every":
            yield from model.positions.get_submodule(f"tables.{layer}").parameters()
