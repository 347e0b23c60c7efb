"""Choice of kernels by device; constants as tensors."""

from collections.abc import Sequence

import torch
from torch import Tensor


def is_eager_cpu(x: Tensor) -> bool:
    """Check whether to use our kernels: on a CPU, not under the compiler.

    Elsewhere PyTorch's kernels are faster.
    """
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def constants(values: Sequence[float], dtype: torch.dtype, beside: Tensor) -> Tensor:
    """Return a vector of numbers on a tensor's device, without synchronisation.

    A copy to a GPU would synchronise: numbers are filled in there.
    """
    if is_eager_cpu(beside):
        return torch.tensor(values, dtype=dtype)
    filled = [torch.full((), value, dtype=dtype, device=beside.device) for value in values]
    return torch.stack(filled)
