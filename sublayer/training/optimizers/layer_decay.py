"""Lower learning rates for what stands nearer to the input."""

from torch import nn

from sublayer.model.names import named_parameters
from sublayer.model.parts import block_parameters, embedding_parameters
from sublayer.objective.base import Objective


def rate_shares(objective: Objective, layer_decay: float) -> dict[str, float]:
    """Compute each parameter's share of the learning rate, by its persistent name.

    ``layer_decay ** (n_layers + 2 - depth)``, where embeddings have depth 0, blocks count from 1,
    and what stands behind the blocks has the whole rate: the final norm and the heads. Weights
    that several blocks share have the rate of the last of them, as has a bias of scores; a tied
    output matrix has that of the embeddings. The model has one stack, unless nothing decays.

    Source: Clark et al. 2020 (2003.10555), as released (google-research/electra,
    ``model/optimization.py``), where the last block has the square of the decay, too. Of shared
    blocks, biases of scores and a final norm the source has none: their rates are a choice.
    """
    if layer_decay == 1.0:
        return {name: 1.0 for name, _ in named_parameters(objective)}
    model = objective.model
    n_layers = model.config.n_layers
    depths: dict[int, int] = {}

    def place(parameter: nn.Parameter, depth: int) -> None:
        depths[id(parameter)] = depth

    for parameter in model.positions.parameters():
        place(parameter, n_layers)
    for layer in range(n_layers):
        for parameter in block_parameters(model, layer):
            place(parameter, layer + 1)
    for parameter in embedding_parameters(model):
        place(parameter, 0)
    shares = {}
    for name, parameter in named_parameters(objective):
        depth = depths.get(id(parameter), n_layers + 2)
        shares[name] = layer_decay ** (n_layers + 2 - depth)
    return shares
