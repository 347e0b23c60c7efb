"""Numbers that are known here, as a tensor where they are computed with."""

from collections.abc import Sequence

import torch
from torch import Tensor

from sublayer.model.kernels.choice import is_eager_cpu


def constants(values: Sequence[float], dtype: torch.dtype, beside: Tensor) -> Tensor:
    """Return a vector of numbers on the device of a tensor; nothing waits for it.

    A copy of numbers to a GPU would: there each is filled in.
    """
    if is_eager_cpu(beside):
        return torch.tensor(values, dtype=dtype)
    filled = [torch.full((), value, dtype=dtype, device=beside.device) for value in values]
    return torch.stack(filled)
