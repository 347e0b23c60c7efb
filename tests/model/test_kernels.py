"""Kernels against their definitions: activations, attention, cross-entropy and dropout."""

import math

import pytest
import torch
import torch.nn.functional as F

from sublayer.model.context.keys import Keys, StepKeys
from sublayer.model.context.layout import Layout
from sublayer.model.kernels import activation, attention, attention_blocks, attention_cpu
from sublayer.model.kernels import cross_entropy as losses
from sublayer.model.kernels import swish as swish_kernel
from sublayer.model.kernels.activation import tanh_gelu
from sublayer.model.kernels.attention import attend
from sublayer.model.kernels.cross_entropy import (
    Smoothing,
    linear_cross_entropy,
    nats_of_targets,
    smoothed_cross_entropy,
)
from sublayer.model.kernels.dropout import add_branch, dropout, random_lanes
from sublayer.model.kernels.swish import swish

from .conftest import check_gradients, close


def test_tanh_gelu_has_the_values_and_gradients_of_its_definition(monkeypatch):
    monkeypatch.setattr(activation, "GELU_PART", 7)  # several parts, the last one ragged
    x = torch.linspace(-6, 6, 102, dtype=torch.float64).view(3, 17, 2).requires_grad_()
    defined = x / 2 * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    check_gradients(tanh_gelu(x), defined, x, 1e-14)


def test_tanh_gelu_in_bfloat16_and_beyond_the_range_is_as_good_as_the_native_one():
    x = torch.linspace(-8, 8, 4001).bfloat16().requires_grad_()
    exact, native = F.gelu(x.double(), approximate="tanh"), F.gelu(x, approximate="tanh")
    assert tanh_gelu(x).dtype == torch.bfloat16
    assert (tanh_gelu(x) - exact).abs().max() <= (native - exact).abs().max()
    x = torch.tensor([-1e4, -30.0, 30.0, 1e4], requires_grad=True)
    (slope,) = torch.autograd.grad(tanh_gelu(x).sum(), x)
    assert tanh_gelu(x).tolist() == [0.0, 0.0, 30.0, 1e4]
    assert slope.tolist() == [0.0, 0.0, 1.0, 1.0]


@pytest.mark.parametrize(("shape", "part"), [((3, 5, 2), 4), ((7, 3), 1 << 20)], ids=str)
def test_both_gradients_of_swish_are_those_of_the_definition(monkeypatch, shape, part):
    monkeypatch.setattr(swish_kernel, "SWISH_PART", part)  # several parts, the last one ragged
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    beta = torch.tensor(1.7, dtype=torch.float64, requires_grad=True)
    check_gradients(swish(x, beta), x * torch.sigmoid(beta * x), (x, beta), 1e-13)


@pytest.mark.parametrize("function", [tanh_gelu, lambda x: swish(x, 2.0)], ids=["gelu", "swish"])
def test_half_of_a_wider_tensor_has_its_gradient(function):
    x = torch.randn(3, 4, 10, dtype=torch.float64, requires_grad=True)
    (found,) = torch.autograd.grad(function(x.chunk(2, dim=-1)[0]).sum(), x)
    half = x.detach()[..., :5].contiguous().requires_grad_()
    (expected,) = torch.autograd.grad(function(half).sum(), half)
    close(found, F.pad(expected, (0, 5)))


B, H, K = 2, 3, 5


def attention_inputs(n_biases, n_queries, n_keys):
    """Draw queries, keys, values and a bias, where there is one."""
    shapes = [(B, H, n, K) for n in (n_queries, n_keys, n_keys)]
    shapes += [(n_biases, H, n_queries, n_keys)] if n_biases else []
    rules = {"dtype": torch.float64, "generator": torch.Generator().manual_seed(n_queries)}
    return [torch.randn(shape, **rules).requires_grad_() for shape in shapes]


def plain_attention(q, k, v, bias, seen):
    scores = (0.7 * q @ k.transpose(2, 3) + bias).masked_fill(~seen, float("-inf"))
    return scores.softmax(-1) @ v


