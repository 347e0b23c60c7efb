"""The optimizers of the papers, their parameters grouped by role, their state as named tensors."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sublayer.config.optimizer import AdamConfig, AdamWConfig, LambConfig, OptimizerConfig, SgdConfig
from sublayer.errors import CheckpointError
from sublayer.model.roles import Role
from sublayer.train.adamw import UncorrectedAdamW
from sublayer.train.headers import Header, header_of
from sublayer.train.lamb import Adapted, Lamb

DECAYED: frozenset[Role] = frozenset({"matrix", "stacked", "embedding"})
ADAPTED: dict[Role, Adapted] = {"matrix": "tensor", "embedding": "tensor", "stacked": "map", "vector": "none"}
"""What has a trust ratio of its own in LAMB."""


def build_optimizer(
    config: OptimizerConfig, parameters: Mapping[str, nn.Parameter], roles: Mapping[str, Role]
) -> torch.optim.Optimizer:
    """Build the optimizer; weight decay acts on matrices and embeddings, on vectors where ``decay_vectors``."""
    groups = _groups(config, parameters, roles)
    match config:
        case SgdConfig():
            return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, foreach=True)
        case AdamConfig():
            return torch.optim.Adam(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)
        case AdamWConfig(bias_correction=True):
            return torch.optim.AdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps, fused=True)
        case AdamWConfig():
            return UncorrectedAdamW(groups, lr=config.lr, betas=config.betas, eps=config.eps)
        case LambConfig():
            is_corrected = config.form == "published"
            return Lamb(groups, lr=config.lr, betas=config.betas, eps=config.eps, is_corrected=is_corrected)


def _groups(
    config: OptimizerConfig, parameters: Mapping[str, nn.Parameter], roles: Mapping[str, Role]
) -> list[dict[str, Any]]:
    groups: dict[tuple[tuple[str, Any], ...], list[nn.Parameter]] = {}
    for name, parameter in parameters.items():
        groups.setdefault(tuple(_options(config, roles[name]).items()), []).append(parameter)
    return [{"params": members, **dict(options)} for options, members in groups.items()]


def _options(config: OptimizerConfig, role: Role) -> dict[str, Any]:
    is_decayed = role in DECAYED or getattr(config, "decay_vectors", False)
    options: dict[str, Any] = {"weight_decay": config.weight_decay if is_decayed else 0.0}
    return options | {"adapted": ADAPTED[role]} if isinstance(config, LambConfig) else options


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


def check_state(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], found: Mapping[str, Header], where: Path
) -> None:
    """Raise CheckpointError, naming tensor and file, unless a file has the state of this optimizer.

    A parameter that had no gradient yet has none; any other has all that the optimizer keeps of it.
    """
    keys = state_keys(optimizer)
    for full_name, header in found.items():
        key, _, name = full_name.partition("/")
        if name not in parameters or key not in keys:
            raise CheckpointError(f"{where}: the optimizer's state {full_name} belongs to no parameter of this model")
        of_parameter = header_of(parameters[name])
        expected = Header([], "F32") if key == "step" else of_parameter
        if header != expected:
            raise CheckpointError(
                f"{where}: the optimizer's state {full_name} is {header.dtype} of shape {header.shape}, "
                f"the model's parameter asks for {expected.dtype} of shape {expected.shape}"
            )
        if lacking := [f"{other}/{name}" for other in keys if f"{other}/{name}" not in found]:
            raise CheckpointError(f"{where}: the optimizer's state has no {lacking[0]}")
    if keys and not found:
        raise CheckpointError(f"{where}: the optimizer's state is missing")


def state_keys(optimizer: torch.optim.Optimizer) -> tuple[str, ...]:
    """List what an optimizer keeps of each parameter from step to step."""
    moments = ("exp_avg", "exp_avg_sq")
    match optimizer:
        case torch.optim.SGD():
            return ("momentum_buffer",) if optimizer.defaults["momentum"] > 0 else ()
        case UncorrectedAdamW():
            return moments
        case Lamb():
            return ("step", *moments) if optimizer.is_corrected else moments
        case _:
            return ("step", *moments)


def restore_optimizer(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter], tensors: Mapping[str, Tensor]
) -> None:
    """Give the optimizer back the state that ``optimizer_tensors`` named and ``check_state`` has checked."""
    optimizer.state.clear()
    for full_name, tensor in tensors.items():
        key, _, name = full_name.partition("/")
        parameter = parameters[name]
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
