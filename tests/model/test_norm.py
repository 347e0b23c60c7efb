"""Norms against numbers worked out by hand."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sublayer.model.layers.norm import LayerNorm, RMSNorm, build_norm


def test_layer_norm_by_hand() -> None:
    # Mean 3, variance 4: (1 - 3) / sqrt(4 + 5) = -2/3 and (5 - 3) / 3 = 2/3.
    norm = build_norm("layer", 2, eps=5.0, affine=False)
    torch.testing.assert_close(norm(torch.tensor([1.0, 5.0])), torch.tensor([-2 / 3, 2 / 3]))


def test_layer_norm_applies_gain_then_offset() -> None:
    norm = build_norm("layer", 2, eps=5.0, affine=True)
    assert isinstance(norm, LayerNorm)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([3.0, 6.0]))
        norm.bias.copy_(torch.tensor([10.0, 20.0]))
    torch.testing.assert_close(norm(torch.tensor([1.0, 5.0])), torch.tensor([8.0, 24.0]))


def test_rms_norm_by_hand() -> None:
    # Mean square of (1, 7) is 25: divided by sqrt(25 + 11) = 6, then times the gains 6 and 12.
    norm = build_norm("rms", 2, eps=11.0, affine=True)
    assert isinstance(norm, RMSNorm)
    with torch.no_grad():
        norm.weight.copy_(torch.tensor([6.0, 12.0]))
    torch.testing.assert_close(norm(torch.tensor([1.0, 7.0])), torch.tensor([1.0, 14.0]))


def test_rms_norm_without_parameters_by_hand() -> None:
    norm = build_norm("rms", 2, eps=11.0, affine=False)
    torch.testing.assert_close(norm(torch.tensor([1.0, 7.0])), torch.tensor([1 / 6, 7 / 6]))
    assert not list(norm.parameters())


def test_no_norm_changes_nothing() -> None:
    x = torch.randn(2, 3)
    assert build_norm("none", 3, eps=1e-5, affine=True)(x) is x


@pytest.mark.parametrize("affine", [True, False])
def test_rms_norm_equals_the_native_one_with_its_gradients(affine: bool) -> None:
    norm = RMSNorm(5, eps=1e-3, affine=affine).double()
    if affine:
        nn.init.normal_(norm.weight)
    x = torch.randn(2, 3, 5, dtype=torch.float64, requires_grad=True)

    def native(x: Tensor) -> Tensor:
        return F.rms_norm(x, (5,), norm.weight, norm.eps)

    wanted = [x, *norm.parameters()]
    sink = torch.randn(2, 3, 5, dtype=torch.float64)
    torch.testing.assert_close(norm(x), native(x), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(norm(x), wanted, sink),
        torch.autograd.grad(native(x), wanted, sink),
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.parametrize("kind", ["layer", "rms"])
def test_norms_stay_in_float32_under_autocast(kind: str) -> None:
    norm = build_norm(kind, 4, eps=1e-5, affine=False)  # type: ignore[arg-type]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert norm(torch.randn(3, 4)).dtype == torch.float32
