"""Position schemes against numbers worked out by hand."""

import math

import pytest
import torch

from sublayer.config.model import ModelConfig
from sublayer.config.resolve import resolve_model
from sublayer.errors import ConfigError
from sublayer.model.layout import Layout
from sublayer.model.positions import Positions, rotation, sinusoids


def test_rotary_by_hand() -> None:
    # Width 4, base 100: frequencies 1 and 1/10; features 0 and 2 turn by 2, features 1 and 3 by 0.2 at position 2.
    turn = rotation(torch.tensor([0, 2]), d_head=4, base=100.0, dtype=torch.float64)
    x = torch.tensor([[3.0, 5.0, 0.0, 0.0], [3.0, 5.0, 0.0, 0.0]], dtype=torch.float64)[None, None]
    turned = turn(x)[0, 0]
    assert turned[0].tolist() == [3.0, 5.0, 0.0, 0.0]
    by_hand = [3 * math.cos(2), 5 * math.cos(0.2), 3 * math.sin(2), 5 * math.sin(0.2)]
    torch.testing.assert_close(turned[1], torch.tensor(by_hand, dtype=torch.float64))
    torch.testing.assert_close(
        turned[1], torch.tensor([-1.2484405, 4.9003329, 2.7278923, 0.9933467], dtype=torch.float64)
    )


def test_rotary_products_depend_on_the_distance_only() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k = (torch.randn(1, 1, 1, 6, dtype=torch.float64, generator=generator) for _ in range(2))

    def product(query_place: int, key_place: int) -> float:
        turns = (
            rotation(torch.tensor([place]), d_head=6, base=1e4, dtype=torch.float64)
            for place in (query_place, key_place)
        )
        turned_q, turned_k = (turn(x) for turn, x in zip(turns, (q, k), strict=True))
        return float((turned_q * turned_k).sum())

    assert product(3, 1) == pytest.approx(product(1003, 1001), abs=1e-12)
    assert product(3, 1) != pytest.approx(product(3, 2), abs=1e-3)


def test_rotary_gradients_equal_finite_differences() -> None:
    turn = rotation(torch.tensor([[0, 1, 2], [5, 7, 11]]), d_head=4, base=100.0, dtype=torch.float64)
    x = torch.randn(2, 5, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(turn, (x,))


def test_rotary_keeps_float64_exact() -> None:
    place = 100_003
    turn = rotation(torch.tensor([place]), d_head=2, base=1e4, dtype=torch.float64)
    assert turn.cos[0, 0].item() == pytest.approx(math.cos(place), abs=1e-15)


def test_sinusoids_by_hand() -> None:
    # Width 4: frequencies 1 and 1/10000; sines first, cosines second.
    by_hand = [math.sin(3), math.sin(3e-4), math.cos(3), math.cos(3e-4)]
    vectors = sinusoids(torch.tensor([0, 3]), d_model=4, dtype=torch.float64)
    torch.testing.assert_close(vectors[0], torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(vectors[1], torch.tensor(by_hand, dtype=torch.float64), rtol=0, atol=1e-15)


def build_positions(scheme: str, **fields: int) -> Positions:
    config = ModelConfig(positions=scheme, n_layers=3, d_model=4, n_heads=2, **fields)  # type: ignore[arg-type]
    return Positions(resolve_model(config, vocab_size=11, context=5), config.n_layers)


def layout(n_tokens: int, padding: int = 0) -> Layout:
    mask = torch.arange(n_tokens)[None] >= padding
    return Layout.causal(torch.zeros(1, n_tokens, dtype=torch.long), mask if padding else None)


@pytest.mark.parametrize("scheme", ["learned", "learned-per-layer", "sinusoidal"])
def test_a_position_beyond_the_table_is_refused(scheme: str) -> None:
    positions = build_positions(scheme)
    with pytest.raises(ConfigError, match=r"6 tokens is longer than model.max_len = 5") as caught:
        positions.check(layout(6))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["rotary", "none"])
def test_schemes_without_a_table_have_no_end(scheme: str) -> None:
    positions, x = build_positions(scheme), torch.zeros(1, 6, 4)
    positions.check(layout(6))
    assert positions.add(x, 0, torch.arange(6)) is x


def test_padding_does_not_count_against_the_table() -> None:
    build_positions("sinusoidal").check(layout(6, padding=1))
    with pytest.raises(ConfigError, match="6 tokens"):
        build_positions("sinusoidal").check(layout(7, padding=1))


@pytest.mark.parametrize(("scheme", "layers"), [("learned", [0]), ("learned-per-layer", [0, 1, 2]), ("rotary", [])])
def test_tables_are_added_before_the_blocks_that_have_one(scheme: str, layers: list[int]) -> None:
    positions = build_positions(scheme)
    for number, table in enumerate(positions.tables):
        torch.nn.init.constant_(table.weight, 10.0 + number)
    x = torch.zeros(1, 2, 4)
    added = [positions.add(x, layer, torch.arange(2)).mean().item() for layer in range(3)]
    assert added == [10.0 + layer if layer in layers else 0.0 for layer in range(3)]
