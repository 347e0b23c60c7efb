"""Norms of transformers' T5 in the type of the model, in which logits are compared."""

import pytest
import torch


@pytest.fixture(autouse=True, scope="module")
def wide_norms():
    """Have transformers' T5 compute norms in the type of the model: they are float32 in any."""
    from transformers.models.t5 import modeling_t5

    def forward(self, x):
        inverse = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.variance_epsilon)
        return self.weight * (x * inverse)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(modeling_t5.T5LayerNorm, "forward", forward)
        yield
