"""Adafactor against transformers' own, against numbers worked out by hand, and its properties."""

import math

import pytest
import torch
from torch import nn
from transformers.optimization import Adafactor as TransformersAdafactor

from sublayer.config.optimizers.adafactor import AdafactorConfig
from sublayer.training.optimizers import adafactor
from sublayer.training.optimizers.build import (
    build_optimizer,
    optimizer_tensors,
)
from tests.training.optimizer_steps import draw, own, take

SHAPES = {"matrix": (5, 7), "stacked": (2, 6, 5), "embedding": (11, 4), "vector": (3, 13)}
"""Of each role one, of its name."""
CONFIGS = [
    AdafactorConfig(),
    AdafactorConfig(min_factored=4),
    AdafactorConfig(parameter_scale=False),
]
IDS = ["plain", "factored", "unscaled"]


def one(config, weights, role="matrix"):
    """An optimizer of a single parameter."""
    parameters = {"w": nn.Parameter(torch.tensor(weights))}
    return build_optimizer(config, parameters, {"w": role}), parameters


@pytest.mark.parametrize(("dtype", "bound"), [(torch.float32, 1e-6), (torch.float64, 1e-14)])
def test_matrices_of_at_least_128_rows_and_columns_move_as_transformers_moves_them(dtype, bound):
    shapes = {"a": (128, 160), "b": (128, 160), "wide": (131, 128), "tall": (300, 129)}
    start = {name: value.to(dtype) for name, value in draw(shapes, scale=0.05).items()}
    parameters, expected = own(start), own(start)
    ours = build_optimizer(AdafactorConfig(), parameters, dict.fromkeys(shapes, "matrix"))
    theirs = TransformersAdafactor(
        expected.values(), lr=0.01, scale_parameter=True, relative_step=False, warmup_init=False
    )
    for step in range(8):
        # Gradients that grow are clipped, those that shrink are not.
        scale = 10.0 ** (step % 4 - 3)
        drawn = draw(shapes, seed=step + 1, scale=scale)
        gradients = {name: value.to(dtype) for name, value in drawn.items()}
        take(ours, parameters, gradients)
        take(theirs, expected, gradients)
    for name, value in expected.items():
        assert torch.linalg.vector_norm(value - start[name]) > 0.01
        torch.testing.assert_close(parameters[name], value, rtol=0, atol=bound)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # RMS of (1, 7): 5. Update 1: V = g^2, u = (-1, 1) of RMS 1: w = (1, 7) - 0.6 * 5 * u = (4,
        # 4). Update 2, whose squares have the share 1/2: V = (1 + 49) / 2 = 25, u = (-7, 7) / 5,
        # its RMS 1.4: clipped to (-1, 1). RMS of (4, 4): 4, and w = (4, 4) - 0.6 * 4 * u.
        ({}, [6.4, 1.6]),
        # The second update is not clipped: w = (4, 4) - 0.6 * 4 * (-1.4, 1.4).
        ({"clip_threshold": 2.0}, [7.36, 0.64]),
        # Steps of 0.6 * (-1, 1), whatever the weights: (1, 7), (1.6, 6.4), (2.2, 5.8).
        ({"parameter_scale": False}, [2.2, 5.8]),
    ],
    ids=["plain", "threshold", "unscaled"],
)
def test_a_vector_moves_by_the_numbers_worked_out_by_hand(double, settings, expected):
    config = AdafactorConfig(lr=0.6, decay_exponent=1.0, **settings)
    optimizer, parameters = one(config, [1.0, 7.0], "vector")
    take(optimizer, parameters, {"w": torch.tensor([-1.0, 1.0])})
    take(optimizer, parameters, {"w": torch.tensor([-7.0, 7.0])})
    assert parameters["w"].tolist() == pytest.approx(expected, abs=1e-13)


def test_an_offset_counts_updates_before_the_first(double):
    # With one before it the squares of the first update have the share 1/2: V = g^2 / 2 and u =
    # sqrt(2) * (-1, 1), which a threshold of 2 lets be: w = (1, 7) - 0.6 * 5 * u.
    config = AdafactorConfig(lr=0.6, decay_exponent=1.0, decay_offset=1, clip_threshold=2.0)
    optimizer, parameters = one(config, [1.0, 7.0], "vector")
    take(optimizer, parameters, {"w": torch.tensor([-2.0, 2.0])})
    expected = [1 + 3 * math.sqrt(2), 7 - 3 * math.sqrt(2)]
    assert parameters["w"].tolist() == pytest.approx(expected, abs=1e-14)


