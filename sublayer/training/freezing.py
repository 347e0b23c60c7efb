"""Leave parts of a model as they are: no gradient, nothing of them in the optimizer."""

from collections.abc import Iterator

from torch import nn

from sublayer.config.stacks import Frozen
from sublayer.config.train import InitConfig
from sublayer.counts import count
from sublayer.errors import ConfigError
from sublayer.model.parts import block_parameters, embedding_parameters
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
    """Generate the parameters of parts of a model; one that is shared may come twice."""
    if frozen.embeddings:
        yield from embedding_parameters(model)
    for layer in range(frozen.n_layers):
        yield from block_parameters(model, layer)
