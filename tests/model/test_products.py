"""Products with weights: equal to those in float64, by oneDNN only where they are large."""

import pytest
import torch
import torch.nn.functional as F

from sublayer.model.kernels import products
from sublayer.model.kernels.products import is_by_onednn, linear, linear_cross_entropy

needs_onednn = pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and torch.backends.mkl.is_available()),
    reason="this PyTorch has no oneDNN beside MKL",
)


@pytest.fixture(autouse=True)
def not_intel(monkeypatch):
    products._prefers_onednn.cache_clear()
    monkeypatch.setattr(products, "processor", lambda: "AMD EPYC")
    yield
    products._prefers_onednn.cache_clear()


def test_products_are_mkls_on_a_processor_of_intels(monkeypatch):
    monkeypatch.setattr(products, "processor", lambda: "Intel(R) Xeon(R) Processor")
    assert not is_by_onednn(torch.zeros(256, 256), torch.zeros(256, 256))


def drawn(*shape, dtype=torch.float32):
    generator = torch.Generator().manual_seed(len(shape) + sum(shape))
    return torch.randn(shape, generator=generator, dtype=dtype).requires_grad_()


@needs_onednn
@pytest.mark.parametrize(("d_in", "d_out"), [(128, 512), (512, 128)])
@pytest.mark.parametrize("has_bias", [True, False])
def test_large_maps_and_their_gradients_are_those_of_float64(d_in, d_out, has_bias):
    inputs = [drawn(4, 64, d_in), drawn(d_out, d_in), *([drawn(d_out)] if has_bias else [])]
    assert is_by_onednn(*inputs[:2])
    grad = drawn(4, 64, d_out).detach()
    mapped = linear(*inputs)
    gradients = torch.autograd.grad(mapped, inputs, grad)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    expected = F.linear(*wide)
    torch.testing.assert_close(mapped.double(), expected, rtol=1e-5, atol=1e-4)
    for gradient, exact in zip(
        gradients, torch.autograd.grad(expected, wide, grad.double()), strict=True
    ):
        torch.testing.assert_close(gradient.double(), exact, rtol=1e-5, atol=1e-4)


@needs_onednn
def test_frozen_weights_and_inputs_have_no_gradient():
    x, weight, bias = drawn(64, 512), drawn(512, 512), drawn(512)
    linear(x.detach(), weight, bias.detach()).sum().backward()
    linear(x, weight.detach()).sum().backward()
    assert bias.grad is None
    torch.testing.assert_close(weight.grad, x.detach().sum(0).expand(512, 512))
    torch.testing.assert_close(x.grad, weight.detach().sum(0).expand(64, 512), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_small_maps_and_float64_are_those_of_pytorch(dtype):
    n_rows = 1000 if dtype == torch.float64 else 8
    inputs = [
        drawn(n_rows, 256, dtype=dtype),
        drawn(256, 256, dtype=dtype),
        drawn(256, dtype=dtype),
    ]
    assert not is_by_onednn(*inputs[:2])
    assert torch.equal(linear(*inputs), F.linear(*inputs))


@needs_onednn
def test_the_cross_entropy_of_many_logits_is_that_of_float64():
    inputs = [drawn(512, 64), drawn(512, 64), drawn(512)]
    targets = torch.arange(512).remainder(511) - 1
    assert is_by_onednn(*inputs[:2])
    loss = linear_cross_entropy(*inputs, targets)
    wide = [x.detach().double().requires_grad_() for x in inputs]
    logits = F.linear(*wide)
    expected = F.cross_entropy(logits, targets, ignore_index=-1, reduction="sum")
    torch.testing.assert_close(loss.double(), expected, rtol=1e-6, atol=0.0)
    for gradient, exact in zip(
        torch.autograd.grad(loss, inputs), torch.autograd.grad(expected, wide), strict=True
    ):
        torch.testing.assert_close(gradient.double(), exact, rtol=1e-5, atol=1e-5)
