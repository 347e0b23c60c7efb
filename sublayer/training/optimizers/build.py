"""The optimizers of the papers, their parameters grouped by role, their state as named tensors."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sublayer.config.optimizers import (
    AdafactorConfig,
    AdamConfig,
    LambConfig,
    OptimizerConfig,
    SgdConfig,
)
from sublayer.config.roles import Role
from sublayer.errors import CheckpointError
from sublayer.files.tensors import Header, header_of
from sublayer.model.names import named_parameters
from sublayer.model.parts import block_parameters, embedding_parameters
from sublayer.objective.base import Objective
from sublayer.training.optimizers.adafactor import Adafactor
from sublayer.training.optimizers.adam import (
    Adam,
    AdamW,
    Gpt1Adam,
    Lamb,
    MomentOptimizer,
    ScaledAdamW,
    Sgd,
)
from sublayer.training.optimizers.division import WHOLE, Division

_RATE_SHARE = "rate_share"
"""The option of a group that says what share of the learning rate it has."""
Groups = list[dict[str, Any]]
"""Parameters with the options that they share, as PyTorch's optimizers take them."""


def build_optimizer(
    config: OptimizerConfig,
    parameters: Mapping[str, nn.Parameter],
    roles: Mapping[str, Role],
    rate_shares: Mapping[str, float] | None = None,
    division: Division = WHOLE,
) -> torch.optim.Optimizer:
    """Build the optimizer, with parameter groups by role.

    ``roles`` has every name of ``parameters``, as has ``rate_shares``, the factors of the learning
    rate; None: 1. The rate is the config's until ``set_learning_rate``. ``division`` describes the
    sharding of ``parameters``.
    """
    shares = rate_shares or dict.fromkeys(parameters, 1.0)
    groups = _groups(config, parameters, roles, shares)
    if isinstance(config, SgdConfig):
        return Sgd(groups, lr=config.lr, momentum=config.momentum, foreach=True)
    if isinstance(config, AdafactorConfig):
        return Adafactor(groups, config, division)
    settings: dict[str, Any] = {"lr": config.lr, "betas": config.betas, "eps": config.eps}
    if isinstance(config, AdamConfig):
        return Adam(groups, **settings, fused=True)
    if isinstance(config, LambConfig):
        is_corrected = config.form == "published"
        return Lamb(groups, **settings, is_corrected=is_corrected, division=division)
    if config.is_as_published:
        return AdamW(groups, **settings, fused=True)
    if config.form == "gpt1":
        return Gpt1Adam(groups, **settings, is_corrected=False)
    settings["is_corrected"] = config.bias_correction
    if config.parameter_scale:
        return ScaledAdamW(groups, **settings, division=division)
    # As in BERT and ALBERT as released: without correction.
    return MomentOptimizer(groups, **settings)


def _groups(
    config: OptimizerConfig,
    parameters: Mapping[str, nn.Parameter],
    roles: Mapping[str, Role],
    rate_shares: Mapping[str, float],
) -> Groups:
    groups: Groups = []
    for name, parameter in parameters.items():
        options = {**config.options(roles[name]), _RATE_SHARE: rate_shares[name]}
        alike = [group for group in groups if group["options"] == options]
        if alike:
            alike[0]["params"].append(parameter)
        else:
            groups.append({"params": [parameter], "options": options})
    return [{"params": group["params"], **group["options"]} for group in groups]


