"""The chunked cross-entropy against its definition."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sublayer.model.kernels import cross_entropy
from sublayer.model.kernels.cross_entropy import (
    Smoothing,
    linear_cross_entropy,
    nats_of_targets,
    smoothed_cross_entropy,
)

N, E, V = 7, 3, 11


def inputs(*, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(N, E, dtype=dtype, generator=generator, requires_grad=True)
    matrix = torch.randn(V, E, dtype=dtype, generator=generator, requires_grad=True)
    bias = torch.randn(V, dtype=dtype, generator=generator, requires_grad=True)
    targets = torch.randint(0, V, (N,), generator=generator)
    targets[2] = -1
    return hidden, matrix, bias, targets


def test_equal_logits_cost_the_log_of_the_vocabulary() -> None:
    total = linear_cross_entropy(torch.ones(2, E), torch.zeros(V, E), None, torch.tensor([0, 4]))
    assert total.item() == pytest.approx(2 * math.log(V))


@pytest.mark.parametrize("chunk_logits", [1, 2 * V, 1000])
@pytest.mark.parametrize("has_bias", [True, False])
def test_loss_and_gradients_equal_the_definition(
    monkeypatch: pytest.MonkeyPatch, chunk_logits: int, has_bias: bool
) -> None:
    monkeypatch.setattr(cross_entropy, "CPU_CHUNK_LOGITS", chunk_logits)
    hidden, matrix, some_bias, targets = inputs()
    bias = some_bias if has_bias else None
    wanted = [hidden, matrix, some_bias] if has_bias else [hidden, matrix]
    expected = F.cross_entropy(
        F.linear(hidden, matrix, bias), targets, ignore_index=-1, reduction="sum"
    )
    actual = linear_cross_entropy(hidden, matrix, bias, targets)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(3 * actual, wanted),
        torch.autograd.grad(3 * expected, wanted),
        rtol=0,
        atol=1e-12,
    )


@pytest.mark.parametrize("chunk_logits", [1, 2 * V, 1000])
def test_targets_cost_the_same_one_by_one(
    monkeypatch: pytest.MonkeyPatch, chunk_logits: int
) -> None:
    monkeypatch.setattr(cross_entropy, "CPU_CHUNK_LOGITS", chunk_logits)
    hidden, matrix, bias, targets = inputs()
    found = nats_of_targets(hidden, matrix, bias, targets)
    logits = F.linear(hidden, matrix, bias)
    expected = F.cross_entropy(logits, targets, ignore_index=-1, reduction="none")
    torch.testing.assert_close(found.each, expected.detach(), rtol=0, atol=1e-12)
    assert found.each[2] == 0
    with torch.no_grad():
        assert found.total == linear_cross_entropy(hidden, matrix, bias, targets)


def test_z_loss_of_equal_logits_is_the_square_of_the_log_of_the_vocabulary() -> None:
    # Every logit is log 2, so that Z = 2 V; the third target does not count.
    bias = torch.full((V,), math.log(2.0), dtype=torch.float64)
    hidden, matrix = torch.ones(3, E).double(), torch.zeros(V, E).double()
    trained, nats = smoothed_cross_entropy(
        hidden, matrix, bias, torch.tensor([0, 4, -1]), Smoothing(1.0, 0.0, 0.5)
    )
    assert nats.item() == pytest.approx(2 * math.log(V))
    assert trained.item() == pytest.approx(2 * math.log(V) + 2 * 0.5 * math.log(2 * V) ** 2)


@pytest.mark.parametrize("chunk_logits", [1, 2 * V, 1000])
@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("share", [0.0, 0.3])
def test_z_loss_and_its_gradients_equal_the_definition(
    monkeypatch: pytest.MonkeyPatch, chunk_logits: int, has_bias: bool, share: float
) -> None:
    monkeypatch.setattr(cross_entropy, "CPU_CHUNK_LOGITS", chunk_logits)
    hidden, matrix, some_bias, targets = inputs()
    bias = some_bias if has_bias else None
    wanted = [hidden, matrix, some_bias] if has_bias else [hidden, matrix]
    logits = F.linear(hidden, matrix, bias)
    plain = F.cross_entropy(logits, targets, ignore_index=-1, reduction="sum")
    smoothed = F.cross_entropy(
        logits, targets, ignore_index=-1, reduction="sum", label_smoothing=share
    )
    expected = smoothed + 0.7 * logits.logsumexp(-1)[targets >= 0].square().sum()
    trained, nats = smoothed_cross_entropy(
        hidden, matrix, bias, targets, Smoothing(1.0 - share, share / V, 0.7)
    )
    torch.testing.assert_close(nats, plain.detach(), rtol=0, atol=1e-12)
    torch.testing.assert_close(trained, expected, rtol=0, atol=1e-11)
    torch.testing.assert_close(
        torch.autograd.grad(3 * trained, wanted),
        torch.autograd.grad(3 * expected, wanted),
        rtol=0,
        atol=1e-11,
    )


@pytest.mark.parametrize("chunk_logits", [1, 2 * V, 1000])
@pytest.mark.parametrize("has_bias", [True, False])
def test_a_target_counts_as_often_as_its_weight_says(
    monkeypatch: pytest.MonkeyPatch, chunk_logits: int, has_bias: bool
) -> None:
    monkeypatch.setattr(cross_entropy, "CPU_CHUNK_LOGITS", chunk_logits)
    hidden, matrix, some_bias, targets = inputs()
    bias = some_bias if has_bias else None
    wanted = [hidden, matrix, some_bias] if has_bias else [hidden, matrix]
    # A weight of nothing, one of what does not count, and others.
    weights = torch.tensor([0.5, 0.0, 9.0, 2.0, 1.0, 1 / 3, 7.0], dtype=torch.float64)
    logits = F.linear(hidden, matrix, bias)
    each = F.cross_entropy(logits, targets, ignore_index=-1, reduction="none")
    expected = (each * weights).sum()
    actual = linear_cross_entropy(hidden, matrix, bias, targets, weights)
    torch.testing.assert_close(actual, expected, rtol=0, atol=1e-12)
    torch.testing.assert_close(
        torch.autograd.grad(3 * actual, wanted),
        torch.autograd.grad(3 * expected, wanted),
        rtol=0,
        atol=1e-12,
    )
    with torch.no_grad():
        evaluated = linear_cross_entropy(hidden, matrix, bias, targets, weights)
    torch.testing.assert_close(evaluated, expected.detach(), rtol=0, atol=1e-12)


def test_weights_of_one_change_nothing() -> None:
    hidden, matrix, bias, targets = inputs()
    plain = linear_cross_entropy(hidden, matrix, bias, targets)
    weighted = linear_cross_entropy(hidden, matrix, bias, targets, torch.ones(N).double())
    assert torch.equal(plain, weighted)
    wanted = (hidden, matrix, bias)
    torch.testing.assert_close(
        torch.autograd.grad(weighted, wanted), torch.autograd.grad(plain, wanted), rtol=0, atol=0
    )


def test_weights_of_a_model_in_float32_are_applied_in_it() -> None:
    hidden, matrix, bias, targets = inputs(dtype=torch.float32)
    weights = torch.linspace(0, 2, N)
    exact = [tensor.detach().double().requires_grad_() for tensor in (hidden, matrix, bias)]
    expected = linear_cross_entropy(*exact, targets, weights.double())
    actual = linear_cross_entropy(hidden, matrix, bias, targets, weights)
    assert actual.dtype == torch.float32
    assert actual.item() == pytest.approx(expected.item(), rel=1e-6)
    found = torch.autograd.grad(actual, (hidden, matrix, bias))
    torch.testing.assert_close(
        [each.double() for each in found],
        list(torch.autograd.grad(expected, exact)),
        rtol=0,
        atol=1e-6,
    )


def test_gradients_equal_finite_differences() -> None:
    hidden, matrix, bias, targets = inputs()
    assert torch.autograd.gradcheck(
        lambda *x: linear_cross_entropy(*x, targets), (hidden, matrix, bias)
    )


def test_evaluation_gives_the_same_number_as_training() -> None:
    hidden, matrix, bias, targets = inputs()
    trained = linear_cross_entropy(hidden, matrix, bias, targets)
    with torch.no_grad():
        assert torch.equal(linear_cross_entropy(hidden, matrix, bias, targets), trained)


def test_an_improbable_target_costs_a_finite_number() -> None:
    hidden, matrix = torch.tensor([[1.0]]), torch.tensor([[0.0], [1000.0]])
    assert linear_cross_entropy(hidden, matrix, None, torch.tensor([0])).item() == 1000.0


def test_nothing_counted_costs_nothing() -> None:
    hidden, matrix, bias, targets = inputs()
    total = linear_cross_entropy(hidden, matrix, bias, torch.full_like(targets, -1))
    gradients = torch.autograd.grad(total, (hidden, matrix, bias))
    assert total.item() == 0.0
    assert not any(gradient.any() for gradient in gradients)


def test_autocast_sums_in_float32() -> None:
    hidden, matrix, bias, targets = inputs(dtype=torch.float32)
    exact = linear_cross_entropy(hidden, matrix, bias, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total = linear_cross_entropy(hidden, matrix, bias, targets)
    gradients = torch.autograd.grad(total, (hidden, matrix, bias))
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(exact.item(), rel=0.02)
    assert all(gradient.dtype == torch.float32 for gradient in gradients)
