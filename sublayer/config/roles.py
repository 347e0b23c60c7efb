"""Roles of parameters, by which optimizers, processes and estimates of memory treat them."""

from typing import Literal

Role = Literal["matrix", "stacked", "head", "embedding", "positions", "gain", "bias"]
"""Kind of a parameter, which the module that has it declares in ``roles``, by the parameter's name.

matrix: one linear map ``[d_out, d_in]``; stacked: several that are stored together ``[n, d_out,
d_in]``; head: a map to predictions; embedding: a table of which rows are looked up;
positions: such a table of positions, or of what a scheme numbers; gain: factors of features, and
the slope of an activation; bias: an added vector.
"""
VECTORS: frozenset[Role] = frozenset({"gain", "bias"})
"""Roles that weight decay spares unless asked, and that have no trust ratio in LAMB."""


def variable_axes(role: Role) -> int:
    """Count the last axes that are one variable where updates go by variable: others count them."""
    return 1 if role in VECTORS else 2
