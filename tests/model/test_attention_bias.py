"""A bias of the scores, in every kernel, against a softmax that autograd differentiates."""

import numpy as np
import pytest
import torch
from torch import Tensor

from sublayer.model.context.keys import Keys, StepKeys
from sublayer.model.context.layout import Layout
from sublayer.model.kernels import attention, attention_blocks, attention_cpu
from sublayer.model.kernels.attention import attend

B, H, K = 2, 3, 5
KERNELS = ("together", "by sequence", "fused")


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Have several queries take one of the kernels."""
    monkeypatch.setattr(attention_cpu, "GRAIN", 0 if request.param == "by sequence" else 1 << 40)
    if request.param == "fused":
        monkeypatch.setattr(attention, "is_eager_cpu", lambda x: False)
    return str(request.param)


def random_inputs(n_biases: int, n_queries: int, n_keys: int) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(n_queries)
    shapes = [(B, H, n, K) for n in (n_queries, n_keys, n_keys)]
    shapes.append((n_biases, H, n_queries, n_keys))
    made = [torch.randn(shape, dtype=torch.float64, generator=generator) for shape in shapes]
    return tuple(each.requires_grad_() for each in made)


def plain(q: Tensor, k: Tensor, v: Tensor, bias: Tensor, seen: Tensor) -> Tensor:
    scores = (0.7 * q @ k.transpose(2, 3) + bias).masked_fill(~seen, float("-inf"))
    return scores.softmax(-1) @ v


def check(inputs: tuple[Tensor, ...], keys: Keys, seen: Tensor) -> None:
    """Compare values and all four gradients."""
    sink = torch.randn(inputs[0].shape, dtype=torch.float64)
    q, k, v, bias = inputs
    own, expected = attend(q, k, v, keys, bias, scale=0.7), plain(q, k, v, bias, seen)
    torch.testing.assert_close(own, expected, rtol=0, atol=1e-12)
    gradients = (torch.autograd.grad(each, inputs, sink) for each in (own, expected))
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n_biases", [1, B])
@pytest.mark.parametrize(("n_queries", "n_keys"), [(7, 7), (3, 11), (131, 137), (257, 260)])
def test_a_causal_bias_has_its_gradient(
    kernel: str, n_biases: int, n_queries: int, n_keys: int
) -> None:
    seen = torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries)
    check(random_inputs(n_biases, n_queries, n_keys), Keys(True, None), seen)


@pytest.mark.parametrize("n_biases", [1, B])
@pytest.mark.parametrize("is_causal", [False, True])
def test_a_bias_under_a_mask_has_its_gradient(kernel: str, n_biases: int, is_causal: bool) -> None:
    n, lengths = 139, torch.tensor([139, 90])
    mask, tokens = torch.arange(n) < lengths[:, None], torch.zeros(B, n, dtype=torch.long)
    keys = (Layout.causal if is_causal else Layout.bidirectional)(tokens, mask).keys
    assert keys.mask is not None
    check(random_inputs(n_biases, n, n), keys, keys.mask)


def test_a_bias_where_every_key_is_seen_has_its_gradient(kernel: str) -> None:
    check(random_inputs(1, 131, 17), Keys(False, None), torch.ones(131, 17, dtype=torch.bool))


def test_one_query_has_its_bias_too() -> None:
    check(random_inputs(1, 1, 9), Keys(True, None), torch.ones(1, 9, dtype=torch.bool))


@pytest.mark.parametrize("n_biases", [1, B])
@pytest.mark.parametrize("is_causal", [False, True])
def test_the_gradient_is_that_of_finite_differences(
    monkeypatch: pytest.MonkeyPatch, kernel: str, n_biases: int, is_causal: bool
) -> None:
    monkeypatch.setattr(attention_blocks, "BLOCK_ROWS", 2)
    inputs = random_inputs(n_biases, 3, 4)

    def attended(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return attend(q, k, v, Keys(is_causal, None), bias, scale=0.7)

    assert torch.autograd.gradcheck(attended, inputs)


@pytest.mark.slow
def test_the_gradient_holds_under_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_blocks, "BLOCK_ROWS", 3)
    inputs = random_inputs(1, 7, 7)

    def dropped(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        torch.manual_seed(1)
        return attend(q, k, v, Keys(True, None), bias, scale=0.7, p_dropout=0.4)

    assert torch.autograd.gradcheck(dropped, inputs)


def test_a_step_has_its_bias_with_its_gradient() -> None:
    q, k, v, bias = random_inputs(B, 4, 11)
    hidden = torch.rand(B, 4, 11, generator=torch.Generator().manual_seed(0)) < 0.4
    keys = StepKeys.hiding(hidden, torch.float64)
    # One row of a bias for all queries, as where hypotheses of a slot are equally long.
    for each in (bias, bias[:, :, :1]):
        own = attend(q, k, v, keys, each, scale=0.7)
        expected = plain(q, k, v, each, ~hidden[:, None])
        torch.testing.assert_close(own, expected, rtol=0, atol=1e-12)
        gradients = (torch.autograd.grad(x.sum(), (q, k, v, bias)) for x in (own, expected))
        torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


def test_a_float32_bias_of_bfloat16_scores_has_a_float32_gradient() -> None:
    inputs = random_inputs(1, 131, 131)
    q, k, v = (each.detach().bfloat16() for each in inputs[:3])
    bias = inputs[3].detach().float().requires_grad_()
    attend(q, k, v, Keys(True, None), bias, scale=0.7).square().sum().backward()
    assert bias.grad is not None
    exact = bias.detach().double().requires_grad_()
    seen = torch.ones(131, 131, dtype=torch.bool).tril()
    plain(q.double(), k.double(), v.double(), exact, seen).square().sum().backward()
    assert exact.grad is not None
    error = (bias.grad.double() - exact.grad).norm() / exact.grad.norm()
    assert bias.grad.dtype == torch.float32
    assert 1e-6 < error < 0.02


def peak_of_a_pass(bias: Tensor | None) -> int:
    """Measure the most bytes that attention and its gradient hold at once."""
    q, k, v = (torch.randn(B, H, 512, 8, requires_grad=True) for _ in range(3))
    with torch.profiler.profile(profile_memory=True) as profiler:
        attend(q, k, v, Keys(False, None), bias, scale=0.7).sum().backward()
    assert profiler.profiler is not None and profiler.profiler.kineto_results is not None
    events = [
        event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"
    ]
    ordered = sorted(events, key=lambda event: event.start_ns())
    return int(np.cumsum([event.nbytes() for event in ordered]).max())


@pytest.mark.parametrize("grain", [0, 1 << 40], ids=["by sequence", "together"])
def test_no_more_of_a_bias_is_held_than_its_gradient_and_a_block(
    monkeypatch: pytest.MonkeyPatch, grain: int
) -> None:
    monkeypatch.setattr(attention_cpu, "GRAIN", grain)
    bias = torch.randn(1, H, 512, 512)
    without = peak_of_a_pass(None)
    assert peak_of_a_pass(bias) == without
    block = H * attention_blocks.BLOCK_ROWS * 512 * 4
    assert peak_of_a_pass(bias.requires_grad_()) <= without + bias.nbytes + block
