"""L2 norms of whole tensors, of which a process may hold a part."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


class Norms:
    """The norms that optimizers go by; ``total`` adds up what all processes have of each."""

    def __init__(self, total: Callable[[Tensor], Tensor] | None = None) -> None:
        """Keep how a tensor of sums is added up over processes; None: each has all."""
        self._total = total

    def of(self, tensors: Sequence[Tensor]) -> Tensor:
        """Compute the norm of each tensor, ``[n]``, on the device; nothing waits for it.

        All processes enter, each with its parts of the same tensors, in one exchange.
        """
        return self.whole(torch.stack(torch._foreach_norm(list(tensors))))

    def whole(self, norms: Tensor) -> Tensor:
        """Compute norms of whole tensors from those of this process's parts, of any shape."""
        if self._total is None:
            return norms
        return self._total(norms.square()).sqrt()


WHOLE = Norms()
"""Where a process has all of every tensor."""
