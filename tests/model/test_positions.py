"""Position schemes against numbers worked out by hand."""

import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from sublayer.config.architecture.positions import POSITIONS
from sublayer.config.architecture.stacks import stacks
from sublayer.config.model import ModelConfig
from sublayer.config.resolve_model import resolve_model
from sublayer.errors import ConfigError
from sublayer.model.context.layout import Layout
from sublayer.model.positions.base import Positions
from sublayer.model.positions.build import build_positions, position_class
from sublayer.model.positions.rotation import rotation
from sublayer.model.positions.sinusoidal import sinusoids


def test_rotary_by_hand() -> None:
    # Width 4, base 100: frequencies 1 and 1/10; features 0 and 2 turn by 2, features 1 and 3 by 0.2
    # at position 2.
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
    turn = rotation(
        torch.tensor([[0, 1, 2], [5, 7, 11]]), d_head=4, base=100.0, dtype=torch.float64
    )
    x = torch.randn(2, 5, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(turn, (x,))


def test_rotary_keeps_float64_exact() -> None:
    place = 100_003
    turn = rotation(torch.tensor([place]), d_head=2, base=1e4, dtype=torch.float64)
    assert turn.cos[0, 0].item() == pytest.approx(math.cos(place), abs=1e-15)


def test_interleaved_sinusoids_are_pairs_of_the_papers_formula() -> None:
    vectors = sinusoids(torch.tensor([0, 3]), d_model=4, dtype=torch.float64, form="interleaved")
    # Width 4: the pairs have the frequencies 1 and 10000 ** -(2 / 4) = 1 / 100.
    by_hand = [math.sin(3), math.cos(3), math.sin(0.03), math.cos(0.03)]
    assert vectors.shape == (2, 4)
    assert vectors[0].tolist() == [0.0, 1.0, 0.0, 1.0]
    assert vectors[1].tolist() == pytest.approx(by_hand)


def test_interleaved_sinusoids_are_marians_in_another_order() -> None:
    places = torch.arange(11)
    halves = sinusoids(places, d_model=6, dtype=torch.float32, form="marian")
    pairs = sinusoids(places, d_model=6, dtype=torch.float32, form="interleaved")
    torch.testing.assert_close(pairs[:, 0::2], halves[:, :3])
    torch.testing.assert_close(pairs[:, 1::2], halves[:, 3:])


def test_sinusoids_by_hand() -> None:
    # Width 4: frequencies 1 and 1/10000; sines first, cosines second.
    by_hand = [math.sin(3), math.sin(3e-4), math.cos(3), math.cos(3e-4)]
    vectors = sinusoids(torch.tensor([0, 3]), d_model=4, dtype=torch.float64)
    torch.testing.assert_close(vectors[0], torch.tensor([0.0, 0.0, 1.0, 1.0], dtype=torch.float64))
    torch.testing.assert_close(
        vectors[1], torch.tensor(by_hand, dtype=torch.float64), rtol=0, atol=1e-15
    )


def positions_of(scheme: str, **fields: Any) -> Positions:
    fields["positions"] = scheme
    config = ModelConfig(n_layers=3, d_model=4, n_heads=2, **fields)
    resolved = resolve_model(config, vocab_size=11, context=5)
    return build_positions(resolved, stacks(resolved)[0])


def layout(n_tokens: int, padding: int = 0) -> Layout:
    mask = torch.arange(n_tokens)[None] >= padding
    return Layout.causal(torch.zeros(1, n_tokens, dtype=torch.long), mask if padding else None)


@pytest.mark.parametrize("scheme", [name for name, row in POSITIONS.items() if row.has_end])
def test_a_position_beyond_the_table_is_refused(scheme: str) -> None:
    positions = positions_of(scheme)
    with pytest.raises(ConfigError, match=r"6 tokens is longer than model.max_len = 5") as caught:
        positions.check(layout(6))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["rotary", "none"])
def test_schemes_without_a_table_have_no_end(scheme: str) -> None:
    positions, x = positions_of(scheme), torch.zeros(1, 6, 4)
    positions.check(layout(6))
    assert positions.add(x, 0, torch.arange(6)) is x


def test_padding_does_not_count_against_the_table() -> None:
    positions_of("sinusoidal").check(layout(6, padding=1))
    with pytest.raises(ConfigError, match="6 tokens"):
        positions_of("sinusoidal").check(layout(7, padding=1))


@pytest.mark.parametrize(
    ("scheme", "layers"), [("learned", [0]), ("learned-per-layer", [0, 1, 2]), ("rotary", [])]
)
def test_tables_are_added_before_the_blocks_that_have_one(scheme: str, layers: list[int]) -> None:
    positions = positions_of(scheme)
    for number, table in enumerate(getattr(positions, "tables", ())):
        torch.nn.init.constant_(table.weight, 10.0 + number)
    x = torch.zeros(1, 2, 4)
    added = [positions.add(x, layer, torch.arange(2)).mean().item() for layer in range(3)]
    assert added == [10.0 + layer if layer in layers else 0.0 for layer in range(3)]


@pytest.mark.parametrize("scheme", POSITIONS)
def test_every_row_names_a_class_of_its_own_that_is_final(scheme: str) -> None:
    found = position_class(scheme)
    assert getattr(found, "__final__", False)
    assert [name for name in POSITIONS if position_class(name) is found] == [scheme]


@pytest.mark.parametrize("scheme", POSITIONS)
def test_a_row_says_what_its_class_does(scheme: str) -> None:
    row, positions = POSITIONS[scheme], positions_of(scheme)
    places = torch.arange(5)
    added = [positions.vectors(layer, places, torch.float32) is not None for layer in range(3)]
    before = {"none": [], "first": [0], "every": [0, 1, 2]}[row.adds_before]
    assert added == [layer in before for layer in range(3)]
    is_rotated = positions.rotation(places, torch.float32) is not None
    assert is_rotated == (row.in_attention == "rotation")
    assert row.has_end == (row.adds_before != "none")


def test_the_documentation_lists_every_row() -> None:
    page = Path(__file__).parents[2] / "docs" / "model.md"
    section = page.read_text(encoding="utf-8").partition("## Positions")[2].partition("\n## ")[0]
    listed = re.findall(r"^\| `([a-z-]+)` \|", section, re.MULTILINE)
    assert sorted(listed) == sorted(POSITIONS)
