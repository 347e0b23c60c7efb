"""Attention: its kernel against the definition, and what a token may see."""

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from sublayer.model.context.keys import Keys
from sublayer.model.context.layout import Layout
from sublayer.model.kernels.attention import attend

B, H, K = 2, 3, 5


def random_qkv(n_queries: int, n_keys: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n_queries)
    sizes = (n_queries, n_keys, n_keys)
    q, k, v = (torch.randn(B, H, n, K, dtype=torch.float64, generator=generator) for n in sizes)
    return q.requires_grad_(), k.requires_grad_(), v.requires_grad_()


def causal_keys(n_queries: int, n_keys: int) -> Keys:
    tokens = torch.zeros(B, n_queries, dtype=torch.long)
    return Layout.causal(tokens, past=n_keys - n_queries).keys


@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 7), (7, 7), (3, 11), (131, 131), (257, 260)])
def test_attention_is_a_softmax_over_the_keys_up_to_the_query(n_queries: int, n_keys: int) -> None:
    q, k, v = random_qkv(n_queries, n_keys)
    mixed = attend(q, k, v, causal_keys(n_queries, n_keys), scale=0.7)
    visible = torch.ones(n_queries, n_keys, dtype=torch.bool).tril(n_keys - n_queries)
    weights = (0.7 * q @ k.transpose(2, 3)).masked_fill(~visible, float("-inf")).softmax(-1)
    torch.testing.assert_close(mixed, weights @ v, rtol=0, atol=1e-12)


@pytest.mark.parametrize("scale", [0.7, 1.0])
def test_gradients_equal_those_of_the_reference_kernel(scale: float) -> None:
    q, k, v = random_qkv(131, 137)
    visible = torch.ones(131, 137, dtype=torch.bool).tril(6)
    sink = torch.randn(B, H, 131, K, dtype=torch.float64)
    own = torch.autograd.grad(attend(q, k, v, causal_keys(131, 137), scale=scale), (q, k, v), sink)
    reference = torch.autograd.grad(
        F.scaled_dot_product_attention(q, k, v, visible, scale=scale), (q, k, v), sink
    )
    torch.testing.assert_close(own, reference, rtol=0, atol=1e-12)


def test_gradients_hold_under_a_mask_and_dropout() -> None:
    q, k, v = random_qkv(7, 7)
    mask = torch.tensor([[False] * 2 + [True] * 5, [True] * 7])
    keys = Layout.causal(torch.zeros(B, 7, dtype=torch.long), mask).keys

    def dropped(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        torch.manual_seed(1)
        return attend(q, k, v, keys, scale=0.7, p_dropout=0.4)

    assert torch.autograd.gradcheck(dropped, (q, k, v))


@pytest.mark.parametrize("p", [0.1, 0.5])
def test_bfloat16_weights_are_dropped_at_the_same_rate(p: float) -> None:
    n = 128
    q = torch.zeros(B, H, n, n, dtype=torch.bfloat16)
    values = torch.eye(n, dtype=torch.bfloat16).expand(B, H, n, n).contiguous()
    torch.manual_seed(0)
    weights = attend(q, q, values, causal_keys(n, n), scale=1.0, p_dropout=p)
    seen = torch.ones(n, n, dtype=torch.bool).tril().expand_as(weights)
    rate = (weights[seen] == 0).double().mean()
    assert abs(rate - p) < 4 * (p * (1 - p) / int(seen.sum())) ** 0.5


def test_evaluation_before_training_leaves_nothing_that_training_cannot_use() -> None:
    q, k, v = random_qkv(19, 19)
    with torch.inference_mode():
        first = attend(q, k, v, causal_keys(19, 19), scale=0.7)
    trained = attend(q, k, v, causal_keys(19, 19), scale=0.7)
    trained.sum().backward()
    assert torch.equal(trained, first)


def test_dropped_weights_are_zero_and_the_kept_ones_scaled() -> None:
    n, p = 128, 0.25
    q = torch.zeros(B, H, n, n, dtype=torch.float64)
    values = torch.eye(n, dtype=torch.float64).expand(B, H, n, n).contiguous()
    torch.manual_seed(0)
    weights = attend(
        q, q, values, causal_keys(n, n), scale=1.0, p_dropout=p
    )  # row t: 1 / (t + 1), or dropped
    shares = weights * torch.arange(1, n + 1)[:, None]
    seen = torch.ones(n, n, dtype=torch.bool).tril().expand_as(shares)
    is_kept = shares[seen] != 0
    torch.testing.assert_close(
        shares[seen][is_kept], torch.full((int(is_kept.sum()),), 4 / 3, dtype=torch.float64)
    )
    n_trials = is_kept.numel()
    assert abs(is_kept.double().mean() - (1 - p)) < 4 * (p * (1 - p) / n_trials) ** 0.5
    assert not weights[~seen].any()
