"""The plane is that of the two principal components, whatever space it lies in."""

import math

import pytest
import torch
from torch import Tensor

from sublayer.inspection.plane import fit_plane


def basis(size: int) -> Tensor:
    drawn = torch.randn(size, size, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    return torch.linalg.qr(drawn).Q


def test_states_on_a_known_plane_are_found_there() -> None:
    # Along the first axis they vary by 3 squared, along the second by 1.
    places = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]], dtype=torch.float64)
    axes = basis(5)[:2]
    centre = torch.arange(5, dtype=torch.float64)
    plane = fit_plane(centre + places @ axes)
    assert plane.shares == pytest.approx((0.9, 0.1))
    torch.testing.assert_close(plane.centre, centre)
    signs = (plane.axes * axes).sum(1)
    torch.testing.assert_close(signs.abs(), torch.ones(2, dtype=torch.float64))
    found = plane.coordinates(centre + places @ axes)
    torch.testing.assert_close(found, places * signs)
    # Of an axis and its opposite the one is taken whose largest part is positive.
    assert bool((plane.axes.max(1).values == plane.axes.abs().max(1).values).all())


def test_what_leaves_the_plane_is_not_within_it() -> None:
    places = torch.tensor([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, -1.0, 0.0]])
    plane = fit_plane(places.double())
    moves = torch.tensor([[3.0, 0.0, 0.0], [0.0, 0.0, 4.0]], dtype=torch.float64)
    assert plane.share_within(moves) == pytest.approx(9 / 25)
    assert plane.share_within(moves[:1]) == pytest.approx(1.0)
    assert math.isnan(plane.share_within(0.0 * moves))


@pytest.mark.parametrize("width", [1, 3])
def test_states_on_a_line_have_no_second_component(width: int) -> None:
    direction = torch.ones(width, dtype=torch.float64)
    states = torch.tensor([[1.0], [2.0], [6.0]], dtype=torch.float64) * direction
    plane = fit_plane(states)
    assert plane.shares == pytest.approx((1.0, 0.0))
    expected = torch.tensor([[-2.0], [-1.0], [3.0]], dtype=torch.float64) * math.sqrt(width)
    torch.testing.assert_close(plane.coordinates(states)[:, :1], expected)
    assert plane.coordinates(states)[:, 1].tolist() == pytest.approx([0.0, 0.0, 0.0], abs=1e-14)


def test_equal_states_have_no_shares_and_stand_in_the_centre() -> None:
    states = torch.ones(4, 3, dtype=torch.float64)
    plane = fit_plane(states)
    assert all(map(math.isnan, plane.shares))
    assert plane.coordinates(states).tolist() == [[0.0, 0.0]] * 4


def test_no_other_plane_has_a_larger_share() -> None:
    generator = torch.Generator().manual_seed(2)
    states = torch.randn(11, 7, generator=generator, dtype=torch.float64)
    plane = fit_plane(states)
    centred = states - states.mean(0)
    assert sum(plane.shares) == pytest.approx(plane.share_within(centred))
    other = basis(7)[:2]
    along = (centred @ other.T).square().sum() / centred.square().sum()
    assert float(along) < sum(plane.shares)
