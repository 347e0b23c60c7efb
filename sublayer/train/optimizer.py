"""The optimizers of the papers, their parameters grouped by role, their state as named tensors."""

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor, nn

from sublayer.config.optimizer import AdamConfig, AdamWConfig, OptimizerConfig, SgdConfig
from sublayer.errors import CheckpointError
from sublayer.model.roles import Role

DECAYED: frozenset[Role] = frozenset({"matrix", "stacked", "embedding"})


def build_optimizer(
    config: OptimizerConfig, parameters: Mapping[str, nn.Parameter], roles: Mapping[str, Role]
) -> torch.optim.Optimizer:
    """Build the optimizer; weight decay acts on matrices and embeddings, never on vectors (norms, biases)."""
    decayed = [value for name, value in parameters.items() if roles[name] in DECAYED]
    others = [value for name, value in parameters.items() if roles[name] not in DECAYED]
    groups = [
        {"params": decayed, "weight_decay": config.weight_decay},
        {"params": others, "weight_decay": 0.0},
    ]
    groups = [group for group in groups if group["params"]]
    match config:
        case SgdConfig():
            return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, foreach=True)
        case AdamConfig():
            return torch.optim.Adam(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)
        case AdamWConfig():
            return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every parameter group."""
    for group in optimizer.param_groups:
        group["lr"] = lr


def optimizer_tensors(optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Name the optimizer's state: ``<state>/<parameter>`` -> tensor."""
    return {
        f"{key}/{name}": value
        for name, parameter in parameters.items()
        for key, value in optimizer.state.get(parameter, {}).items()
        if isinstance(value, Tensor)
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], tensors: Mapping[str, Tensor]
) -> None:
    """Give the optimizer back the state that ``optimizer_tensors`` named.

    Raises CheckpointError where a tensor has no parameter or another shape.
    """
    for full_name, tensor in tensors.items():
        key, _, name = full_name.partition("/")
        if name not in parameters:
            raise CheckpointError(f"the checkpoint's optimizer state {full_name} belongs to no parameter of this model")
        parameter = parameters[name]
        if key != "step" and tensor.shape != parameter.shape:
            raise CheckpointError(
                f"the checkpoint's optimizer state {full_name} has shape {list(tensor.shape)}, "
                f"the model's parameter {list(parameter.shape)}"
            )
        # Adam's step counters live where the fused kernel wants them; moments beside their parameter.
        optimizer.state[parameter][key] = tensor.to(parameter.device)


def clip_gradient(parameters: Iterable[nn.Parameter], clip_norm: float) -> Tensor:
    """Scale the gradient so that its global L2 norm is at most ``clip_norm`` (0: never); return the norm before."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = torch.nn.utils.get_total_norm(gradients)
    if clip_norm > 0:
        scale = torch.clamp(clip_norm / (norm + 1e-6), max=1.0)
        torch._foreach_mul_(gradients, scale)
    return norm
