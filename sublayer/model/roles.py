"""Roles of parameters, by which weight decay, layer-wise norms and initialisation go."""

from typing import Literal

from torch import nn

from sublayer.model.names import persistent_name

Role = Literal["matrix", "stacked", "vector", "embedding"]


def parameter_roles(model: nn.Module) -> dict[str, Role]:
    """Collect the role of every parameter, by its persistent name, as its module declares it.

    matrix: one linear map ``[d_out, d_in]``; stacked: several that are stored together ``[n, d_out,
    d_in]``; vector: gains, offsets and biases, whatever their rank; embedding: a table of which
    rows are looked up.
    """
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
