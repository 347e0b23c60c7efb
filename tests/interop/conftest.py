"""Classes of transformers in the type of the model, in which logits are compared."""

import pytest
import torch.nn.functional as F

from sublayer.interop import certificate
from tests.interop.tiny import lifted


@pytest.fixture(autouse=True, scope="module")
def wide_classes():
    """Have classes compute in the type of the model what they compute in float32.

    Those of decoders and ModernBERT do so in certificates, T5's norms everywhere.
    """
    from transformers.models.t5 import modeling_t5

    build, theirs = certificate._build, certificate.CertificateBatch.theirs

    def built(kind, fields, tensors):
        with lifted(kind):
            return build(kind, fields, tensors)

    def answered(batch, model, oracle):
        with lifted(type(model), model.dtype):
            return theirs(batch, model, oracle)

    def normed(norm, x):
        return F.rms_norm(x, norm.weight.shape, norm.weight, norm.variance_epsilon)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(certificate, "_build", built)
        patch.setattr(certificate.CertificateBatch, "theirs", answered)
        patch.setattr(modeling_t5.T5LayerNorm, "forward", normed)
        yield