def keys_of(kind, n_queries, n_keys):
    """Describe the keys of a kind, and which of them each query sees."""
    if kind in ("causal", "all"):
        seen = torch.ones(n_queries, n_keys, dtype=torch.bool)
        is_causal = kind == "causal"
        return Keys(is_causal, None), seen.tril(n_keys - n_queries) if is_causal else seen
    mask = torch.arange(n_keys) < torch.tensor([[n_keys], [2 * n_keys // 3]])
    lay_out = Layout.causal if kind == "causal, padded" else Layout.bidirectional
    keys = lay_out(torch.zeros(B, n_keys, dtype=torch.long), mask).keys
    return keys, keys.mask


@pytest.mark.parametrize(
    ("kernel", "n_biases", "n_queries", "n_keys", "kind"),
    [
        ("together", 0, 131, 137, "causal"),
        ("by sequence", 0, 257, 260, "causal"),
        ("together", B, 257, 260, "causal"),
        ("by sequence", 1, 131, 137, "causal"),
        ("fused", B, 131, 137, "causal"),
        ("together", B, 139, 139, "causal, padded"),
        ("by sequence", 1, 139, 139, "padded"),
        ("fused", 1, 139, 139, "causal, padded"),
        ("by sequence", B, 131, 17, "all"),
    ],
)
def test_attention_and_its_gradients_are_those_of_a_softmax(
    monkeypatch, kernel, n_biases, n_queries, n_keys, kind
):
    monkeypatch.setattr(attention_cpu, "GRAIN", 0 if kernel == "by sequence" else 1 << 40)
    if kernel == "fused":
        monkeypatch.setattr(attention, "is_eager_cpu", lambda x: False)
    inputs = attention_inputs(n_biases, n_queries, n_keys)
    keys, seen = keys_of(kind, n_queries, n_keys)
    bias = inputs[3] if n_biases else None
    own = attend(*inputs[:3], keys, bias, scale=0.7)
    expected = plain_attention(*inputs[:3], 0.0 if bias is None else bias, seen)
    check_gradients(own, expected, inputs)


@pytest.mark.parametrize(
    ("n_biases", "is_padded", "p"), [(1, False, 0.0), (B, False, 0.4), (0, True, 0.4)]
)
def test_attention_gradients_are_finite_differences_under_dropout_and_masks(
    monkeypatch, n_biases, is_padded, p
):
    monkeypatch.setattr(attention_blocks, "BLOCK_ROWS", 2)
    mask = torch.tensor([[False, True, True, True], [True] * 4]) if is_padded else None
    keys = Layout.causal(torch.zeros(B, 4, dtype=torch.long), mask).keys

    def attended(q, k, v, bias=None):
        torch.manual_seed(1)
        return attend(q, k, v, keys, bias, scale=0.7, p_dropout=p)

    assert torch.autograd.gradcheck(attended, attention_inputs(n_biases, 4, 4), fast_mode=True)


def test_dropped_attention_weights_are_zero_and_the_rest_are_scaled():
    n, p = 128, 0.25
    q = torch.zeros(B, H, n, n, dtype=torch.float64)
    values = torch.eye(n, dtype=torch.float64).expand(B, H, n, n).contiguous()
    keys, seen = keys_of("causal", n, n)
    torch.manual_seed(0)
    # Row t: 1 / (t + 1), or dropped.
    weights = attend(q, q, values, keys, scale=1.0, p_dropout=p)
    shares = (weights * torch.arange(1, n + 1)[:, None])[seen.expand_as(weights)]
    kept = shares[shares != 0]
    close(kept, torch.full_like(kept, 4 / 3))
    limit = 4 * (p * (1 - p) / shares.numel()) ** 0.5
    assert abs(len(kept) / shares.numel() - (1 - p)) < limit
    assert not weights[~seen.expand_as(weights)].any()
    narrow = attend(q.bfloat16(), q.bfloat16(), values.bfloat16(), keys, scale=1.0, p_dropout=p)
    rate = (narrow[seen.expand_as(narrow)] == 0).double().mean()
    assert abs(rate - p) < limit


def test_a_step_has_its_bias_with_its_gradient():
    q, k, v, bias = attention_inputs(B, 4, 11)
    hidden = torch.rand(B, 4, 11, generator=torch.Generator().manual_seed(0)) < 0.4
    keys = StepKeys.hiding(hidden, torch.float64)
    # One row of a bias for all queries, as where hypotheses of a slot are equally long.
    for each in (bias, bias[:, :, :1]):
        own = attend(q, k, v, keys, each, scale=0.7)
        expected = plain_attention(q, k, v, each, ~hidden[:, None])
        check_gradients(own, expected, (q, k, v, bias))


N, E, V = 7, 3, 11


def loss_inputs(dtype=torch.float64):
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(shape, dtype=dtype, generator=generator) for shape in ((N, E), (V, E), V)]
    targets = torch.randint(0, V, (N,), generator=generator)
    targets[2] = -1
    hidden, matrix, bias = (each.requires_grad_() for each in drawn)
    return hidden, matrix, bias, targets


@pytest.mark.parametrize(
    ("chunk", "has_bias", "is_weighted"),
    [(1, True, False), (2 * V, False, True), (1000, True, True)],
)
def test_the_loss_and_its_gradients_equal_the_definition(monkeypatch, chunk, has_bias, is_weighted):
    monkeypatch.setattr(losses, "CPU_CHUNK_LOGITS", chunk)
    hidden, matrix, bias, targets = loss_inputs()
    wanted = [hidden, matrix, bias] if has_bias else [hidden, matrix]
    # A weight of nothing, one of what does not count, and others.
    weights = torch.tensor([0.5, 0.0, 9.0, 2.0, 1.0, 1 / 3, 7.0], dtype=torch.float64)
    weights = weights if is_weighted else torch.ones(N).double()
    given = (hidden, matrix, bias if has_bias else None, targets)
    nats = F.cross_entropy(F.linear(*given[:3]), targets, ignore_index=-1, reduction="none")
    expected = (nats * weights).sum()
    rest = (weights,) if is_weighted else ()
    actual = linear_cross_entropy(*given, *rest)
    check_gradients(actual, expected, wanted)
    found = nats_of_targets(*given)
    close(found.each, nats.detach())
    assert found.each[2] == 0
    with torch.no_grad():
        assert torch.equal(linear_cross_entropy(*given, *rest), actual)
        assert found.total == linear_cross_entropy(*given)


@pytest.mark.parametrize(
    ("chunk", "has_bias", "share"), [(1, True, 0.3), (2 * V, False, 0.3), (1000, True, 0.0)]
)
def test_smoothing_and_z_loss_equal_the_definition(monkeypatch, chunk, has_bias, share):
    monkeypatch.setattr(losses, "CPU_CHUNK_LOGITS", chunk)
    hidden, matrix, bias, targets = loss_inputs()
    given = (hidden, matrix, bias if has_bias else None)
    wanted = [each for each in given if each is not None]
    logits, rules = F.linear(*given), {"ignore_index": -1, "reduction": "sum"}
    smoothed = F.cross_entropy(logits, targets, **rules, label_smoothing=share)
    expected = smoothed + 0.7 * logits.logsumexp(-1)[targets >= 0].square().sum()
    form = Smoothing(1.0 - share, share / V, 0.7)
    trained, nats = smoothed_cross_entropy(*given, targets, form)
    close(nats, F.cross_entropy(logits, targets, **rules).detach())
    check_gradients(trained, expected, wanted, 1e-11)


def test_an_improbable_target_costs_a_finite_number_and_no_target_nothing():
    far, matrix = torch.tensor([[1.0]]), torch.tensor([[0.0], [1000.0]])
    assert linear_cross_entropy(far, matrix, None, torch.tensor([0])).item() == 1000.0
    hidden, matrix, bias, targets = loss_inputs()
    total = linear_cross_entropy(hidden, matrix, bias, torch.full_like(targets, -1))
    assert total.item() == 0.0
    assert not any(each.any() for each in torch.autograd.grad(total, (hidden, matrix, bias)))


def test_losses_are_summed_in_float32_under_autocast():
    hidden, matrix, bias, targets = loss_inputs(torch.float32)
    plain = linear_cross_entropy(hidden, matrix, bias, targets)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        total = linear_cross_entropy(hidden, matrix, bias, targets)
    assert total.dtype == torch.float32
    assert total.item() == pytest.approx(plain.item(), rel=0.02)
    gradients = torch.autograd.grad(total, (hidden, matrix, bias))
    assert all(each.dtype == torch.float32 for each in gradients)


N_DRAWS = 1 << 18


def test_lanes_are_the_bits_of_splitmix64():
    torch.manual_seed(4)
    state = int(torch.empty((), dtype=torch.int64).random_(-(2**63), None))
    torch.manual_seed(4)
    draws = random_lanes(torch.Size([20])).view(torch.int64).tolist()
    for counter, draw in enumerate(draws):
        z = (state + counter * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        assert draw % 2**64 == z ^ z >> 31


@pytest.mark.parametrize(("p", "dtype"), [(0.1, torch.float32), (0.5, torch.bfloat16)])
def test_dropout_keeps_its_rate_its_mean_and_its_gradient(p, dtype):
    torch.manual_seed(3)
    x = torch.ones(N_DRAWS, dtype=dtype, requires_grad=True)
    dropped = dropout(x, p, training=True)
    rate = (dropped == 0).double().mean().item()
    assert abs(rate - p) < 4 * (p * (1 - p) / N_DRAWS) ** 0.5
    kept = dropped[dropped != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p)), rtol=1e-3, atol=0)
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    assert torch.equal(gradient, dropped)
    assert dropout(x, 0.0, training=True) is x
    assert dropout(x, 0.5, training=False) is x


def test_a_branch_is_dropped_scaled_and_added():
    x = torch.zeros(N_DRAWS)
    branch = torch.ones(N_DRAWS, dtype=torch.bfloat16, requires_grad=True)
    torch.manual_seed(5)
    total = add_branch(x, branch, step=0.5, p=0.75, training=True)
    assert total.dtype == torch.float32
    assert set(total.unique().tolist()) == {0.0, 2.0}  # 0.5 / (1 - 0.75)
    (gradient,) = torch.autograd.grad(total.sum(), branch)
    torch.testing.assert_close(gradient.float(), total.detach())
    x, branch = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])
    assert add_branch(x, branch, step=0.5, p=0.0, training=True).tolist() == [6.0, 12.0]
    assert add_branch(x, branch, step=0.5, p=0.9, training=False).tolist() == [6.0, 12.0]