def set_learning_rate(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Set the learning rate of every parameter group to its share of ``lr``."""
    for group in optimizer.param_groups:
        group["lr"] = lr * group[_RATE_SHARE]


def optimizer_tensors(
    optimizer: torch.optim.Optimizer, parameters: Mapping[str, nn.Parameter]
) -> dict[str, Tensor]:
    """Return the optimizer's state: ``<state>/<parameter>`` -> tensor, of any shape.

    Tensors are not copies. A parameter that had no gradient yet has none.
    """
    tensors: dict[str, Tensor] = {}
    for name, parameter in parameters.items():
        for key, value in optimizer.state.get(parameter, {}).items():
            assert isinstance(value, Tensor), f"{key} is no tensor, and would not be saved"
            tensors[f"{key}/{name}"] = value
    return tensors


def check_state(
    config: OptimizerConfig,
    parameters: Mapping[str, nn.Parameter],
    roles: Mapping[str, Role],
    headers: Mapping[str, Header],
    where: Path,
) -> None:
    """Raise CheckpointError, naming tensor and file, unless a file fits this optimizer's state.

    A parameter that had no gradient yet has none; any other has its full state.
    """
    all_expected = {
        name: _state_headers(config, parameter, roles[name])
        for name, parameter in parameters.items()
    }
    for full_name, header in headers.items():
        key, _, name = full_name.partition("/")
        expected = all_expected.get(name, {})
        if key not in expected:
            raise CheckpointError(
                f"{where}: the optimizer's state {full_name} belongs to no parameter of this model"
            )
        if header != expected[key]:
            raise CheckpointError(
                f"{where}: the optimizer's state {full_name} is {header.dtype} of shape "
                f"{header.shape}, optimizer.kind = {config.kind} asks for {expected[key].dtype} of "
                f"shape {expected[key].shape}"
            )
        for lacking in (f"{other}/{name}" for other in expected):
            if lacking not in headers:
                raise CheckpointError(f"{where}: the optimizer's state has no {lacking}")
    if any(all_expected.values()) and not headers:
        raise CheckpointError(f"{where}: the optimizer's state is missing")


def _state_headers(config: OptimizerConfig, parameter: Tensor, role: Role) -> dict[str, Header]:
    """Return the file headers of one parameter's state."""
    own_dtype = header_of(parameter).dtype
    return {
        key: Header(list(shape), "F32" if key == "step" else own_dtype)
        for key, shape in config.state_shapes(tuple(parameter.shape), role).items()
    }


def restore_optimizer(
    optimizer: torch.optim.Optimizer,
    parameters: Mapping[str, nn.Parameter],
    tensors: Mapping[str, Tensor],
) -> None:
    """Restore the state that ``optimizer_tensors`` returned and ``check_state`` has checked.

    Replaces the optimizer's state; tensors on their parameter's device are kept, not copied.
    """
    optimizer.state.clear()
    for full_name, tensor in tensors.items():
        key, _, name = full_name.partition("/")
        parameter = parameters[name]
        # Adam's step counters are where the fused kernel expects them; moments on the parameter's
        # device.
        optimizer.state[parameter][key] = tensor.to(parameter.device)


def clip_gradient(
    parameters: Iterable[nn.Parameter],
    clip_norm: float,
    norm_of: Callable[[list[Tensor]], Tensor] = torch.nn.utils.get_total_norm,
) -> Tensor:
    """Scale the gradient to a global L2 norm of at most ``clip_norm``; return the norm before.

    A ``clip_norm`` of 0 disables clipping. ``norm_of`` computes the norm of all gradients, sharded
    or not. Gradients change in place; parameters without one are skipped. No synchronisation with
    the device.
    """
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = norm_of(gradients)
    if clip_norm > 0:
        scale = torch.clamp(clip_norm / (norm + 1e-6), max=1.0)
        # Read only on a CPU, where it saves a pass: elsewhere it would synchronise the device.
        if scale.device.type != "cpu" or scale != 1.0:
            torch._foreach_mul_(gradients, scale)
    return norm


def rate_shares(objective: Objective, layer_decay: float) -> dict[str, float]:
    """Compute each parameter's share of the learning rate, by its persistent name.

    ``layer_decay ** (n_layers + 2 - depth)``, where embeddings have depth 0, blocks count from 1,
    and final norm and heads have the full rate. Shared weights have the rate of their last block,
    as has a position bias; a tied output matrix has the embeddings' rate. The model has one stack,
    unless nothing decays.

    Source: Clark et al. 2020 (2003.10555), as released (google-research/electra,
    ``model/optimization.py``), where the last block has the square of the decay, too. The source
    has no shared blocks, position biases and final norm: their rates are a choice.
    """
    if layer_decay == 1.0:
        return {name: 1.0 for name, _ in named_parameters(objective)}
    model = objective.model
    n_layers = model.config.n_layers
    depths: dict[int, int] = {}

    def set_depth(parameter: nn.Parameter, depth: int) -> None:
        depths[id(parameter)] = depth

    for parameter in model.positions.parameters():
        set_depth(parameter, n_layers)
    for layer in range(n_layers):
        for parameter in block_parameters(model, layer):
            set_depth(parameter, layer + 1)
    for parameter in embedding_parameters(model):
        set_depth(parameter, 0)
    shares = {}
    for name, parameter in named_parameters(objective):
        depth = depths.get(id(parameter), n_layers + 2)
        shares[name] = layer_decay ** (n_layers + 2 - depth)
    return shares
