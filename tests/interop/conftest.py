"""Classes of transformers in the type of the model, in which logits are compared."""

import pytest
import torch

from sublayer.interop import certificate
from tests.interop.tiny import lifted


@pytest.fixture(autouse=True, scope="module")
def wide_decoders():
    """Have certificates compare in float64 what decoders of transformers compute in float32."""
    build, theirs = certificate._build, certificate.CertificateBatch.theirs

    def built(kind, fields, tensors):
        with lifted(kind):
            return build(kind, fields, tensors)

    def answered(batch, model, oracle):
        with lifted(type(model), model.dtype):
            return theirs(batch, model, oracle)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificate, "_build", built)
        patch.setattr(certificate.CertificateBatch, "theirs", answered)
        yield


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
