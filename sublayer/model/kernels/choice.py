"""Where the kernels written here are the right ones."""

import torch
from torch import Tensor


def is_eager_cpu(x: Tensor) -> bool:
    """Check whether to use our own kernels: on a CPU, not under the compiler.

    Elsewhere PyTorch's are faster.
    """
    return x.device.type == "cpu" and not torch.compiler.is_compiling()
