"""What positions add to the scores of a decoding step, looked up once for many steps."""

import torch
from jaxtyping import Float
from torch import Tensor

from sublayer.model.positions import Positions

_FIRST_ROOM = 64
"""Keys for which it is looked up at first."""


class StepBias:
    """The bias of the newest query of a stack and of all keys up to its own.

    It depends on how far a key stands from its query alone: that of a query at the end of many keys
    ends with that of a query at the end of fewer.
    """

    def __init__(self, scheme: Positions) -> None:
        self._scheme = scheme
        self._room = 0
        self._bias: Tensor | None = None  # [1, H, 1, room]

    def of(
        self, n_positions: int, dtype: torch.dtype, device: torch.device
    ) -> Float[Tensor, "1 H 1 S"] | None:
        """Return the bias of the query at the last of S = ``n_positions``; None for none."""
        if not self._scheme.biases_scores:
            return None
        if n_positions > self._room:
            self._room = max(_FIRST_ROOM, 2 * n_positions)
            keys = torch.arange(self._room, device=device)
            self._bias = self._scheme.score_bias(keys[-1:], keys, dtype)
        assert self._bias is not None, "a scheme biases scores where its row says so"
        return self._bias[..., -n_positions:]
