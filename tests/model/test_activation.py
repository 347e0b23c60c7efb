"""Activations against their definitions."""

import math

import pytest
import torch
import torch.nn.functional as F

from sublayer.model.kernels import activation
from sublayer.model.kernels.activation import tanh_gelu
from sublayer.model.layers.activation import build_activation


def test_tanh_gelu_by_its_definition() -> None:
    x = torch.linspace(-6, 6, 101, dtype=torch.float64, requires_grad=True)
    defined = x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    torch.testing.assert_close(tanh_gelu(x), defined, rtol=0, atol=1e-14)
    torch.testing.assert_close(F.gelu(x, approximate="tanh"), defined, rtol=0, atol=1e-14)


def test_tanh_gelu_has_the_gradient_of_its_definition(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation, "GELU_PART", 7)  # several parts, the last one ragged
    x = torch.randn(3, 5, 2, dtype=torch.float64, requires_grad=True)
    native = F.gelu(x, approximate="tanh")
    sink = torch.randn_like(native)
    torch.testing.assert_close(tanh_gelu(x), native, rtol=0, atol=1e-14)
    torch.testing.assert_close(
        torch.autograd.grad(tanh_gelu(x), x, sink),
        torch.autograd.grad(native, x, sink),
        rtol=0,
        atol=1e-14,
    )


def test_tanh_gelu_takes_the_half_of_a_wider_tensor() -> None:
    x = torch.randn(3, 10, dtype=torch.float64, requires_grad=True)
    gate = x.chunk(2, dim=-1)[0]
    (gradient,) = torch.autograd.grad(tanh_gelu(gate).sum(), x)
    (native,) = torch.autograd.grad(F.gelu(gate, approximate="tanh").sum(), x)
    torch.testing.assert_close(gradient, native)


def test_tanh_gelu_is_as_good_as_the_native_one_in_bfloat16() -> None:
    x = torch.linspace(-8, 8, 4001).bfloat16().requires_grad_()
    exact = F.gelu(x.double(), approximate="tanh")
    native = F.gelu(x, approximate="tanh")
    assert tanh_gelu(x).dtype == torch.bfloat16
    assert (tanh_gelu(x) - exact).abs().max() <= (native - exact).abs().max()


def test_tanh_gelu_without_a_gradient_is_the_native_one_at_every_size() -> None:
    for n in (10, activation._MANY, 3 * activation._MANY):
        x = torch.linspace(-8, 8, n)
        torch.testing.assert_close(
            tanh_gelu(x), F.gelu(x, approximate="tanh"), rtol=1e-5, atol=1e-6
        )
    far = torch.tensor([-math.inf, -1e30, 1e30, math.inf]).repeat_interleave(activation._MANY)
    assert tanh_gelu(far)[:: activation._MANY].nan_to_num(0.0).tolist() == [
        *F.gelu(far, approximate="tanh")[:: activation._MANY].nan_to_num(0.0).tolist()
    ]


def test_extreme_inputs_stay_finite() -> None:
    x = torch.tensor([-1e4, -30.0, 30.0, 1e4], requires_grad=True)
    (slope,) = torch.autograd.grad(tanh_gelu(x).sum(), x)
    assert tanh_gelu(x).tolist() == [0.0, 0.0, 30.0, 1e4]
    assert slope.tolist() == [0.0, 0.0, 1.0, 1.0]


def test_exact_gelu_is_x_times_the_normal_distribution() -> None:
    x = torch.tensor([-1.0, 0.0, 1.0])
    normal = torch.tensor([0.158655, 0.5, 0.841345])
    torch.testing.assert_close(
        build_activation("gelu", "exact", 1.0)(x), x * normal, rtol=0, atol=1e-6
    )