def test_a_factored_matrix_moves_by_the_numbers_worked_out_by_hand(double):
    # g^2 has the mean 1/4 in each row and column, so that V = (1/4)(1/4) / (1/4) = 1/4 everywhere
    # and u = 2 g, its RMS 1; of weights that are all 2 the RMS is 2: w = 2 - 0.5 * 2 * 2 g. Not
    # factored, u would be g / |g|, its RMS 1/2.
    optimizer, parameters = one(
        AdafactorConfig(lr=0.5, min_factored=4), [[2.0] * 4 for _ in range(4)]
    )
    take(optimizer, parameters, {"w": torch.eye(4)})
    assert torch.equal(parameters["w"].detach(), 2.0 - 2.0 * torch.eye(4))
    small, parameters = one(AdafactorConfig(lr=0.5), [[2.0] * 4 for _ in range(4)])
    take(small, parameters, {"w": torch.eye(4)})
    assert torch.equal(parameters["w"].detach(), 2.0 - torch.eye(4))


def test_the_squares_of_update_n_have_the_share_n_to_minus_four_fifths(double):
    optimizer, parameters = one(AdafactorConfig(), [1.0], "vector")
    mean = 0.0
    for number in range(1, 5):
        take(optimizer, parameters, {"w": torch.tensor([float(number)])})
        share = number**-0.8
        mean = (1 - share) * mean + share * number**2
    kept = optimizer_tensors(optimizer, parameters)
    assert kept["exp_avg_sq/w"].item() == pytest.approx(mean, rel=1e-14)
    assert kept["step/w"].item() == 4


def test_weights_of_zero_move_by_a_thousandth_of_the_rate_and_gradients_of_zero_by_nothing(double):
    for shape in ((), (3,), (2, 5), (6, 4), (2, 4, 5)):
        parameters = {"w": nn.Parameter(torch.zeros(shape))}
        config = AdafactorConfig(lr=0.5, min_factored=4)
        role = "stacked" if len(shape) == 3 else "matrix"
        optimizer = build_optimizer(config, parameters, {"w": role})
        take(optimizer, parameters, {"w": torch.zeros(shape)})
        assert torch.equal(parameters["w"], torch.zeros(shape))
        again = build_optimizer(config, parameters, {"w": role})
        take(again, parameters, {"w": torch.full(shape, -2.0)})
        torch.testing.assert_close(parameters["w"].detach(), torch.full(shape, 0.5e-3))


@pytest.mark.parametrize(
    ("role", "shape", "min_factored"), [("stacked", (3, 5, 7), 4), ("vector", (3, 13), 128)]
)
def test_maps_that_are_stored_together_move_as_they_would_one_by_one(role, shape, min_factored):
    scales = torch.tensor([0.1, 1.0, 10.0]).view(3, *[1] * (len(shape) - 1))
    start = scales * draw({"w": shape})["w"]
    together = own({"w": start})
    apart = own({str(index): part for index, part in enumerate(start)})
    config = AdafactorConfig(min_factored=min_factored)
    stack = build_optimizer(config, together, {"w": role})
    alone = "matrix" if role == "stacked" else "vector"
    many = build_optimizer(config, apart, dict.fromkeys(apart, alone))
    for step in range(3):
        gradient = draw({"w": shape}, seed=step + 1)["w"] * scales.flip(0)
        take(stack, together, {"w": gradient})
        take(many, apart, {str(index): part for index, part in enumerate(gradient)})
    assert not torch.equal(together["w"], start)
    torch.testing.assert_close(
        together["w"].detach(), torch.stack([each.detach() for each in apart.values()])
    )


@pytest.mark.parametrize("config", CONFIGS, ids=IDS)
def test_parameters_of_one_shape_move_together_as_they_would_alone(monkeypatch, config):
    shapes = {f"{name} {number}": SHAPES[name] for number in range(5) for name in SHAPES}
    roles = {name: name.split()[0] for name in shapes}
    moved = []
    for part in (1, 2 * 35, 1 << 18):
        monkeypatch.setattr(adafactor, "CPU_UPDATE_PART", part)
        parameters = own(draw(shapes))
        optimizer = build_optimizer(config, parameters, roles)
        for step in range(3):
            take(optimizer, parameters, draw(shapes, seed=step + 1))
        moved.append(parameters)
    for name in shapes:
        torch.testing.assert_close(moved[0][name], moved[1][name], rtol=1e-6, atol=1e-7)
        torch.testing.assert_close(moved[0][name], moved[2][name], rtol=1e-6, atol=1e-7)
