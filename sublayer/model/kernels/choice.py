"""Choice of kernels by device; constants as tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor


def is_eager_cpu(x: Tensor) -> bool:
    """Check whether to use our own kernels: on a CPU, not under the compiler.

    Elsewhere PyTorch's are faster.
    """
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def constants(values: Sequence[float], dtype: torch.dtype, beside: Tensor) -> Tensor:
    """Return a vector of numbers on the device of a tensor; nothing waits for it.

    A copy of numbers to a GPU would: there each is filled in.
    """
    if is_eager_cpu(beside):
        return torch.tensor(values, dtype=dtype)
    filled = [torch.full((), value, dtype=dtype, device=beside.device) for value in values]
    return torch.stack(filled)
