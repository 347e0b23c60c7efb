"""Persistent names and roles of parameters.

Initial values, model folders, checkpoints (sharded ones included), optimizer state and weight maps
identify a parameter by its persistent name. Where a module is renamed, a row of ``RENAMED`` keeps
its parameters' names.
"""

import re
from collections.abc import Iterator
from typing import Any

from torch import Tensor, nn

from sublayer.config.roles import Role

RENAMED: dict[str, str] = {}
"""Paths of modules, or parts of them, and the persistent ones instead, replaced in this order."""


def persistent_name(name: str) -> str:
    """Return the persistent name of the parameter ``name``."""
    for path, persistent in RENAMED.items():
        name = re.sub(rf"(?<![^.]){re.escape(path)}(?![^.])", persistent, name)
    return name


def named_parameters(module: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    """Generate parameters with persistent names, shared ones once, as the module's method does."""
    for name, parameter in module.named_parameters():
        yield persistent_name(name), parameter


def use_persistent_names(model: nn.Module) -> None:
    """Make a model's ``state_dict`` and ``load_state_dict`` use persistent names."""
    model.register_state_dict_post_hook(_to_persistent)  # type: ignore[no-untyped-call]
    model.register_load_state_dict_pre_hook(_from_persistent)  # type: ignore[no-untyped-call]


def _to_persistent(_: nn.Module, state: dict[str, Tensor], prefix: str, __: object) -> None:
    for name in [name for name in state if name.startswith(prefix)]:
        state[prefix + persistent_name(name.removeprefix(prefix))] = state.pop(name)


def _from_persistent(model: nn.Module, state: dict[str, Tensor], prefix: str, *_: Any) -> None:
    names = {persistent_name(name): name for name, _value in model.named_parameters()}
    stored = [name for name in names if prefix + name in state]
    state.update({prefix + names[name]: state.pop(prefix + name) for name in stored})


def parameter_roles(model: nn.Module) -> dict[str, Role]:
    """Collect the roles of all parameters, by persistent name, from their modules."""
    roles: dict[str, Role] = {}
    for prefix, module in model.named_modules():
        declared = getattr(module, "roles", {})
        for name, _ in module.named_parameters(recurse=False):
            assert name in declared, (
                f"{type(module).__name__} declares no role for its parameter {name}"
            )
            full_name = f"{prefix}.{name}" if prefix else name
            roles[persistent_name(full_name)] = declared[name]
    return roles
