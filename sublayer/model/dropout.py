"""Dropout with cheap masks on a CPU, the native one elsewhere."""

import torch.nn.functional as F
from torch import Tensor


def dropout(x: Tensor, p: float, training: bool) -> Tensor:
    """Zero elements with probability ``p`` and scale the others to keep the mean; nothing unless ``training``."""
    return F.dropout(x, p, training) if training and p > 0 else x


def add_branch(x: Tensor, branch: Tensor, *, step: float, p: float, training: bool) -> Tensor:
    """Compute ``x + step * dropout(branch)``."""
    return x.add(dropout(branch, p, training), alpha=step)
