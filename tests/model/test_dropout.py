"""Dropout: its rate, its scale, its seed, and that none costs nothing."""

from collections.abc import Callable

import pytest
import torch

from sublayer.model.kernels.dropout import add_branch, dropout, random_lanes
from sublayer.model.transformer import Transformer

N = 1 << 18


@pytest.mark.parametrize("lane", range(4))
def test_every_lane_is_uniform_over_int16(lane: int) -> None:
    torch.manual_seed(1)
    draws = random_lanes(torch.Size([4 * N]))[lane::4].long() + 2**15
    counts = torch.bincount(draws >> 12, minlength=16).double()  # 16 equal bins
    chi_squared = ((counts - N / 16) ** 2 / (N / 16)).sum()
    assert chi_squared < 37.7  # 15 degrees of freedom, one in a thousand


def test_lanes_are_the_bits_of_splitmix64() -> None:
    torch.manual_seed(4)
    state = int(torch.empty((), dtype=torch.int64).random_(-(2**63), None))
    torch.manual_seed(4)
    draws = random_lanes(torch.Size([20])).view(torch.int64).tolist()
    for counter, draw in enumerate(draws):
        z = (state + counter * 0x9E3779B97F4A7C15) % 2**64
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        assert draw % 2**64 == z ^ z >> 31


def test_neighbouring_lanes_are_independent() -> None:
    torch.manual_seed(2)
    is_dropped = (random_lanes(torch.Size([N])) < 0).double() - 0.5
    for distance in (1, 2, 3, 4, 5, 8):
        correlation = (is_dropped[distance:] * is_dropped[:-distance]).mean() / 0.25
        assert abs(correlation) < 4 / N**0.5


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_rate_is_p_and_the_mean_is_kept(p: float, dtype: torch.dtype) -> None:
    torch.manual_seed(3)
    dropped = dropout(torch.ones(N, dtype=dtype), p, training=True)
    rate = (dropped == 0).double().mean().item()
    assert abs(rate - p) < 4 * (p * (1 - p) / N) ** 0.5
    kept = dropped[dropped != 0]
    torch.testing.assert_close(kept, torch.full_like(kept, 1 / (1 - p)), rtol=1e-3, atol=0)


def test_the_gradient_is_dropped_as_the_value_was() -> None:
    x = torch.ones(101, requires_grad=True)
    torch.manual_seed(4)
    dropped = dropout(x, 0.3, training=True)
    (gradient,) = torch.autograd.grad(dropped.sum(), x)
    assert torch.equal(gradient, dropped)


def test_a_branch_is_dropped_scaled_and_added() -> None:
    x, branch = torch.zeros(N), torch.ones(N, dtype=torch.bfloat16, requires_grad=True)
    torch.manual_seed(5)
    total = add_branch(x, branch, step=0.5, p=0.75, training=True)
    assert total.dtype == torch.float32
    assert set(total.unique().tolist()) == {0.0, 2.0}  # 0.5 / (1 - 0.75)
    (gradient,) = torch.autograd.grad(total.sum(), branch)
    torch.testing.assert_close(gradient.float(), total.detach())


def test_a_branch_without_dropout_is_added_with_its_step() -> None:
    x, branch = torch.tensor([1.0, 2.0]), torch.tensor([10.0, 20.0])
    assert add_branch(x, branch, step=0.5, p=0.0, training=True).tolist() == [6.0, 12.0]
    assert add_branch(x, branch, step=0.5, p=0.9, training=False).tolist() == [6.0, 12.0]


def test_no_dropout_gives_the_input_itself() -> None:
    x = torch.ones(3)
    assert dropout(x, 0.0, training=True) is x
    assert dropout(x, 0.5, training=False) is x


@pytest.mark.parametrize(
    "place", ["dropout", "dropout_attention", "dropout_ffn", "dropout_embedding", "dropout_final"]
)
def test_each_place_drops_in_training_only_and_repeats_under_a_seed(
    random_model: Callable[..., Transformer], place: str
) -> None:
    places = {
        "dropout_attention": 0.0,
        "dropout_ffn": 0.0,
        "dropout_embedding": 0.0,
        "dropout": 0.0,
        place: 0.5,
    }
    model, plain = random_model(**places), random_model()
    tokens = torch.arange(10).view(2, 5)
    assert torch.equal(model(tokens).logits, plain(tokens).logits)
    model.train()
    torch.manual_seed(6)
    first = model(tokens).logits
    torch.manual_seed(6)
    assert torch.equal(model(tokens).logits, first)
    assert not torch.equal(model(tokens).logits, first)
    assert not torch.allclose(first, plain(tokens).logits)
