"""Cross-entropy of a vocabulary that never holds all logits at once."""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor


def linear_cross_entropy(
    hidden: Float[Tensor, "N E"],
    matrix: Float[Tensor, "V E"],
    bias: Float[Tensor, " V"] | None,
    targets: Int[Tensor, " N"],
) -> Float[Tensor, ""]:
    """Sum the nats of the targets under ``softmax(hidden matrix^T + bias)``; a target of -1 does not count."""
    logits = F.linear(hidden, matrix, bias)
    return F.cross_entropy(
        logits.float() if logits.dtype != hidden.dtype else logits, targets, ignore_index=-1, reduction="sum"
    )
