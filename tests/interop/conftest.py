"""Norms of transformers' T5 in the type of the model, in which logits are compared."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def wide_norms() -> Iterator[None]:
    """Have transformers' T5 compute norms in the type of the model: they are float32 in any."""
    from transformers.models.t5 import modeling_t5

    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        inverse = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        normed: torch.Tensor = self.weight * (x * inverse)
        return normed

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling_t5.T5LayerNorm, "forward", forward)
        yield
